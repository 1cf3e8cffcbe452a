//! Spans for whoever collects them: one for each run, activation, step, task and child, sent as OTLP.
//!
//! Owns what is told about the work of this process. Spans are made when what they tell is recorded, with the times it took and ids
//! that follow from the log (`onward_core::trace`): nothing is held open while a run waits, and a replay, which records nothing, tells
//! nothing. Must never slow the work: what the collector does not take in time is dropped.
//!
//! Invariants:
//! - SP1: a span is told after the commit or report it stands for was taken, and once.
//! - SP2: without an endpoint nothing of this runs.
//! - SP3: the span of a run is told with its first commit, before anything that hangs under it in a later one.

#[cfg(feature = "remote")]
mod exporter;
#[cfg(feature = "remote")]
mod message;
#[cfg(feature = "remote")]
mod otlp;
mod spans;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use onward_core::event::RunStarted;
use onward_core::trace::{TraceContext, call_span, trace_of};
use onward_core::{Index, Record, RunKey};
use onward_runtime::Link;

#[cfg(feature = "remote")]
pub use otlp::Otlp;
use spans::Span;
pub(crate) use work::{Traced, Tried};

/// How many runs' origins are remembered.
const ORIGINS_MAX: usize = 10_000;

/// Where a run stands in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Origin {
    pub trace_id: [u8; 16],
    /// The span that the run's own is a part of.
    pub parent: Option<[u8; 8]>,
    pub sampled: bool,
}

impl Origin {
    pub fn context(self, span_id: [u8; 8]) -> TraceContext {
        TraceContext { trace_id: self.trace_id, span_id, sampled: self.sampled }
    }
}

/// Tells spans, and knows where runs stand. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tracing {
    #[cfg(feature = "remote")]
    exporter: exporter::Exporter,
    origins: Arc<Mutex<HashMap<RunKey, Origin>>>,
}

impl Tracing {
    #[cfg(feature = "remote")]
    pub fn start(otlp: Otlp) -> Result<Tracing, crate::Error> {
        Ok(Tracing { exporter: exporter::Exporter::start(otlp)?, origins: Arc::default() })
    }

    #[cfg(feature = "remote")]
    fn tell(&self, spans: Vec<Span>) {
        spans.into_iter().for_each(|span| self.exporter.tell(span));
    }

    #[cfg(not(feature = "remote"))]
    fn tell(&self, _: Vec<Span>) {}

    /// Waits until everything told was sent or given up.
    #[cfg(feature = "remote")]
    pub async fn flush(&self, patience: Duration) {
        self.exporter.flush(patience).await;
    }

    #[cfg(not(feature = "remote"))]
    pub async fn flush(&self, _: Duration) {}

    /// Where the run stands: in the trace it was started with, in that of its parent, or at the root of one of its own. Asks the logs
    /// for what neither `records`, the run's own as far as they are at hand, nor memory tells; `None` when they do not answer.
    pub async fn origin(&self, link: &dyn Link, run: &RunKey, records: &[Record]) -> Option<Origin> {
        let mut calls: Vec<(RunKey, [u8; 8])> = Vec::new();
        let mut at = run.clone();
        let mut at_hand = records.first().and_then(first_started).cloned();
        let root = loop {
            let started = match (at_hand.take(), self.known(&at)) {
                (Some(started), _) => started,
                (None, Some(known)) => break known,
                (None, None) => read_started(link, &at).await?,
            };
            let Some(parent) = started.parent else {
                let root = root_of(&at, started.trace.as_deref(), started.seed);
                self.learn(at, root);
                break root;
            };
            calls.push((at, call_span(&parent.run, parent.generation, &parent.place)));
            at = parent.run;
        };
        let mut origin = root;
        for (run, call) in calls.into_iter().rev() {
            origin = Origin { parent: Some(call), ..root };
            self.learn(run, origin);
        }
        Some(origin)
    }

    fn known(&self, run: &RunKey) -> Option<Origin> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner).get(run).copied()
    }

    fn learn(&self, run: RunKey, origin: Origin) {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        if origins.len() >= ORIGINS_MAX {
            origins.clear(); // they are in the logs
        }
        origins.insert(run, origin);
    }
}

/// Where a run stands that no other run started.
fn root_of(run: &RunKey, trace: Option<&str>, seed: u64) -> Origin {
    match trace.and_then(TraceContext::parse) {
        Some(caller) => Origin { trace_id: caller.trace_id, parent: Some(caller.span_id), sampled: caller.sampled },
        None => Origin { trace_id: trace_of(run, seed), parent: None, sampled: true },
    }
}

/// The start of a run's first generation: later ones do not say where the trace came from.
fn first_started(record: &Record) -> Option<&RunStarted> {
    record.started().filter(|started| started.generation == 0)
}

async fn read_started(link: &dyn Link, run: &RunKey) -> Option<RunStarted> {
    let records = link.read_log(run.clone(), Some(0), Index(0), 1).await.ok()?;
    records.first().and_then(first_started).cloned()
}
