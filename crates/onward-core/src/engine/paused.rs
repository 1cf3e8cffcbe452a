//! Paused runs: the code stays at its horizon while the steps that were running finish.
//!
//! Owns the differences while the code must observe nothing and nothing may begin. The result of a step that finishes meanwhile
//! goes into a *commit while paused*: step results only, with the current horizon. On replay it has no effect on the code: it
//! records that the code had observed no more than this horizon when the step ran, so that the step is called again. The calls of
//! the code up to then go into the next regular commit.
//!
//! Invariant N7: everything that the code observed or called up to a horizon is recorded with that horizon, by either kind of
//! commit, before it observes more.

use super::{Advance, Engine, Fault};
use crate::{Event, Index, Record};

#[derive(Debug, Default)]
pub(super) struct PauseState {
    /// As of the last record that was fed.
    pub is_paused: bool,
    /// A commit was held back: it goes first when the run resumes.
    is_held: bool,
    /// The horizon of the last commit while paused (N7).
    recorded_at: Option<Index>,
}

impl PauseState {
    pub fn observe(&mut self, record: &Record) {
        match record.events.first() {
            Some(Event::RunPaused(_)) => self.is_paused = true,
            Some(Event::RunResumed(_)) => self.is_paused = false,
            _ => {}
        }
    }
}

impl Engine {
    /// Returns true if the run is paused, as of the last record that was fed.
    pub fn is_paused(&self) -> bool {
        self.pause_state.is_paused
    }

    /// Handles the rejection of the commit in flight because the run is paused. Feed the missing records before continuing.
    pub fn rejected_while_paused(&mut self) {
        self.take_back();
        self.out.retain(|event| !matches!(event, Event::RunSuspended(_)));
        // Observations of the code are not durable.
        self.polled = true;
        self.unsettled = true;
        self.poll_state.reopen();
        self.pause_state.is_held = true;
    }

    /// Returns the action that comes before new deliveries to the code; `None` if there is none.
    pub(super) fn advance_pause_state(&mut self) -> Option<Result<Advance, Fault>> {
        if self.pause_state.is_paused {
            // A log that ends in a pause is still replayed to its end.
            return self.was_live.then(|| Ok(self.commit_while_paused()));
        }
        let was_held = std::mem::take(&mut self.pause_state.is_held);
        let is_open = self.polled && self.pause_state.recorded_at != Some(self.horizon);
        (was_held && is_open).then(|| self.advance_quiescent()) // N7
    }

    pub(super) fn commit_while_paused(&mut self) -> Advance {
        let (results, calls): (Vec<Event>, Vec<Event>) =
            std::mem::take(&mut self.out).into_iter().partition(Event::is_step_result);
        self.out = calls;
        self.out_batch += 1;
        if !self.out.is_empty() {
            self.polled = true; // no step starts before this is durable (N2)
        }
        self.pause_state.is_held = true;
        if results.is_empty() {
            return Advance::Idle;
        }
        self.pause_state.recorded_at = Some(self.horizon);
        self.commit(results, false, true)
    }
}
