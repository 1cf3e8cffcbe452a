//! The deadline of a run: a time limit after which it is canceled and may compensate.
//!
//! The limit is recorded with the start. The time at which it passes is a timer row under [`deadline_call`], an id that no call of
//! the code has. When that timer is due, the run gets a cancellation request instead of the firing of a timer.
//!
//! Invariants:
//! - RD1: a run gets at most one request from its deadline, not before its time, and none after its end.
//! - RD2: a pause does not count: the deadline is later by its length, as every timer (K4).
//! - RD3: later generations and copies have what was left of the limit where they continue (Z4).
//! - RD4: no commit can start, stop or replace the timer of the deadline.

use super::delayed_start::start_call;
use super::{Effect, Input, RunHead, Status};
use crate::log::event::{CancelRequested, RunBegun, TimerFired};
use crate::time::millis;
use crate::{CallId, Event, Timestamp};

/// Returns the id under which the timer of a deadline is stored. The code would have to make four billion calls to reach it.
pub fn deadline_call() -> CallId {
    CallId::root(u32::MAX)
}

impl RunHead {
    /// Returns the input of the timer at `call_id`, which is due.
    pub fn timer_input(&self, call_id: CallId) -> Input {
        if let Some(due) = self.schedule_due() {
            return due;
        }
        let event: Event = if call_id == deadline_call() {
            CancelRequested { is_deadline: true, ..CancelRequested::new("its deadline has passed".to_owned()) }.into()
        } else if call_id == start_call() {
            RunBegun::default().into()
        } else {
            TimerFired { call_id }.into()
        };
        Input::outcome(event, self.generation)
    }

    /// Returns the timer of the deadline; none for a run that has no deadline, has passed it, or has not begun (DS5).
    pub(super) fn deadline_timer(&self) -> Option<Effect> {
        let due_at = self.deadline_at.filter(|_| self.starts_at.is_none());
        due_at.map(|due_at| Effect::StartTimer { call_id: deadline_call(), due_at })
    }

    /// Returns what is left of the limit at `at`, for the next generation (RD3).
    pub(super) fn deadline_left(&self, at: Timestamp) -> Option<u64> {
        self.deadline_at.map(|due_at| millis(due_at.since(at)))
    }

    /// Updates the deadline by an input; `self` is the head before it.
    pub(super) fn follow_deadline(&mut self, event: &Event, at: Timestamp) {
        if self.starts_at.is_some() {
            return; // DS5
        }
        let paused_at = self.paused_at.filter(|_| self.status == Status::Paused);
        match (event, paused_at) {
            (Event::CancelRequested(event), _) if event.is_deadline => self.deadline_at = None, // RD1
            (Event::RunResumed(_), Some(paused_at)) => self.delay_deadline(paused_at, at),      // RD2
            // The gap is part of the pause of a run that is paused.
            (Event::RunForked(_) | Event::RetryRequested(_), None) => self.delay_deadline(self.updated_at, at), // RD3
            _ => {}
        }
    }

    fn delay_deadline(&mut self, from: Timestamp, until: Timestamp) {
        self.deadline_at = self.deadline_at.map(|due_at| due_at.after(until.since(from)));
    }
}

#[cfg(test)]
mod tests;
