//! The store's clock: database time, or an injected clock in tests.
//!
//! The clock of the server decides nothing. Waiting for a due time needs the distance to it, so the offset between both clocks is
//! updated whenever the database time is read.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onward_core::Timestamp;
use onward_store::{Clock, SystemClock};

#[derive(Clone)]
pub(crate) struct StoreClock {
    given: Option<Arc<dyn Clock>>,
    seen: Arc<DatabaseClock>,
}

impl StoreClock {
    pub fn new(given: Option<Arc<dyn Clock>>) -> StoreClock {
        StoreClock { given, seen: Arc::default() }
    }

    /// Returns the time for a decision, given the database time that was just read, and updates the offset.
    pub fn now(&self, clock_micros: i64) -> Timestamp {
        let database_time = Timestamp((clock_micros / 1000).max(0) as u64);
        self.seen.learn(database_time, SystemClock.now());
        self.given.as_ref().map_or(database_time, |clock| clock.now())
    }

    /// Returns a clock that approximates the database time without a query, for waiting.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.given.clone().unwrap_or_else(|| self.seen.clone())
    }
}

/// The clock of this machine, corrected by the last known offset to the database clock.
#[derive(Default)]
struct DatabaseClock {
    ahead_ms: AtomicI64,
}

impl DatabaseClock {
    fn learn(&self, database_time: Timestamp, here: Timestamp) {
        self.ahead_ms.store(database_time.0.cast_signed().wrapping_sub(here.0.cast_signed()), Ordering::Relaxed);
    }

    fn correct(&self, here: Timestamp) -> Timestamp {
        Timestamp(here.0.saturating_add_signed(self.ahead_ms.load(Ordering::Relaxed)))
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        self.correct(SystemClock.now())
    }

    fn steady(&self) -> Timestamp {
        SystemClock.steady()
    }
}

#[cfg(test)]
mod tests;
