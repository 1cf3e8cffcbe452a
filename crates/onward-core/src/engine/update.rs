//! Updates: a change from outside with a recorded result.
//!
//! A handler answers at once, or begins an update and answers it later: then it makes calls of its own.
//!
//! Invariants:
//! - N8: handlers of code that has ended do not answer updates, because their changes would be lost. Such an update, and one without
//!   a handler, is unanswered when the run ends, and is carried over when it continues as new.
//! - N10: an update that a handler has begun is answered exactly once. If the code ends before its handler does, or continues as new,
//!   the answer is the failure `update_abandoned`: the calls of the handler are in a log that the next generation does not have.

use super::{Advance, Engine};
use crate::log::event::{UpdateAnswered, UpdateReceived};
use crate::{ErrorCode, Failure, Name, Payload};

impl Engine {
    /// Handles a received update: the code answers it, unless it has ended.
    pub(super) fn update_received(&mut self, update: UpdateReceived) -> Option<Advance> {
        if self.ended || self.is_delayed {
            self.keep_update(update); // N8, DS1
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

    /// Begins an update whose handler answers later, with [`Engine::finish_update`].
    pub fn begin_update(&mut self, update_id: String) {
        self.updates_begun.push(update_id);
    }

    /// Returns whether handlers have begun updates and not answered them.
    pub fn has_begun_updates(&self) -> bool {
        !self.updates_begun.is_empty()
    }

    /// Answers an update that was begun. Returns false if it was not, or was answered before (N10).
    pub fn finish_update(&mut self, update_id: &str, result: Result<Payload, Failure>) -> bool {
        let begun = self.updates_begun.iter().position(|begun| begun == update_id);
        let Some(position) = begun else { return false };
        let update_id = self.updates_begun.remove(position);
        self.answer_update(update_id, result);
        true
    }

    /// Answers the updates that were begun, because their handlers will not: the code has ended (N10).
    pub fn abandon_updates(&mut self) {
        for update_id in std::mem::take(&mut self.updates_begun) {
            let failure = Failure::fatal("the run ended or continued as new before the handler of the update did");
            self.answer_update(update_id, Err(failure.with_code(ErrorCode::UpdateAbandoned)));
        }
    }
}
