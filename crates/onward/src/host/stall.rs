//! Code that holds its thread: whoever wrote it is told, once for each time the run is in memory.
//!
//! Workflow code and the closures of its steps are polled on the few threads of the executor. One poll that does not come back keeps
//! every other run of its thread waiting. Must never judge by anything but time: it warns and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use onward_core::{Name, Timestamp};
use onward_store::Clock;

use crate::host::cell::RunCell;

/// How long one poll may take before it is worth a word.
const POLL_MAX: Duration = Duration::from_secs(1);

pub(crate) struct Stalls {
    clock: Option<Arc<dyn Clock>>,
    pub kind: Option<Name>,
}

impl Stalls {
    pub fn new(clock: Option<Arc<dyn Clock>>) -> Stalls {
        Stalls { clock, kind: None }
    }

    /// The time before a poll.
    pub fn now(&self) -> Option<Timestamp> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Looks at how long the poll took that began at `began`.
    pub fn look(&mut self, began: Option<Timestamp>, cell: &RunCell) {
        let (Some(began), Some(now)) = (began, self.now()) else { return };
        let took = now.since(began);
        if took >= POLL_MAX {
            self.clock = None; // told once
            self.warn(took, cell);
        }
    }

    #[cold]
    fn warn(&self, took: Duration, cell: &RunCell) {
        let (run, whereabouts) = {
            let state = cell.lock();
            (state.engine.key().clone(), state.engine.whereabouts())
        };
        tracing::warn!(
            run = %run.id,
            namespace = %run.namespace,
            kind = self.kind.as_ref().map(Name::as_str),
            took_ms = took.as_millis() as u64,
            "workflow code held its thread for {took:.1?}, {whereabouts}: every other run of that thread waited; \
             do blocking work inside a step with `tokio::task::spawn_blocking`",
        );
    }
}
