//! Detection of forward jumps of the system clock.
//!
//! Owns the time until which task leases are not expired after a jump. A task lease is stored with system time, since it outlives
//! the process; a forward jump would end all of them at once although their workers are alive. So none expires until each worker
//! had time to extend what it holds (F9).

use std::time::Duration;

use onward_core::Timestamp;
use onward_store::SESSION_DEFAULT;

/// Difference beyond normal drift of the two clocks.
const JUMP_MIN: Duration = Duration::from_secs(5);

#[derive(Default)]
pub(crate) struct ClockJumps {
    /// The last reading of both clocks.
    last: Option<(Timestamp, Timestamp)>,
    longest_lease: Duration,
    /// The steady time until which task leases are not expired.
    pub hold_until: Timestamp,
}

impl ClockJumps {
    pub fn lease_given(&mut self, lease: Duration) {
        self.longest_lease = self.longest_lease.max(lease);
    }

    /// Compares the system clock with the steady one; must be called often enough that the two do not drift apart in between.
    pub fn observe(&mut self, now: Timestamp, steady: Timestamp) {
        if let Some((then, then_steady)) = self.last.replace((now, steady))
            && now.since(then) > steady.since(then_steady) + JUMP_MIN
        {
            self.hold_until = steady.after(self.longest_lease.max(SESSION_DEFAULT));
        }
    }
}

#[cfg(test)]
mod tests;
