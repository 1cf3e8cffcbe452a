//! Cancellation: a request that the code meets at its next wait, and may answer with compensation.
//!
//! A request interrupts every wait that is open, once; a running step is never interrupted, because nobody could say
//! whether it happened. If nothing was open, the next wait or step the code asks for is interrupted instead. After that
//! everything works again, so that compensation can run. Code that watches `canceled()` handles it by itself.
//!
//! While the code undoes what it did, a request is only recorded: the run is ending already, and an undo that is interrupted would be
//! left out.
//!
//! The code has *seen* a request once it was given the failure of a call that the request interrupted. A request that it has not seen
//! when it continues as new goes along, and interrupts the first wait or step of the next generation.

use std::collections::BTreeSet;

use super::call::{Answer, StepPhase, What};
use super::{Engine, Wake};
use crate::{Event, Failure, Index, Place};

#[derive(Debug, Default)]
pub(super) struct Cancel {
    reason: Option<String>,
    /// The request has not met any wait yet.
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
        self.seen |= self.interrupted.remove(place);
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
            let (index, failure) = (self.delivered.unwrap_or_default(), Failure::canceled(reason));
            call.answer = Answer::Ready { index, result: Err(failure), signal: None };
            self.cancel.interrupted.insert(place.clone());
        }
        place
    }

    pub(super) fn cancel_requested(&mut self, index: Index, reason: &str) -> Option<Wake> {
        if self.cancel.reason.is_some() {
            return None;
        }
        self.cancel.reason = Some(reason.to_owned());
        if self.cancel.undoing {
            return None;
        }
        let watchers: Vec<Place> = self.places(|what| matches!(what, What::Canceled));
        let interrupted = if watchers.is_empty() { self.places(is_interruptible) } else { watchers };
        self.cancel.due = interrupted.is_empty();
        for place in interrupted {
            self.interrupt(&place, index);
        }
        Some(Wake::All)
    }

    fn places(&self, chosen: impl Fn(&What) -> bool) -> Vec<Place> {
        let open = |answer: &Answer| !matches!(answer, Answer::Ready { .. });
        self.calls.iter().filter(|(_, call)| open(&call.answer) && chosen(&call.what)).map(|(place, _)| place.clone()).collect()
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

    pub(super) fn cancel_is_due(&self) -> bool {
        self.cancel.due
    }

    /// The request has waited for a call to meet: this one.
    pub(super) fn cancel_new_call(&mut self, place: &Place) {
        let meets = |what: &What| !matches!(what, What::Canceled);
        if !self.cancel.due || !self.calls.get(place).is_some_and(|call| meets(&call.what)) {
            return;
        }
        self.cancel.due = false;
        let index = self.delivered.unwrap_or_default();
        self.interrupt(place, index);
        self.wakes.push_back(Wake::Call(place.clone()));
    }
}

fn is_interruptible(what: &What) -> bool {
    match what {
        What::Step { phase, .. } => *phase == StepPhase::Backoff,
        What::Canceled => false,
        _ => true,
    }
}
