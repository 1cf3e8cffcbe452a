//! A run that is paused: it stands at its horizon while the steps that were running go on.
//!
//! Owns what is different while nothing may be shown to the code and nothing may begin. A result that a step brings meanwhile goes into
//! a *standing commit*: step results alone, with the horizon at which the run stands. On replay it does to the code what it did live,
//! nothing: it says that the code had seen no more than its horizon when the step ran, so that the step is asked for again. What the
//! code had asked for by then goes out with the next commit that is not standing.
//!
//! Invariant N7: what the code saw or asked for up to a horizon is on record with that horizon, by whichever commit, before more is
//! shown to it.

use super::{Advance, Engine, Fault};
use crate::{Event, Index, Record};

#[derive(Debug, Default)]
pub(super) struct Standing {
    /// As of the last record that was fed.
    pub is_paused: bool,
    /// Something was held back: it goes first when the run goes on.
    is_held: bool,
    /// The horizon of the last standing commit (N7).
    recorded_at: Option<Index>,
}

impl Standing {
    pub fn hear(&mut self, record: &Record) {
        match record.events.first() {
            Some(Event::RunPaused(_)) => self.is_paused = true,
            Some(Event::RunResumed(_)) => self.is_paused = false,
            _ => {}
        }
    }
}

impl Engine {
    /// Whether the run is paused, as far as it was fed.
    pub fn is_paused(&self) -> bool {
        self.standing.is_paused
    }

    /// The store refused the commit in flight because the run is paused. Feed what is missing before going on.
    pub fn stand(&mut self) {
        self.take_back();
        self.out.retain(|event| !matches!(event, Event::RunSuspended(_)));
        // What the code saw is not durable, whatever it was.
        self.polled = true;
        self.unsettled = true;
        self.looks.reopen();
        self.standing.is_held = true;
    }

    /// Goes before anything new is shown to the code; `None` when nothing stands in the way of that.
    pub(super) fn advance_standing(&mut self) -> Option<Result<Advance, Fault>> {
        if self.standing.is_paused {
            // A log that ends in a pause is still replayed to its end.
            return self.was_live.then(|| Ok(self.stand_still()));
        }
        let was_held = std::mem::take(&mut self.standing.is_held);
        let is_open = self.polled && self.standing.recorded_at != Some(self.horizon);
        (was_held && is_open).then(|| self.rest()) // N7
    }

    pub(super) fn stand_still(&mut self) -> Advance {
        let (results, asked): (Vec<Event>, Vec<Event>) =
            std::mem::take(&mut self.out).into_iter().partition(Event::is_step_result);
        self.out = asked;
        self.out_batch += 1;
        if !self.out.is_empty() {
            self.polled = true; // no step starts before this is durable (N2)
        }
        self.standing.is_held = true;
        if results.is_empty() {
            return Advance::Idle;
        }
        self.standing.recorded_at = Some(self.horizon);
        self.commit(results, false, true)
    }
}
