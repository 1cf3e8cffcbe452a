//! Delayed starts: runs that exist at once and whose code begins at a later time.
//!
//! The time is recorded with the start, as a time or as a delay after it. Until then the run waits: it has its id, receives inputs
//! and can be read, paused and ended. A timer row under [`start_call`], an id that no call of the code has, appends `run_begun`
//! when the store's clock has reached the time, and the code observes nothing before that event.
//!
//! Invariants:
//! - DS1: no worker gets the run and no commit is accepted before `run_begun`, and no replay polls the code before it: `now()` is at
//!   or after the start time.
//! - DS2: `run_begun` is appended once, by the timer, not before its time and not while the run is paused.
//! - DS3: the start time is a point in time: pauses, copies and imports do not move it, and a time that has passed begins the run at
//!   once.
//! - DS4: inputs before `run_begun` are kept and do not wake the run. A cancellation request ends it in the same write, because there
//!   is no code that could compensate.
//! - DS5: the deadline of the run and the time limit of its budget count from `run_begun`.

use std::time::Duration;

use super::{Effect, RunHead};
use crate::log::event::{RunBegun, RunCanceled, RunStarted};
use crate::time::millis;
use crate::{CallId, Event, Failure, Timestamp};

/// The last start time: 9999-12-31T23:59:59.999Z.
pub const START_AT_MAX: Timestamp = Timestamp(253_402_300_799_999);
/// The longest delay of a start, in milliseconds: 1,000 years of 365 days.
pub const START_AFTER_MS_MAX: u64 = 1_000 * 365 * 86_400_000;

/// Returns the id under which the timer of a start is stored; see [`super::deadline::deadline_call`].
pub fn start_call() -> CallId {
    CallId::root(u32::MAX - 1)
}

/// Returns the reason if the time of a start is not acceptable.
pub fn start_fault(at: Option<Timestamp>, after_ms: Option<u64>) -> Option<&'static str> {
    match (at, after_ms) {
        (Some(_), Some(_)) => Some("it has both a time and a delay"),
        (Some(at), None) if at > START_AT_MAX => Some("the time is after the year 9999"),
        (None, Some(after_ms)) if after_ms > START_AFTER_MS_MAX => Some("the delay is longer than 1,000 years"),
        _ => None,
    }
}

impl RunStarted {
    /// Returns the time from which on the code of a run may begin that was started `at`; `None` if it begins at once.
    pub fn begins_at(&self, at: Timestamp) -> Option<Timestamp> {
        let after = || self.start_after_ms.map(|delay| at.after(Duration::from_millis(delay)));
        let begins_at = self.start_at.or_else(after).filter(|begins_at| *begins_at > at);
        match &self.queue {
            Some(queue) if !queue.is_held => begins_at.or(Some(at)), // RQ2
            _ => begins_at,
        }
    }
}

impl RunHead {
    /// Returns the timer of the start; none for a run that has begun, or that a queue lets in.
    pub(super) fn start_timer(&self) -> Option<Effect> {
        self.starts_at.filter(|_| self.queue.is_none()).map(|due_at| Effect::StartTimer { call_id: start_call(), due_at })
    }

    /// Returns the event that is recorded for an input: a run that has not begun ends when it is canceled (DS4). One that has code
    /// in a copied log compensates once it begins.
    pub(super) fn recorded_as(&self, event: Event, at: Timestamp) -> Event {
        match (event, self.starts_at) {
            (Event::CancelRequested(request), Some(_)) if !self.has_history() => {
                RunCanceled { failure: Failure { retryable: false, ..Failure::canceled(&request.reason) } }.into()
            }
            (Event::RunBegun(_), Some(starts_at)) if self.has_history() => {
                RunBegun { waited_ms: Some(millis(at.since(starts_at))) }.into()
            }
            (event, _) => event,
        }
    }

    /// Updates the start by an input; `self` is the head before it.
    pub(super) fn follow_start(&mut self, event: &Event, at: Timestamp) {
        if let Event::RunBegun(_) = event
            && let Some(starts_at) = self.starts_at.take()
        {
            self.deadline_at = self.deadline_at.map(|due_at| due_at.after(at.since(starts_at))); // DS5
        }
    }
}

#[cfg(test)]
mod tests;
