//! Cancellation: a request that the code meets at its next wait, and may answer with compensation.
//!
//! A request interrupts every wait that is open, once; a running step is never interrupted, because nobody could say
//! whether it happened. If nothing was open, the next thing that the code waits for is interrupted instead. After that
//! everything works again, so that compensation can run. Code that watches `canceled()` handles it by itself: as long as somebody
//! watches, nothing else is interrupted.
//!
//! A step that was asked for and has not begun is interrupted like a wait. Whether it had begun is known only where the request was met
//! first, so it is recorded there: the commit that covers the request gives up the wait at the step's place, or it does not, and every
//! replay does what it says.
//!
//! Invariant N9: whether a request interrupts a step is decided once, by who knows that no attempt was begun, and durable before a step
//! starts because of it. Nobody knows that of a step that was asked for in a part of the log that another process may have had; but a run
//! that has recorded nothing has not begun.
//!
//! While the code undoes what it did, a request is only recorded: the run is ending already, and an undo that is interrupted would be
//! left out.
//!
//! The code has *seen* a request once it was given the failure of a call that the request interrupted. A request that it has not seen
//! when it continues as new goes along, and interrupts the first wait or step of the next generation.

use std::collections::BTreeSet;

use super::call::{Answer, Call, StepPhase, What};
use super::{Engine, Wake};
use crate::log::event::WaitCanceled;
use crate::{Event, Failure, Index, Place, Record};

#[derive(Debug, Default)]
pub(super) struct Cancel {
    reason: Option<String>,
    /// Where in the log it stands.
    index: Index,
    /// The request has not met any wait yet, but perhaps somebody who watches and has not seen it.
    due: bool,
    /// The calls it has interrupted, until the code takes their failure or drops them.
    interrupted: BTreeSet<Place>,
    seen: bool,
    /// The code undoes what it did: a request that comes now changes nothing.
    undoing: bool,
}

impl Cancel {
    /// The generation before was asked to stop.
    pub fn begin(&mut self, reason: Option<String>) {
        self.due = reason.is_some();
        self.reason = reason;
    }

    /// The request, if the code has not seen it.
    pub fn unseen(&self) -> Option<String> {
        self.reason.clone().filter(|_| !self.seen)
    }

    /// The code was given the answer of the call at `place`.
    pub fn taken(&mut self, place: &Place) {
        if self.interrupted.remove(place) {
            self.seen = true;
            self.due = false;
        }
    }

    pub fn dropped(&mut self, place: &Place) {
        self.interrupted.remove(place);
    }
}

impl Engine {
    pub fn is_canceled(&self) -> bool {
        self.cancel.reason.is_some()
    }

    /// From here on the code undoes what it did; no request to cancel interrupts that.
    pub fn begin_undo(&mut self) {
        self.cancel.undoing = true;
        self.cancel.due = false;
    }

