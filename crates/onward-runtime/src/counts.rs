//! Counters of a runtime since it was created, for metrics. No decision depends on them, and they are not recorded.

use std::sync::atomic::{AtomicU64, Ordering};

use onward_core::ErrorCode;
use onward_core::task::TaskReport;
use onward_store::StoreError;

/// Failure code of a model call without content.
const EMPTY_ANSWER: ErrorCode = ErrorCode::EmptyModelResponse;

/// A counter that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub(crate) fn one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of the buckets of durations, in milliseconds.
pub const DURATION_BOUNDS: &[u64] =
    &[5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 3_600_000];

/// A distribution of values. The caller passes the same bounds every time.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One bucket more than there are bounds.
    buckets: [AtomicU64; 16],
    sum: AtomicU64,
}

impl Histogram {
    pub fn observe(&self, bounds: &[u64], value: u64) {
        self.buckets[bounds.partition_point(|bound| *bound < value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Returns how many values are within each bound, and at last how many there are, with their sum.
    pub fn cumulative(&self, bounds: &[u64]) -> (Vec<u64>, u64) {
        let mut total = 0;
        let buckets = self.buckets[..=bounds.len()].iter().map(|bucket| {
            total += bucket.load(Ordering::Relaxed);
            total
        });
        (buckets.collect(), self.sum.load(Ordering::Relaxed))
    }
}

#[derive(Debug, Default)]
pub struct Counts {
    /// Time between the moment at which a task could start and that at which a worker of this runtime got it.
    pub task_waits: Histogram,
    /// Time between the moment at which a worker of this runtime got a task and its report.
    pub task_durations: Histogram,
    /// Signals between runs that no run accepted.
    pub signals_dropped: Count,
    /// Entries appended from outside whose idempotency key existed already.
    pub entries_repeated: Count,
    /// Attempts to resume an agent that another worker held or that had ended.
    pub resumes_lost: Count,
    /// Attempts of model calls that returned no content.
    pub empty_answers: Count,
    /// Standalone tasks that were refused because their queue was full.
    pub tasks_over_depth: Count,
    /// Standalone tasks that were refused because they needed more slots than a limit of their queue.
    pub tasks_over_slots: Count,
}

impl Counts {
    /// Counts a standalone task that its queue refused.
    pub(crate) fn task_refused(&self, error: &StoreError) {
        match error {
            StoreError::QueueFull { .. } => self.tasks_over_depth.one(),
            StoreError::TooManySlots { .. } => self.tasks_over_slots.one(),
            _ => {}
        }
    }
}

/// Returns true if the attempt failed because the model returned no content.
pub(crate) fn is_empty_answer(report: &TaskReport) -> bool {
    matches!(report.without_cost(), TaskReport::Failed(failure) if failure.code == EMPTY_ANSWER)
}
