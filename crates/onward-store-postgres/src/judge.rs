//! What time it is: the database says so, or a test.
//!
//! A server's own clock decides nothing. But whoever waits for a moment must know how far away it is, so the difference between the two
//! clocks is remembered each time the database tells its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use onward_core::Timestamp;
use onward_store::{Clock, SystemClock};

#[derive(Clone)]
pub(crate) struct Judge {
    given: Option<Arc<dyn Clock>>,
    seen: Arc<DatabaseClock>,
}

impl Judge {
    pub fn new(given: Option<Arc<dyn Clock>>) -> Judge {
        Judge { given, seen: Arc::default() }
    }

    /// The time at which something is decided, when the database has just told its own.
    pub fn now(&self, clock_micros: i64) -> Timestamp {
        let told = Timestamp((clock_micros / 1000).max(0) as u64);
        self.seen.learn(told, SystemClock.now());
        self.given.as_ref().map_or(told, |clock| clock.now())
    }

    /// About the same time without asking, for who waits.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.given.clone().unwrap_or_else(|| self.seen.clone())
    }
}

/// The clock of this machine, corrected by how much the database's differed when it was last heard.
#[derive(Default)]
struct DatabaseClock {
    ahead_ms: AtomicI64,
}

impl DatabaseClock {
    fn learn(&self, told: Timestamp, here: Timestamp) {
        self.ahead_ms.store(told.0.cast_signed().wrapping_sub(here.0.cast_signed()), Ordering::Relaxed);
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
mod tests {
    use super::*;

    /// A machine whose clock is an hour off waits for what is due as long as any other.
    #[test]
    fn a_clock_that_is_off_is_corrected_by_what_the_database_says() {
        for here in [Timestamp(1_000), Timestamp(10_000_000)] {
            let clock = DatabaseClock::default();
            clock.learn(Timestamp(3_600_000), here);
            assert_eq!(clock.correct(here.after(std::time::Duration::from_secs(1))), Timestamp(3_601_000));
        }
    }
}