    /// Waits for the request to cancel.
    pub fn await_canceled(&mut self) -> Place {
        let place = self.next_place();
        self.open(place.clone(), What::Canceled, None);
        if let (Some(reason), Some(call)) = (&self.cancel.reason, self.calls.get_mut(&place)) {
            let (index, failure) = (self.cancel.index, Failure::canceled(reason));
            call.answer = Answer::Ready { index, result: Err(failure), signal: None };
            self.cancel.interrupted.insert(place.clone());
        }
        place
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
            self.places(|_, what| matches!(what, What::Canceled))
        } else {
            self.places(|place, what| self.is_interruptible(place, what))
        };
        self.cancel.due = is_watched || interrupted.is_empty();
        for place in interrupted {
            self.interrupt(&place, index);
            self.give_up_step(&place);
        }
        Some(Wake::All)
    }

    fn places(&self, chosen: impl Fn(&Place, &What) -> bool) -> Vec<Place> {
        let open = |answer: &Answer| !matches!(answer, Answer::Ready { .. });
        let chosen = self.calls.iter().filter(|(place, call)| open(&call.answer) && chosen(place, &call.what));
        chosen.map(|(place, _)| place.clone()).collect()
    }

    /// Whether somebody watches for the request, or is about to see it.
    fn is_watched(&self) -> bool {
        self.calls.values().any(|call| matches!(call.what, What::Canceled))
    }

    fn is_interruptible(&self, place: &Place, what: &What) -> bool {
        match what {
            What::Step { phase: StepPhase::Idle { maybe_begun, .. }, .. } => {
                self.recorded_as_interrupted(place).unwrap_or(!maybe_begun) // N9
            }
            What::Step { phase, .. } => *phase == StepPhase::Backoff,
            What::Canceled => false,
            _ => true,
        }
    }

    /// What the log says of the step at `place`, which had not begun as far as is known here: whether the commit that covers the request
    /// gave it up. `None` if there is no such commit yet.
    fn recorded_as_interrupted(&self, place: &Place) -> Option<bool> {
        let has_run = |event: &Event| step_of(event) == Some(place);
        let queued = || self.queue.iter().map(|queued| &queued.record);
        let is_in_batch = self.batch.iter().any(|delivery| has_run(&delivery.event));
        if is_in_batch || self.expected.iter().chain(queued()).any(|record| record.events.iter().any(has_run)) {
            return Some(false);
        }
        let ahead = self.queue.iter().filter(|queued| !queued.matched).map(|queued| &queued.record);
        // A standing commit says nothing of what the code asked for (N7).
        let is_covering = |record: &&Record| record.commit.is_some_and(|commit| !commit.is_standing);
        let covering = self.expected.iter().chain(ahead).find(is_covering)?;
        Some(covering.events.iter().any(|event| matches!(event, Event::WaitCanceled(wait) if wait.place == *place)))
    }

    /// Records that the step at `place` was interrupted before it began.
    fn give_up_step(&mut self, place: &Place) {
        let what = self.calls.get(place).map(|call| &call.what);
        if matches!(what, Some(What::Step { phase: StepPhase::Idle { .. }, .. })) {
            self.out.push(WaitCanceled { place: place.clone() }.into());
            self.polled = true; // N9
        }
    }

    fn interrupt(&mut self, place: &Place, index: Index) {
        let failure = Failure::canceled(self.cancel.reason.as_deref().unwrap_or_default());
        self.mailbox.stop_waiting(place);
        let Some(call) = self.calls.get_mut(place) else { return };
        self.cancel.interrupted.insert(place.clone());
        let event: Option<Event> = call.give_up(place);
        let ready = Answer::Ready { index, result: Err(failure), signal: None };
        let before = std::mem::replace(&mut call.answer, ready);
        self.out.extend(event);
        if let Answer::Reserved(signal) = before {
            if let Some(places) = self.mailbox.reserved.get_mut(&signal.index) {
                places.retain(|other| other != place);
            }
            self.put_back(signal);
        }
    }

    /// Whether the next thing that the code waits for meets the request.
    pub(super) fn cancel_is_due(&self) -> bool {
        self.cancel.due && !self.is_watched()
    }

    /// The code waits for the call at `place`: a request that has met nobody meets it.
    pub(super) fn meet_cancel(&mut self, place: &Place) {
        if !self.cancel_is_due() {
            return;
        }
        let meets = |call: &Call| match (&call.what, &call.answer) {
            (_, Answer::Ready { .. }) => false,
            // One that was asked for before the request was spared for good: it ran.
            (What::Step { phase, .. }, _) => matches!(phase, StepPhase::Idle { behind_request: true, .. }),
            _ => true,
        };
        if self.calls.get(place).is_some_and(meets) {
            self.cancel.due = false;
            self.interrupt(place, self.delivered.unwrap_or_default());
        }
    }
}

/// The step whose attempt is over.
fn step_of(event: &Event) -> Option<&Place> {
    match event {
        Event::StepCompleted(step) => Some(&step.place),
        Event::StepFailed(step) => Some(&step.place),
        _ => None,
    }
}
