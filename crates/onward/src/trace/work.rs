//! Trace data that a worker collects until it is recorded.

use std::time::SystemTime;

use onward_core::run::Commit;
use onward_core::spend::Spend;
use onward_core::task::Task;
use onward_core::trace::{TraceContext, task_span};
use onward_core::{Name, RunHead, Timestamp};
use onward_runtime::WorkerConnection;

use super::spans::{self, Activation};
use super::{TraceOrigin, Tracing};
use crate::host::code::WorkerShared;

/// The tracing of one run in memory. Does nothing without tracing.
pub(crate) struct Traced {
    to: Option<(Tracing, TraceOrigin)>,
    kind: Name,
    created_at: Timestamp,
    /// The time at which the code began to run.
    began: Option<SystemTime>,
    /// The content of the commit in flight.
    in_flight: Option<Activation>,
}

impl Traced {
    pub fn new(shared: &WorkerShared, head: &RunHead) -> Traced {
        let to = shared.tracing.clone().zip(shared.origin).filter(|(_, origin)| origin.sampled);
        Traced { to, kind: head.kind.clone(), created_at: head.created_at, began: None, in_flight: None }
    }

    /// Marks the beginning of an activation, unless one has begun.
    pub fn begin(&mut self) {
        if self.to.is_some() {
            self.began.get_or_insert_with(SystemTime::now);
        }
    }

    /// Marks that the code waits.
    pub fn mark_waiting(&mut self) {
        self.began = None;
    }

    pub fn commit(&mut self, commit: &Commit) {
        if let Some((_, origin)) = &self.to {
            let began = self.began.take().unwrap_or_else(SystemTime::now);
            self.in_flight = Some(Activation::of(*origin, commit, &self.kind, self.created_at, began));
        }
    }

    /// Exports the spans of the accepted commit.
    pub fn export(&mut self) {
        if let (Some((tracing, _)), Some(activation)) = (&self.to, self.in_flight.take()) {
            tracing.export(activation.spans(SystemTime::now()));
        }
    }
}

/// The tracing of one task attempt. Empty without tracing.
pub(crate) struct AttemptTrace {
    to: Option<(Tracing, TraceOrigin, Task)>,
    began: SystemTime,
}

impl AttemptTrace {
    pub async fn begin(tracing: Option<&Tracing>, link: &dyn WorkerConnection, task: &Task) -> AttemptTrace {
        let to = match tracing {
            Some(tracing) => tracing.origin(link, &task.id.run, &[]).await.map(|origin| (tracing.clone(), origin, task.clone())),
            None => None,
        };
        AttemptTrace { to, began: SystemTime::now() }
    }

    pub fn context(&self) -> Option<TraceContext> {
        self.to.as_ref().map(|(_, origin, task)| origin.context(task_span(&task.id, task.claim)))
    }

    /// Exports the span of the accepted report; `failed` is the code of its failure, `spent` the cost of the attempt.
    pub fn export(self, failed: Option<String>, spent: &[Spend]) {
        if let Some((tracing, origin, task)) = self.to.filter(|(_, origin, _)| origin.sampled) {
            tracing.export(vec![spans::attempt(origin, &task, failed, spent, (self.began, SystemTime::now()))]);
        }
    }
}
