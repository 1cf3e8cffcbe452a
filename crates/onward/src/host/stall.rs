//! A warning about code that blocks its thread, once per load of a run.
//!
//! Workflow code and the closures of its steps are polled on the few threads of the executor. A poll that takes long blocks every
//! other run of its thread. The check measures time only; it warns and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use onward_core::{Name, Timestamp};
use onward_store::Clock;

use crate::host::cell::RunCell;

/// The duration of one poll from which a warning is logged.
const POLL_MAX: Duration = Duration::from_secs(1);

pub(crate) struct StallDetector {
    clock: Option<Arc<dyn Clock>>,
    pub kind: Option<Name>,
}

impl StallDetector {
    pub fn new(clock: Option<Arc<dyn Clock>>) -> StallDetector {
        StallDetector { clock, kind: None }
    }

    /// Returns the time before a poll.
    pub fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Warns if the poll that began at `began` took too long.
    pub fn check(&mut self, began: Option<Timestamp>, cell: &RunCell) {
        let (Some(began), Some(now)) = (began, self.now()) else { return };
        let took = now.since(began);
        if took >= POLL_MAX {
            self.clock = None; // warn once
            self.warn(took, cell);
        }
    }

    #[cold]
    fn warn(&self, took: Duration, cell: &RunCell) {
        let (run, code_position) = {
            let state = cell.lock();
            (state.engine.key().clone(), state.engine.code_position())
        };
        tracing::warn!(
            run = %run.id,
            namespace = %run.namespace,
            kind = self.kind.as_ref().map(Name::as_str),
            took_ms = took.as_millis() as u64,
            "workflow code blocked its thread for {took:.1?}, {code_position}: every other run of that thread waited; \
             do blocking work inside a step with `tokio::task::spawn_blocking`",
        );
    }
}
