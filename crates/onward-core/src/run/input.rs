//! Constructors of inputs, with their idempotency records.

use super::{IdempotencyRecord, Input};
use crate::log::event::{SignalReceived, TaskAttemptEnded, UpdateReceived};
use crate::{CallId, Epoch, Event};

impl Input {
    pub fn new(event: impl Into<Event>) -> Input {
        Input { event: event.into(), once: None, generation: None, child_of: None, epoch: None, incarnation: None }
    }

    /// Returns a signal; with an id it is idempotent (L11).
    pub fn signal(signal: SignalReceived) -> Input {
        Input { once: IdempotencyRecord::signal(&signal), ..Input::new(signal) }
    }

    /// Returns an update, which is idempotent.
    pub fn update(update: UpdateReceived) -> Input {
        Input { once: Some(IdempotencyRecord::update(&update)), ..Input::new(update) }
    }

    /// Returns the answer of `who` to the single-assignment wait at `call_id` (L12).
    pub fn answer(event: impl Into<Event>, generation: u32, call_id: &CallId, who: &str) -> Input {
        let event = event.into();
        let once = Some(IdempotencyRecord::answer(&event, generation, call_id, who));
        Input { once, generation: Some(generation), ..Input::new(event) }
    }

    /// Returns the result of the task, timer or child at `call_id` of `generation`.
    pub fn result(event: Event, generation: u32, what: &str, call_id: &CallId) -> Input {
        let once = IdempotencyRecord::new(format!("{what}:{generation}:{call_id}"));
        Input { once: Some(once), generation: Some(generation), ..Input::new(event) }
    }

    /// Returns the result of a task or timer of `generation`, as determined by the store.
    pub fn outcome(event: Event, generation: u32) -> Input {
        Input { generation: Some(generation), ..Input::new(event) }
    }

    /// Returns the cost of an attempt. It is counted once, in the current generation of its run (LG1).
    pub fn attempt_ended(event: TaskAttemptEnded) -> Input {
        Input { once: Some(event.once()), ..Input::new(event) }
    }

    /// Returns an input from the worker that holds the run.
    pub fn by_holder(event: impl Into<Event>, generation: u32, epoch: Epoch) -> Input {
        Input { generation: Some(generation), epoch: Some(epoch), ..Input::new(event) }
    }

    /// Returns the call id of the wait that must be open for this input. Callers check that the answer fits the kind of the wait.
    pub fn needs_wait(&self) -> Option<&CallId> {
        match &self.event {
            Event::ApprovalDecided(event) => Some(&event.call_id),
            Event::PromiseResolved(event) => Some(&event.call_id),
            _ => None,
        }
    }
}

/// Returns the key of the idempotency record of the wait at `call_id`.
pub fn wait_key(generation: u32, call_id: &CallId) -> String {
    format!("wait:{generation}:{call_id}")
}
