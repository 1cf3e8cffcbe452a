//! Updates: a change from outside with a recorded result.
//!
//! Invariant N8: handlers of code that has ended do not answer updates, because their changes would be lost. Such an update, and
//! one without a handler, is unanswered when the run ends, and is carried over when it continues as new.

use super::{Advance, Engine};
use crate::log::event::{UpdateAnswered, UpdateReceived};
use crate::{Failure, Name, Payload};

impl Engine {
    /// Handles a received update: the code answers it, unless it has ended.
    pub(super) fn update_received(&mut self, update: UpdateReceived) -> Option<Advance> {
        if self.ended {
            self.keep_update(update); // N8
            return None;
        }
        Some(Advance::Update(update))
    }

    /// Keeps an update without a handler until the code has one.
    pub fn keep_update(&mut self, update: UpdateReceived) {
        self.updates.push_back(update);
    }

    /// Takes the updates that waited for a handler of this name, oldest first.
    pub fn kept_updates(&mut self, name: &Name) -> Vec<UpdateReceived> {
        let (taken, kept) = self.updates.drain(..).partition(|update| update.name == *name);
        self.updates = kept;
        Vec::from_iter::<std::collections::VecDeque<_>>(taken)
    }

    /// Answers an update; the answer is durable with the next commit.
    pub fn answer_update(&mut self, update_id: String, result: Result<Payload, Failure>) {
        self.out.push(UpdateAnswered { update_id, result: result.map_err(Failure::bounded) }.into());
    }
}
