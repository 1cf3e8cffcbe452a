//! The end of a run: its result, its failure, or its next generation.

use super::mailbox::PollState;
use super::{Advance, Engine};
use crate::log::event::{CarriedSignal, RunCanceled, RunCompleted, RunContinued, RunFailed, RunSuspended, SuspendReason};
use crate::run::Carries;
use crate::{Event, Failure, Name, Payload};

impl Engine {
    /// Ends the run with the result of the code.
    pub fn finish(&mut self, result: Result<Payload, Failure>) {
        if self.ended {
            return;
        }
        self.abandon_updates(); // N10
        self.ended = true; // N8
        self.detached = true;
        let event: Event = match result.map_err(Failure::bounded) {
            Ok(output) => RunCompleted { output, attempts: None }.into(),
            Err(failure) if failure.is_canceled() && self.is_canceled() => RunCanceled { failure }.into(),
            Err(failure) => RunFailed { failure, attempts: None }.into(),
        };
        self.out.push(event);
    }

    /// Continues the run with a fresh log. The code is not polled again.
    pub fn continue_as_new(&mut self, input: Payload) {
        if self.ended {
            return;
        }
        self.abandon_updates(); // N10
        self.ended = true;
        self.out.push(RunContinued { input, checkpoint: None }.into());
    }

    /// Ends a turn of an agent: everything in its segment is final, and the next one begins with `state`. The code is not polled
    /// again.
    pub fn take_checkpoint(&mut self, state: Payload, prelude: Option<u32>, awaits: Option<Name>) {
        if !self.end_segment() {
            return;
        }
        let checkpoint = self.close_conversation(state, prelude, awaits);
        // The log of the prelude has the input, and the code gets it from there.
        let input = if prelude.is_some() { Payload::null() } else { self.agent.input() };
        self.out.push(RunContinued { input, checkpoint: Some(Box::new(checkpoint)) }.into());
    }

    /// Hands the conversation over to another kind of agent, in the same run: everything in the segment is final, and the code of
    /// that kind begins from its start with `input`. This code is not polled again. `carried` is for the next agent, which reads
    /// it with [`Engine::handed_over`]; null if there is nothing. `turns` is the number of turns since the last received signal,
    /// if they are counted.
    pub fn hand_over(&mut self, kind: Name, input: Payload, carried: Payload, turns: Option<u32>) {
        if self.end_segment() {
            self.tally_handoff(turns);
            let mut checkpoint = self.close_conversation(carried, None, None);
            checkpoint.handoff = Some(kind);
            self.out.push(RunContinued { input, checkpoint: Some(Box::new(checkpoint)) }.into());
        }
    }

    /// Ends the segment. Returns false if it has ended before or calls are open, which is a misuse.
    fn end_segment(&mut self) -> bool {
        if self.ended {
            return false;
        }
        let open = self.open_calls();
        if !open.is_empty() {
            self.misuse(format!(
                "a turn ended with open calls: {}; await, cancel or drop them before the turn ends",
                open.join(", ")
            ));
            return false;
        }
        self.abandon_updates(); // N10
        self.ended = true;
        self.cancel_abandoned_children();
        true
    }

    /// Handles the rejection of a commit that continues as new: inputs arrived meanwhile, which the code need not observe, so
    /// they are carried over. Call after feeding them.
    pub fn retry_continue(&mut self) {
        if self.in_flight.is_none() {
            return;
        }
        self.take_back();
        // The next horizon covers inputs that the code has not observed. Its polls of the mailbox, and the calls that depend on
        // them, need a commit with the old horizon (N1).
        self.postpones_end = self.out.len() > 1 || self.poll_state == PollState::Durable;
    }

    /// Commits everything but the end, at the horizon at which the code called it.
    pub(super) fn postpone_end(&mut self) -> Advance {
        self.postpones_end = false;
        self.adopt_requested();
        let end = self.out.iter().position(Event::ends_log).map(|position| self.out.remove(position));
        self.out.push(RunSuspended { reason: SuspendReason::Continuing }.into());
        let events = self.take_out();
        let advance = self.commit(events, true, false);
        self.out.extend(end);
        advance
    }

    /// Returns true if the commit in flight continues the run as new.
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
