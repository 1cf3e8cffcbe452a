//! Settings of queues, and what waits in one.

use crate::queue::load::KeyView;
use crate::queue::{QueueLimit, QueueSettings};
use crate::{Name, Namespace, Timestamp, message};

message! {
    /// Replaces the settings of a queue.
    pub struct PutQueueRequest {
        1 => namespace: Namespace,
        /// Absent for the default queue.
        2 => queue: Option<Name>,
        3 => settings: QueueSettings,
        /// The settings that the caller replaces, empty for a queue without settings: refused if others are stored.
        4 => replaces: Option<QueueSettings>,
    }

    #[derive(Eq)]
    pub struct QueueRequest {
        1 => namespace: Namespace,
        /// Absent for the default queue.
        2 => queue: Option<Name>,
    }

    /// A query for a queue with a page of its keys.
    #[derive(Eq)]
    pub struct ReadQueueRequest {
        1 => namespace: Namespace,
        /// Absent for the default queue.
        2 => queue: Option<Name>,
        /// The number of keys; 0 means 1,000.
        3 => limit: usize,
        /// The `next` of the previous page of keys.
        4 => cursor: Option<String>,
        /// Only keys that begin with this text.
        5 => key: Option<String>,
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
        /// Keys whose limits hold their tasks back, among the 10,000 keys with the longest wait.
        7 => throttled_keys: u64,
        /// A page of the keys with open tasks: those with the longest wait first.
        8 => keys: Vec<KeyView>,
        /// The time since `oldest_at`; 0 if it is to come.
        9 => oldest_age_ms: Option<u64>,
        /// The key that has waited longest; `null` if nothing waits.
        10 => oldest_key: Option<KeyView>,
        /// Cursor of the next page of keys.
        11 => next: Option<String>,
        /// The setting of the queue as a whole that holds its tasks back; `null` if none does.
        12 => held_back_by: Option<QueueLimit>,
        /// When the rate of the queue permits another attempt.
        13 => opens_at: Option<Timestamp>,
        /// The number of starts that count for the rate of the queue; `null` without a rate.
        14 => rate_used: Option<u32>,
        /// Tasks that wait because of a setting of the queue or a limit of their key, among those of the same keys.
        15 => held_back: u64,
    }
}
