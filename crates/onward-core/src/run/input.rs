//! Inputs as those who bring them make them, with what makes each of them once.

use super::{Input, Once};
use crate::log::event::{SignalReceived, TaskAttemptEnded, UpdateReceived};
use crate::{Epoch, Event, Place};

impl Input {
    pub fn new(event: impl Into<Event>) -> Input {
        Input { event: event.into(), once: None, generation: None, child_of: None, epoch: None, life: None }
    }

    /// A signal; with an id it is taken once (L11).
    pub fn signal(signal: SignalReceived) -> Input {
        Input { once: Once::signal(&signal), ..Input::new(signal) }
    }

    /// An update, which is taken once.
    pub fn update(update: UpdateReceived) -> Input {
        Input { once: Some(Once::update(&update)), ..Input::new(update) }
    }

    /// The answer of `who` to the single-assignment wait at `place` (L12).
    pub fn answer(event: impl Into<Event>, generation: u32, place: &Place, who: &str) -> Input {
        let event = event.into();
        let once = Some(Once::answer(&event, generation, place, who));
        Input { once, generation: Some(generation), ..Input::new(event) }
    }

    /// The input that answers the task, timer or child at `place` of `generation`.
    pub fn result(event: Event, generation: u32, what: &str, place: &Place) -> Input {
        let once = Once::new(format!("{what}:{generation}:{place}"));
        Input { once: Some(once), generation: Some(generation), ..Input::new(event) }
    }

    /// What a store found out about a task or timer of `generation`.
    pub fn outcome(event: Event, generation: u32) -> Input {
        Input { generation: Some(generation), ..Input::new(event) }
    }

    /// What an attempt has cost. It is counted once, in whatever generation its run is by now (LG1).
    pub fn attempt_ended(event: TaskAttemptEnded) -> Input {
        Input { once: Some(event.once()), ..Input::new(event) }
    }

    /// What the worker that holds a run says about it.
    pub fn by_holder(event: impl Into<Event>, generation: u32, epoch: Epoch) -> Input {
        Input { generation: Some(generation), epoch: Some(epoch), ..Input::new(event) }
    }

    /// The place of the wait that must be open for this input to be taken; that the answer fits its kind is the caller's to check.
    pub fn needs_wait(&self) -> Option<&Place> {
        match &self.event {
            Event::ApprovalDecided(event) => Some(&event.place),
            Event::PromiseResolved(event) => Some(&event.place),
            _ => None,
        }
    }
}

/// The slot of the single-assignment wait at `place`.
pub fn wait_key(generation: u32, place: &Place) -> String {
    format!("wait:{generation}:{place}")
}
