//! Updates: a change from outside with a recorded result.
//!
//! Invariant N8: handlers of code that has ended do not answer updates, because their changes would be lost. Such an update, and
//! one without a handler, is unanswered when the run ends, and is carried over when it continues as new.

use super::{Advance, Engine};
use crate::log::event::{UpdateAnswered, UpdateReceived};
use crate::{Event, Failure, Name, Payload};

impl Engine {
    /// Handles a received update: the code answers it, unless it has ended.
    pub(super) fn update_received(&mut self, update: UpdateReceived) -> Option<Advance> {
        if self.ended && !self.is_recorded_answer(&update.update_id) {
            self.keep_update(update); // N8
            return None;
        }
        Some(Advance::Update(update))
    }

    /// Returns true if the commit that the code is compared with answers the update: recorded answers stay, also those from
    /// before N8.
    fn is_recorded_answer(&self, update_id: &str) -> bool {
        let recorded = self.expected.iter().flat_map(|record| &record.events);
        recorded.into_iter().any(|event| matches!(event, Event::UpdateAnswered(answer) if answer.update_id == update_id))
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
