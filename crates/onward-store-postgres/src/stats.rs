//! What the store counts, for whoever keeps it running.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a batch took at most, in milliseconds; what took longer than the last is counted behind them.
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

/// What the store has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions of the appenders, and the operations in them.
    pub batches: u64,
    pub operations: u64,
    /// Transactions that were tried again because somebody was in the way or the connection was lost before the end.
    pub retries: u64,
    /// Operations whose outcome nobody knows, because the connection was lost while they were being committed.
    pub unknown: u64,
    /// How often the database turned out to be one that was put back, or another one, and all leases were taken back.
    pub moves: u64,
    /// Connections that are open.
    pub connections: u64,
    /// How many batches took up to each of [`COMMIT_BOUNDS`], from the first try to the answer, and how many took longer.
    pub commits: [u64; COMMIT_BOUNDS.len() + 1],
    /// What they took together.
    pub commit_time: Duration,
}

/// Spans by how long they were.
#[derive(Default)]
pub(crate) struct Spans {
    counts: [AtomicU64; COMMIT_BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Spans {
    pub fn add(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let place = COMMIT_BOUNDS.partition_point(|bound| bound * 1_000 < micros);
        self.counts[place].fetch_add(1, Ordering::Relaxed);
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
            commits: std::array::from_fn(|place| read(&self.commits.counts[place])),
            commit_time: Duration::from_micros(read(&self.commits.micros)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_counted_under_the_first_bound_that_it_does_not_pass() {
        let counters = Counters::default();
        for micros in [0, 1_000, 1_001, 5_000_000, 5_000_001] {
            counters.commits.add(Duration::from_micros(micros));
        }
        let stats = counters.stats(0);
        assert_eq!(stats.commits, [2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(stats.commit_time, Duration::from_micros(10_002_002));
    }
}
