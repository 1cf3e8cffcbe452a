//! The end of a run: its result, its failure, or its next generation.

use super::Engine;
use crate::event::{CarriedSignal, RunCanceled, RunCompleted, RunContinued, RunFailed};
use crate::run::Carries;
use crate::{Event, Failure, Payload};

impl Engine {
    /// The code has returned.
    pub fn finish(&mut self, result: Result<Payload, Failure>) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.detached = true;
        let event: Event = match result.map_err(Failure::bounded) {
            Ok(output) => RunCompleted { output }.into(),
            Err(failure) if failure.is_canceled() && self.is_canceled() => RunCanceled { failure }.into(),
            Err(failure) => RunFailed { failure }.into(),
        };
        self.out.push(event);
    }

    /// The code wants to go on with a fresh log. It is not polled again.
    pub fn continue_as_new(&mut self, input: Payload) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.out.push(RunContinued { input }.into());
    }

    /// The store refused an ending commit because inputs came in between, and they cannot matter to code that has asked
    /// to continue as new: they go along. Call after feeding them; the next draft has the new horizon.
    pub fn retry_continue(&mut self) {
        self.take_back();
    }

    /// Whether the commit in flight continues the run as new.
    pub fn is_continuing(&self) -> bool {
        let last = self.in_flight.as_ref().and_then(|events| events.last());
        matches!(last, Some(Event::RunContinued(_)))
    }

    pub(super) fn carries(&self, events: &[Event]) -> Carries {
        if !matches!(events.last(), Some(Event::RunContinued(_))) {
            return Carries::default();
        }
        let carry = |signal: super::mailbox::Signal| CarriedSignal {
            name: signal.name,
            payload: signal.payload,
            signal_id: None,
            sender: None,
        };
        let mut signals = self.mailbox.drain_all();
        signals.extend(self.calls.values().filter_map(|call| call.answer.signal().cloned()));
        signals.sort_by_key(|signal| signal.index);
        Carries { signals: signals.into_iter().map(carry).collect(), cancel_reason: self.cancel.unseen() }
    }
}
