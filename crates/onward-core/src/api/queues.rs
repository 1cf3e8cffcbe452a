//! Settings of queues, and what waits in one.

use crate::queue::QueueSettings;
use crate::queue::load::KeyView;
use crate::task::TaskCount;
use crate::{Name, Namespace, Timestamp, message};

message! {
    /// Replaces the settings of a queue.
    pub struct PutQueueRequest {
        1 => namespace: Namespace,
        /// Absent for the default queue.
        2 => queue: Option<Name>,
        3 => settings: QueueSettings,
    }

    #[derive(Eq)]
    pub struct QueueRequest {
        1 => namespace: Namespace,
        /// Absent for the default queue.
        2 => queue: Option<Name>,
    }

    /// The settings of a queue, with its name.
    #[derive(Eq)]
    pub struct QueueLimits {
        /// `null` is the default queue.
        1 => queue: Option<Name>,
        2 => settings: QueueSettings,
        3 => stored_at: Timestamp,
    }

    /// A queue as a whole.
    #[derive(Eq)]
    pub struct QueueView {
        /// `null` is the default queue.
        1 => queue: Option<Name>,
        /// `null` if it has none.
        2 => settings: Option<QueueSettings>,
        /// Tasks that wait for a worker or for their next attempt.
        3 => queued: u64,
        4 => running: u64,
        5 => quarantined: u64,
        /// When the first queued task became or becomes visible.
        6 => oldest_at: Option<Timestamp>,
        /// Keys whose limits hold their tasks back, among those listed.
        7 => throttled_keys: u64,
        /// The keys with open tasks, up to 1,000: those with the longest wait first.
        8 => keys: Vec<KeyView>,
        /// Its runs, which the limits count apart from its tasks.
        20 => runs: QueuedRuns,
        /// The same as `keys`, for runs.
        21 => run_keys: Vec<KeyView>,
    }

    /// The runs of a queue, with its name.
    #[derive(Eq)]
    pub struct RunsOfQueue {
        /// `null` is the default queue.
        1 => queue: Option<Name>,
        2 => runs: QueuedRuns,
    }

    /// The runs of a queue.
    #[derive(Eq, Default)]
    pub struct QueuedRuns {
        /// Runs that wait until they are let in.
        1 => queued: u64,
        /// Runs that hold a slot.
        2 => begun: u64,
        /// When the first run that waits was queued, or will be.
        3 => oldest_at: Option<Timestamp>,
    }
}

impl QueuedRuns {
    /// Adds the places of runs in a queue.
    pub fn add(&mut self, count: &TaskCount) {
        self.queued += count.queued;
        self.begun += count.running;
        self.oldest_at = [self.oldest_at, count.oldest_at].into_iter().flatten().min();
    }
}
