//! Changes for listeners, sent once they are durable.

use crate::{Change, Listener};
use onward_core::task::Task;
use onward_core::{Record, RunHead, Timestamp};

/// An owned [`Change`].
pub enum OwnedChange {
    Appended { head: RunHead, record: Record },
    RunPending { head: RunHead },
    TaskQueued { task: Box<Task> },
    DueAt(Timestamp),
    OutboxGrew,
}

impl OwnedChange {
    pub fn tell(&self, listener: &dyn Listener) {
        listener.changed(self.as_change());
    }

    pub fn as_change(&self) -> Change<'_> {
        match self {
            OwnedChange::Appended { head, record } => Change::Appended { head, record },
            OwnedChange::RunPending { head } => Change::RunPending { head },
            OwnedChange::TaskQueued { task } => Change::TaskQueued { task },
            OwnedChange::DueAt(at) => Change::DueAt(*at),
            OwnedChange::OutboxGrew => Change::OutboxGrew,
        }
    }
}
