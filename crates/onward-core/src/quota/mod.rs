//! Quotas: what a namespace may use of a server.
//!
//! Owns every decision about a quota. A store counts rows (open runs, leases, costs) and asks here, in the write that it limits.
//! Must never count: a number that follows from rows cannot be wrong after a crash.
//!
//! Invariants:
//! - NQ1 (L26): a caller or a schedule starts a run only while the namespace has fewer open runs than its quota. Children of runs
//!   count and are never refused, because that would fail a commit. Internal runs do not count.
//! - NQ2 (L26): in no span of one period do callers and schedules start more runs than the start rate permits.
//! - NQ3 (L26): a lease of a task is given only while the namespace holds fewer leases than its quota.
//! - NQ4 (L26): an attempt with a cost begins only while the recorded cost of the UTC day is below the quota. So a quota is
//!   exceeded at most by attempts that were under way when it was reached.
//! - NQ5 (L26): what a quota refuses has written nothing, and nothing of another namespace is counted or refused.
//! - NQ6: no payload that callers or workers bring into a namespace is larger than its quota permits.
//! - NQ7: a quota that is lowered ends no run and takes no lease away.

pub mod settings;
pub mod usage;

pub use settings::{QUOTA_KIND, QuotaSettings};
pub use usage::{QuotaUsage, QuotaUse};

use crate::event::RunStarted;
use crate::internal::InternalRuns;
use crate::queue::QueueStarts;
use crate::schedule_run::schedule_of;
use crate::spend::{PicoDollars, day_of};
use crate::{Event, Name, RunKey, Timestamp, message, numbered};

/// After this time a start that was refused because of open runs may be repeated: when one of them ends is not known.
const OPEN_RUNS_WAIT_MS: u64 = 1_000;

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

numbered! {
    /// A limit of a quota that refuses starts.
    pub enum QuotaLimit {
        0 => RunsOpen / "runs_open_max",
        1 => StartRate / "start_rate",
    }
}

message! {
    /// A limit that refuses a start.
    #[derive(Eq)]
    pub struct Exceeded {
        1 => limit: QuotaLimit,
        /// The value of the limit.
        2 => max: u64,
        /// After which time the same start may succeed.
        3 => retry_after_ms: u64,
    }
}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self.limit {
            QuotaLimit::RunsOpen => "open runs",
            QuotaLimit::StartRate => "starts in a period",
        };
        write!(f, "{} {what} (`{}`)", self.max, self.limit.as_str())
    }
}

/// Returns true if quotas may refuse the start: a caller or a schedule makes it (NQ1).
pub fn is_limited_start(key: &RunKey, started: &RunStarted) -> bool {
    let is_of_run = started.parent.as_ref().is_some_and(|parent| schedule_of(&parent.run.id).is_none());
    !is_of_run && InternalRuns::of(&key.id).is_none()
}

/// Returns true if the payloads of the input come from outside of all runs. What one run sends to another is in a log already, and
/// refusing it would leave the other waiting (NQ6).
pub fn is_from_outside(event: &Event) -> bool {
    match event {
        Event::SignalReceived(signal) => signal.sender.is_none(),
        Event::ApprovalDecided(_)
        | Event::PromiseResolved(_)
        | Event::UpdateReceived(_)
        | Event::BranchRequested(_)
        | Event::ExternalAppended(_)
        | Event::ScheduleDecided(_) => true,
        _ => false,
    }
}

/// Returns true if an open run of the kind counts (NQ1).
pub fn counts(kind: &Name) -> bool {
    InternalRuns::of_kind(kind).is_none()
}

/// Returns the first millisecond of the next UTC day, from which on other costs count.
pub fn next_day(now: Timestamp) -> Timestamp {
    Timestamp((u64::from(day_of(now)) + 1) * DAY_MS)
}

impl QuotaSettings {
    /// Decides about the start of one run, while `open` runs are open; `starts` began lately. Nothing beyond
    /// [`QuotaSettings::open_max`] need be counted.
    pub fn admit_start(&self, open: u64, starts: Option<&QueueStarts>, now: Timestamp) -> Result<(), Exceeded> {
        if let Some(max) = self.open_max()
            && open >= max
        {
            // NQ1
            let max = self.runs_open_max.unwrap_or(max);
            return Err(Exceeded { limit: QuotaLimit::RunsOpen, max, retry_after_ms: OPEN_RUNS_WAIT_MS });
        }
        if let Some((rate, starts)) = self.start_rate.as_ref().zip(starts)
            && let Some(opens_at) = starts.opens_at(rate, self.own_starts(rate), now)
        {
            // NQ2
            let retry_after_ms = crate::time::millis(opens_at.since(now)).max(1);
            return Err(Exceeded { limit: QuotaLimit::StartRate, max: u64::from(rate.starts_max), retry_after_ms });
        }
        Ok(())
    }

    /// Returns how many of `wanted` tasks may be leased while `held` leases exist (NQ3). Nothing beyond
    /// [`QuotaSettings::leases_max`] need be counted.
    pub fn task_room(&self, held: u32, wanted: usize) -> usize {
        self.leases_max().map_or(wanted, |max| wanted.min(max.saturating_sub(held) as usize))
    }

    /// Returns whether an attempt with a cost may begin on a day on which `spent` was recorded (NQ4).
    pub fn may_spend(&self, spent: PicoDollars) -> bool {
        self.own_spend().is_none_or(|max| spent < max)
    }

    /// Returns the largest payload that may enter the namespace, on a server with its own limit (NQ6).
    pub fn payload_max(&self, of_server: usize) -> usize {
        let own = self.payload_bytes_max.and_then(|max| usize::try_from(max).ok());
        own.map_or(of_server, |max| max.min(of_server))
    }

    /// Returns what is used, beside the limits.
    pub fn usage(&self, used: QuotaUse, now: Timestamp) -> QuotaUsage {
        let rate = self.start_rate.as_ref().zip(used.starts.as_ref());
        let room = rate.map(|(rate, starts)| (rate.starts_max, starts.room(rate, rate.starts_max, now)));
        QuotaUsage {
            runs_open: used.runs_open,
            starts: room.map_or(0, |(max, room)| u64::from(max.saturating_sub(room))),
            starts_open_at: rate.and_then(|(rate, starts)| starts.opens_at(rate, rate.starts_max, now)),
            tasks_running: used.tasks_running,
            spent_today: used.spent_today,
            day_ends_at: next_day(now),
        }
    }
}

#[cfg(test)]
mod tests;
