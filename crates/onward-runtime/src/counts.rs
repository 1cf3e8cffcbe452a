//! What a runtime has counted since it began. For whoever looks at it; nothing is decided by it, and nothing of it is recorded.

use std::sync::atomic::{AtomicU64, Ordering};

use onward_core::task::TaskReport;

/// What such an attempt of a model's call fails with.
const EMPTY_ANSWER: &str = "empty_model_response";

/// A number that only grows.
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
    /// Signals from run to run that no run could take.
    pub signals_dropped: Count,
    /// Entries from outside whose key was there already.
    pub entries_repeated: Count,
    /// Agents that could not be resumed because somebody else had them, or they had ended.
    pub resumes_lost: Count,
    /// Attempts that a model answered with nothing.
    pub empty_answers: Count,
}

/// Whether this says that a model answered nothing.
pub(crate) fn is_empty_answer(report: &TaskReport) -> bool {
    matches!(report.without_cost(), TaskReport::Failed(failure) if failure.code == EMPTY_ANSWER)
}
