//! Tasks: work for any worker that registered the kind.

use super::Engine;
use super::call::CallDetails;
use crate::log::event::TaskScheduled;
use crate::task::TaskOptions;
use crate::{CallId, Failure, Hash, Name, Payload};

impl Engine {
    /// Schedules a task; it is durable with the next commit, awaited or not.
    pub fn schedule_task(&mut self, kind: Name, input: Payload) -> CallId {
        let call_id = self.next_call_id();
        let event = TaskScheduled {
            call_id: call_id.clone(),
            kind: kind.clone(),
            input_hash: Hash::of(&input),
            input,
            options: TaskOptions::default(),
        };
        self.open(call_id.clone(), CallDetails::Task { kind }, Some(event.into()));
        call_id
    }

    /// Opens a call for a task that cannot be scheduled: it fails with `failure`, and nothing is recorded.
    pub fn refuse_task(&mut self, kind: Name, failure: Failure) -> CallId {
        let call_id = self.next_call_id();
        self.open_refused(call_id.clone(), CallDetails::Task { kind }, failure);
        call_id
    }
}
