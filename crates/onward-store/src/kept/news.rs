//! Changes for listeners, sent once they are durable.

use crate::{Change, Listener};
use onward_core::task::Task;
use onward_core::{Record, RunHead, Timestamp};

/// An owned [`Change`].
pub enum News {
    Appended { head: RunHead, record: Record },
    RunPending { head: RunHead },
    TaskQueued { task: Box<Task> },
    DueAt(Timestamp),
    DeliveryAdded,
}

impl News {
    pub fn tell(&self, listener: &dyn Listener) {
        listener.changed(self.as_change());
    }

    pub fn as_change(&self) -> Change<'_> {
        match self {
            News::Appended { head, record } => Change::Appended { head, record },
            News::RunPending { head } => Change::RunPending { head },
            News::TaskQueued { task } => Change::TaskQueued { task },
            News::DueAt(at) => Change::DueAt(*at),
            News::DeliveryAdded => Change::DeliveryAdded,
        }
    }
}
