//! Cancellation: a request that interrupts the code at its next wait, and after which the code may compensate.
//!
//! A request interrupts every open wait, once; a running step is never interrupted, because its outcome would be unknown. If
//! nothing was open, the next wait is interrupted instead. After that everything works again, so that compensation can run. Code
//! that awaits `canceled()` handles the request itself: as long as such a call is open, nothing else is interrupted.
//!
//! A step that was called and has not begun is interrupted like a wait. Only the process that first observes the request knows
//! whether the step had begun, so the decision is recorded: the commit that covers the request cancels the wait at the step's
//! call id, or it does not, and every replay follows it.
//!
//! Invariant N9: whether a request interrupts a step is decided once, by the process that knows that no attempt was begun, and is
//! durable before a step starts because of it. This is unknown for a step that was called in a part of the log that another
//! process may have executed; but a run that has recorded nothing has not begun.
//!
//! While the code compensates, a request is only recorded: the run is ending already, and an interrupted compensation would be
//! lost.
//!
//! The code has *observed* a request once it received the failure of an interrupted call. A request that it has not observed when
//! it continues as new is carried over, and interrupts the first wait or step of the next generation.

use std::collections::BTreeSet;

use super::call::{Call, CallDetails, CallState, StepPhase};
use super::{Engine, Wake};
use crate::log::event::WaitCanceled;
use crate::{CallId, Event, Failure, Index, Record};

#[derive(Debug, Default)]
pub(super) struct Cancel {
    reason: Option<String>,
    /// The index of the request.
    index: Index,
    /// The request has not interrupted any wait yet, except perhaps a `canceled()` that the code has not observed.
    due: bool,
    /// The interrupted calls, until the code takes their failure or drops them.
    interrupted: BTreeSet<CallId>,
    seen: bool,
    /// The code compensates: a request has no effect now.
    undoing: bool,
}

impl Cancel {
    /// Begins with the request of the generation before, if any.
    pub fn begin(&mut self, reason: Option<String>) {
        self.due = reason.is_some();
        self.reason = reason;
    }

    /// Returns the request, if the code has not observed it.
    pub fn unseen(&self) -> Option<String> {
        self.reason.clone().filter(|_| !self.seen)
    }

    /// Records that the code received the answer of the call at `call_id`.
    pub fn taken(&mut self, call_id: &CallId) {
        if self.interrupted.remove(call_id) {
            self.seen = true;
            self.due = false;
        }
    }

    pub fn dropped(&mut self, call_id: &CallId) {
        self.interrupted.remove(call_id);
    }
}

impl Engine {
    pub fn is_canceled(&self) -> bool {
        self.cancel.reason.is_some()
    }

    /// Begins the compensation, which no cancellation request interrupts.
    pub fn begin_undo(&mut self) {
        self.cancel.undoing = true;
        self.cancel.due = false;
    }

    /// Waits for a cancellation request.
    pub fn await_canceled(&mut self) -> CallId {
        let call_id = self.next_call_id();
        self.open(call_id.clone(), CallDetails::Canceled, None);
        if let (Some(reason), Some(call)) = (&self.cancel.reason, self.calls.get_mut(&call_id)) {
            let (index, failure) = (self.cancel.index, Failure::canceled(reason));
            call.answer = CallState::Ready { index, result: Err(failure), signal: None };
            self.cancel.interrupted.insert(call_id.clone());
        }
        call_id
    }

    pub(super) fn cancel_requested(&mut self, index: Index, reason: &str) -> Option<Wake> {
        if self.cancel.reason.is_some() {
            return None;
        }
        (self.cancel.reason, self.cancel.index) = (Some(reason.to_owned()), index);
        if self.cancel.undoing {
            return None;
        }
        let is_watched = self.is_watched();
        let interrupted = if is_watched {
            self.call_ids(|_, what| matches!(what, CallDetails::Canceled))
        } else {
            self.call_ids(|call_id, what| self.is_interruptible(call_id, what))
        };
        self.cancel.due = is_watched || interrupted.is_empty();
        for call_id in interrupted {
            self.interrupt(&call_id, index);
            self.give_up_step(&call_id);
        }
        Some(Wake::All)
    }

