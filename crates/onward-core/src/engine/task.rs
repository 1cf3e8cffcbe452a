//! Tasks: work for any worker that registered the kind.

use super::Engine;
use super::call::What;
use crate::log::event::TaskScheduled;
use crate::task::TaskOptions;
use crate::{Failure, Hash, Name, Payload, Place};

impl Engine {
    /// Schedules a task; it is durable with the next commit, awaited or not.
    pub fn schedule_task(&mut self, kind: Name, input: Payload) -> Place {
        let place = self.next_place();
        let event = TaskScheduled {
            place: place.clone(),
            kind: kind.clone(),
            input_hash: Hash::of(&input),
            input,
            options: TaskOptions::default(),
        };
        self.open(place.clone(), What::Task { kind }, Some(event.into()));
        place
    }

    /// Opens a call for a task that cannot be scheduled: it fails with `failure`, and nothing is recorded.
    pub fn refuse_task(&mut self, kind: Name, failure: Failure) -> Place {
        let place = self.next_place();
        self.open_refused(place.clone(), What::Task { kind }, failure);
        place
    }
}
