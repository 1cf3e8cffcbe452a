//! Updates: a change from outside with a recorded answer.

use super::Engine;
use crate::event::{UpdateAnswered, UpdateReceived};
use crate::{Failure, Name, Payload};

impl Engine {
    /// There is no handler yet: the update waits until the code has one.
    pub fn keep_update(&mut self, update: UpdateReceived) {
        self.updates.push_back(update);
    }

    /// The updates that waited for a handler of this name, oldest first.
    pub fn kept_updates(&mut self, name: &Name) -> Vec<UpdateReceived> {
        let (taken, kept) = self.updates.drain(..).partition(|update| update.name == *name);
        self.updates = kept;
        Vec::from_iter::<std::collections::VecDeque<_>>(taken)
    }

    /// The handler has answered; the answer leaves with the commit.
    pub fn answer_update(&mut self, update_id: String, result: Result<Payload, Failure>) {
        self.out.push(UpdateAnswered { update_id, result: result.map_err(Failure::bounded) }.into());
    }
}
