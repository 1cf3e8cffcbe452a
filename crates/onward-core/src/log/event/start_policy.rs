//! Events of start policies (see [`crate::start_policy`]).

use crate::message;
use crate::run::IdempotencyRecord;
use crate::start_policy::{PolicyChange, PolicyInput, StartAnswer};

message! {
    /// At a cell: an input, and what it changed.
    pub struct StartDecided {
        1 => input: PolicyInput,
        /// Filled in at admission.
        2 => changes: Vec<PolicyChange>,
    }
}

impl StartDecided {
    /// Returns the event of an input that is not decided yet.
    pub fn asked(input: PolicyInput) -> StartDecided {
        StartDecided { input, changes: Vec::new() }
    }

    /// Returns the idempotency record of a start with an id.
    pub fn once(&self) -> Option<IdempotencyRecord> {
        match &self.input {
            PolicyInput::Ask(ask) => ask.once(),
            PolicyInput::Due(_) | PolicyInput::Ended(_) => None,
        }
    }

    /// Returns the answer to a start.
    pub fn answer(&self) -> Option<StartAnswer> {
        match &self.input {
            PolicyInput::Ask(ask) => ask.answer(&self.changes),
            PolicyInput::Due(_) | PolicyInput::Ended(_) => None,
        }
    }
}
