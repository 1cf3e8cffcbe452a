//! Counters of the store, for operators.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the histogram of batch durations, in milliseconds; the last bucket has everything above.
pub const COMMIT_BOUNDS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000];

#[derive(Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub operations: AtomicU64,
    pub retries: AtomicU64,
    pub unknown: AtomicU64,
    pub moves: AtomicU64,
    pub commits: Spans,
}

/// Counters since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions of the appenders, and the operations in them.
    pub batches: u64,
    pub operations: u64,
    /// Transactions that were retried after a conflict or a connection lost before COMMIT.
    pub retries: u64,
    /// Operations with an unknown outcome: the connection was lost during COMMIT.
    pub unknown: u64,
    /// How often the database was found restored or replaced, and all leases were revoked.
    pub moves: u64,
    /// Open connections.
    pub connections: u64,
    /// Number of batches up to each of [`COMMIT_BOUNDS`], from the first attempt to the response, and above.
    pub commits: [u64; COMMIT_BOUNDS.len() + 1],
    /// Sum of the durations of all batches.
    pub commit_time: Duration,
}

/// Histogram of durations.
#[derive(Default)]
pub(crate) struct Spans {
    counts: [AtomicU64; COMMIT_BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Spans {
    pub fn add(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let position = COMMIT_BOUNDS.partition_point(|bound| bound * 1_000 < micros);
        self.counts[position].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn stats(&self, connections: u64) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            batches: read(&self.batches),
            operations: read(&self.operations),
            retries: read(&self.retries),
            unknown: read(&self.unknown),
            moves: read(&self.moves),
            connections,
            commits: std::array::from_fn(|position| read(&self.commits.counts[position])),
            commit_time: Duration::from_micros(read(&self.commits.micros)),
        }
    }
}

#[cfg(test)]
mod tests;
