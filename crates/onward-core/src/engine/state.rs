//! State: values that a run sets and callers can read. Replay sets them again, so code reads the value of that time.

use super::Engine;
use crate::log::event::{StateCleared, StateSet};
use crate::{Name, Payload};

impl Engine {
    pub fn set_state(&mut self, key: Name, value: Payload) {
        let call_id = self.next_call_id();
        self.state.insert(key.clone(), value.clone());
        self.out.push(StateSet { call_id, key, value }.into());
    }

    pub fn clear_state(&mut self, key: &Name) {
        let call_id = self.next_call_id();
        if self.state.remove(key).is_some() {
            self.out.push(StateCleared { call_id, key: key.clone() }.into());
        }
    }

    pub fn state(&self, key: &Name) -> Option<&Payload> {
        self.state.get(key)
    }

    pub fn state_keys(&self) -> Vec<Name> {
        self.state.keys().cloned().collect()
    }
}
