//! Counters of the store, for operators.

use std::time::Duration;

/// Upper bounds of the histogram of batch durations, in milliseconds; the last bucket has everything above.
pub const COMMIT_BOUNDS: [u64; 10] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000];

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

impl Stats {
    /// Counts a batch of this many operations.
    pub(crate) fn add_batch(&mut self, operations: u64, span: Duration) {
        self.batches += 1;
        self.operations += operations;
        self.commits[COMMIT_BOUNDS.partition_point(|bound| Duration::from_millis(*bound) < span)] += 1;
        self.commit_time += span;
    }
}

#[cfg(test)]
mod tests;
