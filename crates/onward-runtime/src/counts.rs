//! Counters of a runtime since it was created, for metrics. No decision depends on them, and they are not recorded.

use std::sync::atomic::{AtomicU64, Ordering};

use onward_core::ErrorCode;
use onward_core::task::TaskReport;

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

#[derive(Debug, Default)]
pub struct Counts {
    /// Signals between runs that no run accepted.
    pub signals_dropped: Count,
    /// Entries appended from outside whose idempotency key existed already.
    pub entries_repeated: Count,
    /// Attempts to resume an agent that another worker held or that had ended.
    pub resumes_lost: Count,
    /// Attempts of model calls that returned no content.
    pub empty_answers: Count,
}

/// Returns true if the attempt failed because the model returned no content.
pub(crate) fn is_empty_answer(report: &TaskReport) -> bool {
    matches!(report.without_cost(), TaskReport::Failed(failure) if failure.code == EMPTY_ANSWER)
}
