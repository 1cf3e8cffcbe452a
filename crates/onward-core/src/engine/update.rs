//! Updates: a change from outside with a recorded answer.
//!
//! Invariant N8: no handler of code that has ended answers an update, for what it changed nobody would see. Such an update, and one that
//! no handler was there for, is unanswered when the run ends, and goes along when it continues as new.

use super::{Advance, Engine};
use crate::log::event::{UpdateAnswered, UpdateReceived};
use crate::{Event, Failure, Name, Payload};

impl Engine {
    /// An update has come: the code answers it, unless it has ended by now.
    pub(super) fn update_received(&mut self, update: UpdateReceived) -> Option<Advance> {
        if self.ended && !self.is_recorded_answer(&update.update_id) {
            self.keep_update(update); // N8
            return None;
        }
        Some(Advance::Update(update))
    }

    /// Whether the commit that the code is held against says that the update was answered: what is recorded stays, also where N8 was
    /// not known yet.
    fn is_recorded_answer(&self, update_id: &str) -> bool {
        let recorded = self.expected.iter().flat_map(|record| &record.events);
        recorded.into_iter().any(|event| matches!(event, Event::UpdateAnswered(answer) if answer.update_id == update_id))
    }

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
