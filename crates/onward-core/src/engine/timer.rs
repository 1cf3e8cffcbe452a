//! Timers: recorded wake-up times. Their firing is an input.

use super::call::{Call, CallDetails};
use super::{Engine, Wake};
use crate::log::event::TimerStarted;
use crate::{CallId, Failure, Index, Payload, Timestamp};

impl Engine {
    pub fn start_timer(&mut self, due_at: Timestamp) -> CallId {
        let call_id = self.next_call_id();
        let event = TimerStarted { call_id: call_id.clone(), due_at };
        self.open(call_id.clone(), CallDetails::Timer, Some(event.into()));
        call_id
    }

    /// Handles a fired timer: the end of a sleep or of a step's retry delay, or the deadline of an approval or promise.
    pub(super) fn timer_fired(&mut self, call_id: &CallId, index: Index) -> Option<Wake> {
        match self.calls.get(call_id).map(|call: &Call| &call.what)? {
            CallDetails::Step { .. } => self.step_due(call_id),
            CallDetails::Approval { .. } => self.approval_expired(call_id, index),
            CallDetails::Promise { name } => {
                let failure = Failure { retryable: false, ..Failure::timed_out(&format!("promise `{name}`")) };
                self.answer(call_id, index, Err(failure))
            }
            _ => self.answer(call_id, index, Ok(Payload::null())),
        }
    }
}
