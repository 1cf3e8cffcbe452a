//! Queues: the limits of a queue, the shares of its keys, and the order of its tasks.
//!
//! Owns every decision about who may be handed out next. A store tells [`Grants`] which keys wait and how many tasks each of
//! them holds, and carries the decision out in the write that leases the tasks. Must never count: what is held is the number of
//! leases that the store finds, so no count can be wrong after a crash.
//!
//! Invariants:
//! - QL1 (L25): a lease is given only while the queue, and the key of the task, hold fewer leases than their limits. A limit that is
//!   lowered takes no lease away.
//! - QL2: in no span of one period begin more attempts than the rate of the queue, or of the key, permits.
//! - QL3 (L25): a lease that ends by any way frees its slot in the same write, because slots are leases.
//! - QL4: a paused queue hands out nothing; running tasks continue.
//! - QL5: keys take turns. Between two turns of a key that may be handed out, every other such key has at most one turn, of as
//!   many tasks as its weight.
//! - QL6: tasks of one key, and tasks without a key, are handed out by rank: a task is overtaken only by those that became
//!   visible less than [`AGING_MS`] after it for each level of priority that they are above it.
//! - QL7: a queue with as many waiting tasks as its depth takes no standalone task from a caller; what runs schedule is never
//!   refused.

pub mod grants;
pub mod load;
pub mod settings;
pub mod starts;

pub use grants::{Grants, Turn, WaitingKey};
pub use settings::{KeyWeight, LimitPart, QUEUE_KIND_PREFIX, QueueRate, QueueSettings};
pub use starts::QueueStarts;

use crate::Timestamp;

/// The wait that one level of priority is worth (QL6).
pub const AGING_MS: i64 = 60_000;

/// Returns the rank of a task: the lowest is handed out first (QL6). Columns of stores compute the same.
pub fn rank(priority: i32, visible_at: Timestamp) -> i64 {
    i64::try_from(visible_at.0).unwrap_or(i64::MAX).saturating_sub(i64::from(priority) * AGING_MS)
}

#[cfg(test)]
mod tests;
