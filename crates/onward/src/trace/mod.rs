//! Trace spans, one for each run, activation, step, task and child, exported over OTLP.
//!
//! Spans are created when the work they describe is recorded, with its duration and with ids derived from the log
//! (`onward_core::trace`). No span is open while a run waits, and a replay, which records nothing, exports nothing. Must never
//! slow down the work: spans that the collector does not accept in time are dropped.
//!
//! Invariants:
//! - SP1: a span is exported once, after the commit or report that it describes was accepted.
//! - SP2: without an endpoint, none of this runs.
//! - SP3: the span of a run is exported with its first commit, before the spans below it of later commits.

#[cfg(feature = "remote")]
mod exporter;
#[cfg(feature = "remote")]
mod message;
#[cfg(feature = "remote")]
mod otlp;
mod spans;
mod work;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::event::RunStarted;
use onward_core::trace::{TraceContext, call_span, trace_of};
use onward_core::{Index, Record, RunKey};
use onward_runtime::WorkerConnection;

use onward_store::sync::lock;
#[cfg(feature = "remote")]
pub use otlp::Otlp;
use spans::Span;
pub(crate) use work::{AttemptTrace, Traced};

/// Size of the cache of runs' origins.
const ORIGINS_MAX: usize = 10_000;

/// The position of a run in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TraceOrigin {
    pub trace_id: [u8; 16],
    /// The parent of the run's own span.
    pub parent: Option<[u8; 8]>,
    pub sampled: bool,
}

impl TraceOrigin {
    pub fn context(self, span_id: [u8; 8]) -> TraceContext {
        TraceContext { trace_id: self.trace_id, span_id, sampled: self.sampled }
    }
}

/// Exports spans, and caches the origins of runs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tracing {
    #[cfg(feature = "remote")]
    exporter: exporter::Exporter,
    origins: Arc<Mutex<HashMap<RunKey, TraceOrigin>>>,
}

impl Tracing {
    #[cfg(feature = "remote")]
    pub fn start(otlp: Otlp) -> Result<Tracing, crate::Error> {
        Ok(Tracing { exporter: exporter::Exporter::start(otlp)?, origins: Arc::default() })
    }

    #[cfg(feature = "remote")]
    fn export(&self, spans: Vec<Span>) {
        spans.into_iter().for_each(|span| self.exporter.export(span));
    }

    #[cfg(not(feature = "remote"))]
    fn export(&self, _: Vec<Span>) {}

    /// Waits until all spans were sent or dropped.
    #[cfg(feature = "remote")]
    pub async fn flush(&self, timeout: Duration) {
        self.exporter.flush(timeout).await;
    }

    #[cfg(not(feature = "remote"))]
    pub async fn flush(&self, _: Duration) {}

    /// Returns the run's position: in the trace it was started with, in that of its parent, or at the root of its own. Reads logs
    /// if neither `records`, the available part of the run's own log, nor the cache has it; `None` if that fails.
    pub async fn origin(&self, link: &dyn WorkerConnection, run: &RunKey, records: &[Record]) -> Option<TraceOrigin> {
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
            calls.push((at, call_span(&parent.run, parent.generation, &parent.call_id)));
            at = parent.run;
        };
        let mut origin = root;
        for (run, call) in calls.into_iter().rev() {
            origin = TraceOrigin { parent: Some(call), ..root };
            self.learn(run, origin);
        }
        Some(origin)
    }

    fn known(&self, run: &RunKey) -> Option<TraceOrigin> {
        lock(&self.origins).get(run).copied()
    }

    fn learn(&self, run: RunKey, origin: TraceOrigin) {
        let mut origins = lock(&self.origins);
        if origins.len() >= ORIGINS_MAX {
            origins.clear(); // they can be read from the logs again
        }
        origins.insert(run, origin);
    }
}

/// Returns the position of a run without a parent.
fn root_of(run: &RunKey, trace: Option<&str>, seed: u64) -> TraceOrigin {
    match trace.and_then(TraceContext::parse) {
        Some(caller) => TraceOrigin { trace_id: caller.trace_id, parent: Some(caller.span_id), sampled: caller.sampled },
        None => TraceOrigin { trace_id: trace_of(run, seed), parent: None, sampled: true },
    }
}

/// Returns the start of a run's first generation; later ones do not have the trace.
fn first_started(record: &Record) -> Option<&RunStarted> {
    record.started().filter(|started| started.generation == 0)
}

async fn read_started(link: &dyn WorkerConnection, run: &RunKey) -> Option<RunStarted> {
    let records = link.read_log(run.clone(), Some(0), Index(0), 1).await.ok()?;
    records.first().and_then(first_started).cloned()
}