    fn call_ids(&self, chosen: impl Fn(&CallId, &CallDetails) -> bool) -> Vec<CallId> {
        let open = |answer: &CallState| !matches!(answer, CallState::Ready { .. });
        let chosen = self.calls.iter().filter(|(call_id, call)| open(&call.answer) && chosen(call_id, &call.what));
        chosen.map(|(call_id, _)| call_id.clone()).collect()
    }

    /// Returns true if a `canceled()` call is open or not observed yet.
    fn is_watched(&self) -> bool {
        self.calls.values().any(|call| matches!(call.what, CallDetails::Canceled))
    }

    fn is_interruptible(&self, call_id: &CallId, what: &CallDetails) -> bool {
        match what {
            CallDetails::Step { phase: StepPhase::Idle { maybe_begun, .. }, .. } => {
                self.recorded_as_interrupted(call_id).unwrap_or(!maybe_begun) // N9
            }
            CallDetails::Step { phase, .. } => matches!(phase, StepPhase::Backoff | StepPhase::Asks),
            CallDetails::Canceled => false,
            _ => true,
        }
    }

    /// Returns true if the commit that covers the request canceled the step at `call_id`, which had not begun as far as known here;
    /// `None` if there is no such commit yet.
    fn recorded_as_interrupted(&self, call_id: &CallId) -> Option<bool> {
        let has_run = |event: &Event| event.is_step_result() && event.call_id() == Some(call_id);
        let queued = || self.queue.iter().map(|queued| &queued.record);
        let is_in_batch = self.batch.iter().any(|delivery| has_run(&delivery.event));
        if is_in_batch || self.expected.iter().chain(queued()).any(|record| record.events.iter().any(has_run)) {
            return Some(false);
        }
        let ahead = self.queue.iter().filter(|queued| !queued.matched).map(|queued| &queued.record);
        // A commit while paused has no calls of the code (N7).
        let is_covering = |record: &&Record| record.commit.is_some_and(|commit| !commit.is_while_paused);
        let covering = self.expected.iter().chain(ahead).find(is_covering)?;
        Some(covering.events.iter().any(|event| matches!(event, Event::WaitCanceled(wait) if wait.call_id == *call_id)))
    }

    /// Records that the step at `call_id` was interrupted before it began.
    fn give_up_step(&mut self, call_id: &CallId) {
        let what = self.calls.get(call_id).map(|call| &call.what);
        if matches!(what, Some(CallDetails::Step { phase: StepPhase::Idle { .. }, .. })) {
            self.out.push(WaitCanceled { call_id: call_id.clone() }.into());
            self.polled = true; // N9
        }
    }

    fn interrupt(&mut self, call_id: &CallId, index: Index) {
        let failure = Failure::canceled(self.cancel.reason.as_deref().unwrap_or_default());
        self.mailbox.stop_waiting(call_id);
        let Some(call) = self.calls.get_mut(call_id) else { return };
        self.cancel.interrupted.insert(call_id.clone());
        let events = call.give_up(call_id);
        let ready = CallState::Ready { index, result: Err(failure), signal: None };
        let before = std::mem::replace(&mut call.answer, ready);
        self.out.extend(events);
        if let CallState::Reserved(signal) = before {
            if let Some(call_ids) = self.mailbox.reserved.get_mut(&signal.index) {
                call_ids.retain(|other| other != call_id);
            }
            self.put_back(signal);
        }
    }

    /// Returns true if the request interrupts the next wait of the code.
    pub(super) fn cancel_is_due(&self) -> bool {
        self.cancel.due && !self.is_watched()
    }

    /// Interrupts the wait for the call at `call_id` if the request has not interrupted any yet.
    pub(super) fn meet_cancel(&mut self, call_id: &CallId) {
        if !self.cancel_is_due() {
            return;
        }
        let meets = |call: &Call| match (&call.what, &call.answer) {
            (_, CallState::Ready { .. }) => false,
            // A step that was called before the request was not interrupted then: it ran.
            (CallDetails::Step { phase, .. }, _) => {
                matches!(phase, StepPhase::Idle { behind_request: true, .. } | StepPhase::Asks)
            }
            _ => true,
        };
        if self.calls.get(call_id).is_some_and(meets) {
            self.cancel.due = false;
            self.interrupt(call_id, self.delivered.unwrap_or_default());
        }
    }
}
