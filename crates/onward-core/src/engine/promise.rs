//! Promises: an id to hand out, and one result from outside.

use super::Engine;
use super::call::What;
use crate::log::event::PromiseCreated;
use crate::{Name, Place};

impl Engine {
    pub fn create_promise(&mut self, name: Name) -> Place {
        // The promise may be resolved at once, so it must be durable before a step hands out its id.
        self.polled = true;
        let place = self.next_place();
        let event = PromiseCreated { place: place.clone(), name: name.clone(), deadline: None };
        self.open(place.clone(), What::Promise { name }, Some(event.into()));
        place
    }
}
