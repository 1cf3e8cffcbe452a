//! Queries that an idle server can skip.
//!
//! A server polls once a second for due work, outbox messages and claimable work, and mostly there is none. The query for due
//! work also returns whether the others exist; while that result is fresh and no notification came since, the other queries are
//! answered without the database. Must never hide work for longer than one polling interval: only a server that receives
//! notifications relies on the result, and a write through this server invalidates it before the caller gets a response.

use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use onward_store::Change;
use onward_store::sync;

/// Slightly more than the polling interval.
const FRESH_FOR: Duration = Duration::from_millis(1_500);

/// Sort of work that may be waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkKind {
    Deliveries,
    Runs,
    Tasks,
}

/// Result of the query for due work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PendingWork {
    pub outbox_messages: bool,
    pub runs: bool,
    pub tasks: bool,
}

#[derive(Default)]
pub(crate) struct IdleCache(Mutex<IdleCacheState>);

#[derive(Default)]
struct IdleCacheState {
    /// Number of invalidations.
    count: u64,
    last: Option<(Instant, PendingWork)>,
}

impl IdleCache {
    fn lock(&self) -> MutexGuard<'_, IdleCacheState> {
        sync::lock(&self.0)
    }

    /// Begins a query; must be called before it is sent.
    pub fn begin(&self) -> u64 {
        self.lock().count
    }

    /// Stores the result, unless it was invalidated since the query began.
    pub fn end(&self, begun: u64, found: PendingWork) {
        let mut state = self.lock();
        if state.count == begun {
            state.last = Some((Instant::now(), found));
        }
    }

    /// Invalidates the stored result.
    pub fn invalidate(&self) {
        let mut state = self.lock();
        state.count += 1;
        state.last = None;
    }

    pub fn invalidate_by(&self, changes: &[Change]) {
        let invalidates = |item: &Change| !matches!(item, Change::Appended { .. } | Change::DueAt(_) | Change::HeldBack { .. });
        if changes.iter().any(invalidates) {
            self.invalidate();
        }
    }

    /// Returns whether a fresh result shows that no such work waits.
    pub fn is_quiet(&self, what: WorkKind) -> bool {
        let state = self.lock();
        let found = state.last.filter(|(at, _)| at.elapsed() < FRESH_FOR).map(|(_, found)| found);
        found.is_some_and(|found| match what {
            WorkKind::Deliveries => !found.outbox_messages,
            WorkKind::Runs => !found.runs,
            WorkKind::Tasks => !found.tasks,
        })
    }
}

#[cfg(test)]
mod tests;
