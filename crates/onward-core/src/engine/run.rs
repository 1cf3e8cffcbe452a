//! The end of a run: its result, its failure, or its next generation.

use super::mailbox::Looks;
use super::{Advance, Engine};
use crate::log::event::{CarriedSignal, RunCanceled, RunCompleted, RunContinued, RunFailed, RunSuspended, SuspendReason};
use crate::run::Carries;
use crate::{Event, Failure, Name, Payload};

impl Engine {
    /// The code has returned.
    pub fn finish(&mut self, result: Result<Payload, Failure>) {
        if self.ended {
            return;
        }
        self.ended = true; // N8
        self.detached = true;
        let event: Event = match result.map_err(Failure::bounded) {
            Ok(output) => RunCompleted { output, attempts: None }.into(),
            Err(failure) if failure.is_canceled() && self.is_canceled() => RunCanceled { failure }.into(),
            Err(failure) => RunFailed { failure, attempts: None }.into(),
        };
        self.out.push(event);
    }

    /// The code wants to go on with a fresh log. It is not polled again.
    pub fn continue_as_new(&mut self, input: Payload) {
        if self.ended {
            return;
        }
        self.ended = true;
        self.out.push(RunContinued { input, checkpoint: None }.into());
    }

    /// The code of an agent has come to the end of a turn: everything in its segment is final, and the next one begins with `state`. It is
    /// not polled again.
    pub fn take_checkpoint(&mut self, state: Payload, prelude: Option<u32>, awaits: Option<Name>) {
        if !self.end_segment() {
            return;
        }
        let checkpoint = self.close_conversation(state, prelude, awaits);
        // The log of the prelude has it, and the code gets it from there.
        let input = if prelude.is_some() { Payload::null() } else { self.agent.input() };
        self.out.push(RunContinued { input, checkpoint: Some(Box::new(checkpoint)) }.into());
    }

    /// Another kind of agent takes the conversation over, as the same run: everything in the segment is final, and its code begins from its
    /// start with `input`. This code is not polled again. `carried` is for code of the same making, which finds it with
    /// [`Engine::handed_over`]; null if there is nothing. `turns` is how many were taken since anybody was heard, by who counts them.
    pub fn hand_over(&mut self, kind: Name, input: Payload, carried: Payload, turns: Option<u32>) {
        if self.end_segment() {
            self.tally_handoff(turns);
            let mut checkpoint = self.close_conversation(carried, None, None);
            checkpoint.handoff = Some(kind);
            self.out.push(RunContinued { input, checkpoint: Some(Box::new(checkpoint)) }.into());
        }
    }

    /// Whether the segment may end here.
    fn end_segment(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let open = self.open_calls();
        if !open.is_empty() {
            self.misuse(format!(
                "a turn ended while something is still open: {}; await it, cancel it, or drop it before the turn ends",
                open.join(", ")
            ));
            return false;
        }
        self.ended = true;
        self.cancel_left_children();
        true
    }

    /// The store refused an ending commit because inputs came in between, and they cannot matter to code that has asked
    /// to continue as new: they go along. Call after feeding them.
    pub fn retry_continue(&mut self) {
        if self.in_flight.is_none() {
            return;
        }
        self.take_back();
        // The next horizon covers inputs that the code has not seen. What it saw of the mailbox, and what it asked for because of that,
        // needs a commit with the old one (N1).
        self.postpones_end = self.out.len() > 1 || self.looks == Looks::Durable;
    }

    /// Commits everything but the end, as of the horizon at which the code asked for it.
    pub(super) fn postpone_end(&mut self) -> Advance {
        self.postpones_end = false;
        let end = self.out.iter().position(Event::ends_log).map(|position| self.out.remove(position));
        self.out.push(RunSuspended { reason: SuspendReason::Continuing }.into());
        let advance = self.draft(true);
        self.out.extend(end);
        advance
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
            sender: signal.sender,
        };
        let mut signals = self.mailbox.drain_all();
        signals.extend(self.calls.values().filter_map(|call| call.answer.signal().cloned()));
        signals.sort_by_key(|signal| signal.index);
        let signals = signals.into_iter().map(carry).collect();
        Carries { signals, cancel_reason: self.cancel.unseen(), updates: self.updates.iter().cloned().collect(), version: None }
    }
}
