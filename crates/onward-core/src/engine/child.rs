//! Children: runs that this run starts and whose end is an input here.

use super::Engine;
use super::call::What;
use crate::event::{ChildStarted, OnParentClose};
use crate::{Event, Failure, Hash, Name, Payload, Place, RunId};

impl Engine {
    /// Starts a child. Without an id of its own it gets one from the parent's id and the call's place, so that
    /// every child has its own and a replay asks for the same.
    pub fn start_child(&mut self, kind: Name, input: Payload) -> Place {
        let place = self.next_place();
        let child = self.child_id(&place);
        let event = ChildStarted {
            place: place.clone(),
            child: child.clone(),
            kind: kind.clone(),
            version: None,
            input_hash: Hash::of(&input),
            input,
            on_parent_close: OnParentClose::Cancel,
        };
        // Here and not with the commit: the code may ask for its child's id at once.
        if let Some((child, adopted)) = self.adopt_child(&event) {
            self.open(place.clone(), What::Child { child, kind }, Some(adopted.into()));
            return place;
        }
        self.open(place.clone(), What::Child { child, kind }, Some(event.into()));
        place
    }

    /// A child that cannot be asked for: its call is answered with `failure`, and nothing is recorded.
    pub fn refuse_child(&mut self, kind: Name, failure: Failure) -> Place {
        let place = self.next_place();
        let child = self.child_id(&place);
        self.open_refused(place.clone(), What::Child { child, kind }, failure);
        place
    }

    /// Gives the child at `place` an id chosen by the code.
    pub fn set_child_id(&mut self, place: &Place, id: RunId) {
        if let Some(super::call::Call { what: What::Child { child, .. }, .. }) = self.calls.get_mut(place) {
            *child = id.clone();
        }
        self.configure(place, &mut |event| {
            if let Event::ChildStarted(event) = event {
                event.child = id.clone();
            }
        });
    }

    /// The run id of the child at `place`, while it is open; none where no child was asked for.
    pub fn child_of(&self, place: &Place) -> Option<RunId> {
        let call = self.calls.get(place)?;
        match &call.what {
            What::Child { child, .. } if call.is_asked() => Some(child.clone()),
            _ => None,
        }
    }

    fn child_id(&self, place: &Place) -> RunId {
        crate::reopen::child_id(&self.key().id, self.generation(), place)
    }

    /// The request of a child as the log has it: one from before there were families may know the child by another id, which counts.
    pub(super) fn with_recorded_child(&mut self, recorded: &Event, asked: Event) -> Event {
        let (Event::ChildStarted(recorded), Event::ChildStarted(event)) = (recorded, &asked) else { return asked };
        let (run, generation, place) = (&self.key().id, self.generation(), &event.place);
        let is_derived = event.child == self.child_id(place);
        if !is_derived || crate::reopen::old_child_id(run, generation, place).as_ref() != Some(&recorded.child) {
            return asked;
        }
        let mut event = event.clone();
        event.child = recorded.child.clone();
        if let Some(super::call::Call { what: What::Child { child, .. }, .. }) = self.calls.get_mut(&event.place) {
            *child = recorded.child.clone();
        }
        Event::ChildStarted(event)
    }

    /// Children that are started again have other ids from here on.
    pub(super) fn children_again(&mut self, children: Vec<crate::event::ChildAgain>) {
        for again in children {
            if let Some(super::call::Call { what: What::Child { child, .. }, .. }) = self.calls.get_mut(&again.place) {
                *child = again.child;
            }
        }
    }
}
