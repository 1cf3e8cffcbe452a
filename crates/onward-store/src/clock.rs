//! The two clocks: the one on the wall and the one a test holds in its hand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use onward_core::Timestamp;

use crate::Clock;

/// The wall clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970: everything is late then, nothing is early.
        Timestamp::default().after(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    pub fn new(now: Timestamp) -> ManualClock {
        ManualClock(AtomicU64::new(now.0))
    }

    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }

    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(onward_core::time::millis(span), Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Begins on a plausible day, so that spans can be subtracted.
    fn default() -> ManualClock {
        ManualClock::new(Timestamp(1_800_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}
