//! The two clocks: the one on the wall and the one a test holds in its hand.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

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

    fn steady(&self) -> Timestamp {
        static BEGUN: OnceLock<(Timestamp, Instant)> = OnceLock::new();
        let (at, begun) = BEGUN.get_or_init(|| (self.now(), Instant::now()));
        at.after(begun.elapsed())
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Debug)]
pub struct ManualClock {
    now: AtomicU64,
    /// How far the clock on the wall is ahead of the steady one, because it was set ([`ManualClock::jump`]).
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

    /// Sets the clock forward or back by so many milliseconds, as an operator may: no time passes.
    pub fn jump(&self, millis: i64) {
        self.ahead.fetch_add(millis, Ordering::SeqCst);
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
        Timestamp(self.now.load(Ordering::SeqCst).saturating_add_signed(self.ahead.load(Ordering::SeqCst)))
    }

    fn steady(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }
}
