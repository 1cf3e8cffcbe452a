//! Changes for listeners, sent once they are durable.

use crate::Change;
use onward_core::task::Task;
use onward_core::{Record, RunHead, Timestamp};

/// An owned [`Change`].
pub enum StoredChange {
    Appended { head: RunHead, record: Record },
    RunPending { head: RunHead },
    TaskQueued { task: Box<Task> },
    DueAt(Timestamp),
    OutboxGrew,
}

impl StoredChange {
    pub fn as_change(&self) -> Change<'_> {
        match self {
            StoredChange::Appended { head, record } => Change::Appended { head, record },
            StoredChange::RunPending { head } => Change::RunPending { head },
            StoredChange::TaskQueued { task } => Change::TaskQueued { task },
            StoredChange::DueAt(at) => Change::DueAt(*at),
            StoredChange::OutboxGrew => Change::OutboxGrew,
        }
    }
}
