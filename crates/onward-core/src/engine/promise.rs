//! Promises: an id to hand out, and one result from outside.

use super::Engine;
use super::call::CallDetails;
use crate::log::event::PromiseCreated;
use crate::{CallId, Name};

impl Engine {
    pub fn create_promise(&mut self, name: Name) -> CallId {
        // The promise may be resolved at once, so it must be durable before a step hands out its id.
        self.polled = true;
        let call_id = self.next_call_id();
        let event = PromiseCreated { call_id: call_id.clone(), name: name.clone(), deadline: None, key: None };
        self.open(call_id.clone(), CallDetails::Promise { name }, Some(event.into()));
        call_id
    }
}
