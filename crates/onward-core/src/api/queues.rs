//! Settings of queues, and what waits in one.

use crate::queue::QueueSettings;
use crate::queue::load::KeyView;
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
        /// Keys whose limits hold their tasks back, among the 1,000 with the longest wait.
        4 => throttled_keys: u64,
        /// The key that has waited longest; `null` if nothing waits.
        5 => oldest_key: Option<KeyView>,
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
        /// The time since `oldest_at`; 0 if it is to come.
        9 => oldest_age_ms: Option<u64>,
        /// The key that has waited longest; `null` if nothing waits.
        10 => oldest_key: Option<KeyView>,
    }
}
