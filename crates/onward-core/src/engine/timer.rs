//! Timers: recorded wake-up times. Their firing is an input.

use super::call::{Call, What};
use super::{Engine, Wake};
use crate::log::event::TimerStarted;
use crate::{Failure, Index, Payload, Place, Timestamp};

impl Engine {
    pub fn start_timer(&mut self, due_at: Timestamp) -> Place {
        let place = self.next_place();
        let event = TimerStarted { place: place.clone(), due_at };
        self.open(place.clone(), What::Timer, Some(event.into()));
        place
    }

    /// Handles a fired timer: the end of a sleep or of a step's retry delay, or the deadline of an approval or promise.
    pub(super) fn timer_fired(&mut self, place: &Place, index: Index) -> Option<Wake> {
        match self.calls.get(place).map(|call: &Call| &call.what)? {
            What::Step { .. } => self.step_due(place),
            What::Approval { .. } => self.approval_expired(place, index),
            What::Promise { name } => {
                let failure = Failure { retryable: false, ..Failure::timed_out(&format!("promise `{name}`")) };
                self.answer(place, index, Err(failure))
            }
            _ => self.answer(place, index, Ok(Payload::null())),
        }
    }
}
