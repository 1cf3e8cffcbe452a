//! Implementations of [`Clock`]: the system clock, and a manual one for tests.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use onward_core::Timestamp;

use crate::Clock;

#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        // A clock set before 1970 reads as 1970: due times are then late, never early.
        Timestamp::default().after(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
    }

    fn steady(&self) -> Timestamp {
        static BEGUN: OnceLock<(Timestamp, Instant)> = OnceLock::new();
        let (at, begun) = BEGUN.get_or_init(|| (self.now(), Instant::now()));
        at.after(begun.elapsed())
    }
}

/// A clock that moves only when a test sets or advances it.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    /// Offset of `now` from `steady` in milliseconds, changed by [`ManualClock::jump`].
    ahead: AtomicI64,
}

impl ManualClock {
    pub fn new(now: Timestamp) -> ManualClock {
        ManualClock { now: AtomicU64::new(now.0), ahead: AtomicI64::new(0) }
    }

    pub fn set(&self, now: Timestamp) {
        self.now.store(now.0, Ordering::SeqCst);
    }

    pub fn advance(&self, span: Duration) {
        self.now.fetch_add(onward_core::time::millis(span), Ordering::SeqCst);
    }

    /// Sets `now` forward or back by `millis` without advancing `steady`, as when an operator sets the system clock.
    pub fn jump(&self, millis: i64) {
        self.ahead.fetch_add(millis, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    /// Starts at a plausible date, so that durations can be subtracted from it.
    fn default() -> ManualClock {
        ManualClock::new(Timestamp(1_800_000_000_000))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst).saturating_add_signed(self.ahead.load(Ordering::SeqCst)))
    }

    fn steady(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }
}
