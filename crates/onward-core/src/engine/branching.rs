//! Branches from outside: the conversation continues from an earlier entry, and the open segment is abandoned.
//!
//! The request is an input that names the checkpoint to continue from. Once it is fed, the code observes nothing more: the whole
//! segment is abandoned, and the commit that does so closes it with that checkpoint, with the conversation at the requested
//! entry. No code takes part, so a run whose code is stuck can be branched as well.
//!
//! Invariants:
//! - BR1: between a request and the commit that executes it there are only results of steps that were running. A generation
//!   accepts one request (R15).
//! - BR2: a consumed signal stays consumed if its content is an entry of the abandoned branch. All other signals, updates and
//!   cancellation requests are carried over.
//! - BR3 (SG3): the segment does not close while an abandoned call with an effect is unmatched and not accepted.

use super::mailbox::Signal;
use super::{Advance, Engine, Fault};
use crate::agent::conversation::{OutsideEntry, abandoned_filter, entries_of, signal_content};
use crate::log::event::{BranchRequested, CarriedSignal, Divergence, RunContinued, SegmentAbandoned, SignalReceived};
use crate::{Event, Hash, Index, Name, Record};

impl Engine {
    /// Remembers a request as soon as it is fed.
    pub(super) fn note_branch(&mut self, record: &Record) {
        for event in &record.events {
            if let Event::BranchRequested(event) = event {
                self.branching = Some((record.index, event.clone()));
            }
        }
    }

    /// Executes a branch request (BR1).
    pub(super) fn advance_branch(&mut self) -> Result<Advance, Fault> {
        if self.in_flight.is_some() {
            return Ok(Advance::Idle); // N3
        }
        if self.delivered.is_some() || self.ended {
            return self.leave_code();
        }
        if self.queue.back().is_some_and(|queued| queued.record.ends_log()) {
            // Executed already, without the code.
            self.queue.clear();
            self.ended = true;
            return Ok(Advance::Idle);
        }
        if self.pause_state.is_paused {
            return Ok(Advance::Idle);
        }
        self.branch_off()
    }

    /// Ends this pass, because the code has observed something. Running steps cannot be stopped, so their results are recorded
    /// first.
    fn leave_code(&mut self) -> Result<Advance, Fault> {
        self.batch.clear();
        self.wakes.clear();
        match self.commit_while_paused() {
            Advance::Idle if self.running_steps == 0 => Err(Fault::Branched),
            advance => Ok(advance),
        }
    }

    fn branch_off(&mut self) -> Result<Advance, Fault> {
        let records: Vec<Record> = self.queue.iter().map(|queued| queued.record.clone()).collect();
        let (Some((index, request)), Some(started)) = (self.branching.clone(), records.first().and_then(Record::started)) else {
            return Ok(Advance::Idle);
        };
        self.next_commit = records.iter().rev().find_map(|record| record.commit).map_or(0, |commit| commit.n + 1);
        self.begin_identity(started);
        self.agent.begin_abandoned_children(started);
        self.begin_conversation(started);
        self.horizon = self.last_fed();
        self.delivered = Some(self.horizon);
        self.abandon_all(&records, index, &request);
        self.collect_inputs(&records);
        let BranchRequested { from, depth, entry, checkpoint, input, .. } = *request;
        self.branch(from, depth);
        let has_entry = entry.is_some();
        if let Some(OutsideEntry { role, content, .. }) = entry {
            self.append_entry(role, content);
        }
        self.cancel_abandoned_children();
        // A requested entry is answered at once, without another signal.
        let awaits = checkpoint.awaits.filter(|_| !has_entry);
        let mut next = self.close_conversation(checkpoint.state, checkpoint.prelude, awaits);
        (next.keys, next.handoff, next.tally) = (checkpoint.keys, checkpoint.handoff, checkpoint.tally);
        self.out.push(RunContinued { input, checkpoint: Some(Box::new(next)) }.into());
        self.ended = true;
        self.try_draft(false) // BR3
    }

    /// Abandons everything that the segment has recorded.
    fn abandon_all(&mut self, records: &[Record], index: Index, request: &BranchRequested) {
        let Some(first) = records.iter().find(|record| record.commit.is_some()) else { return };
        let (from, to) = (first.index, self.last_fed());
        self.queue.iter_mut().filter(|queued| queued.record.commit.is_some()).for_each(|queued| queued.is_abandoned = true);
        let (attempt, withdrawn) = self.leave_all(from, to);
        let entry = request.from.map_or_else(|| "the beginning".to_owned(), |from| format!("entry {from}"));
        let divergence = Divergence {
            index,
            recorded: super::matching::describe(first.events.first().unwrap_or(&request.clone().into())),
            attempted: format!("a branch from {entry}"),
            nearest: None,
            hint: String::new(),
        };
        self.out.push(SegmentAbandoned { from, to, attempt, withdrawn, divergence }.into());
    }

    /// Collects the inputs for the next generation (BR2).
    fn collect_inputs(&mut self, records: &[Record]) {
        let mut reasons = Vec::new();
        for event in records.iter().flat_map(|record| &record.events) {
            match event {
                Event::RunStarted(started) => {
                    reasons.extend(started.cancel_reason.clone());
                    self.updates = started.updates.clone().into();
                }
                Event::CancelRequested(event) => reasons.push(event.reason.clone()),
                Event::UpdateReceived(event) => self.updates.push_back(event.clone()),
                Event::UpdateAnswered(event) => self.updates.retain(|update| update.update_id != event.update_id),
                _ => {}
            }
        }
        self.cancel.begin(reasons.into_iter().next());
        for signal in unused_signals(records) {
            self.signal_arrives(signal);
        }
    }
}

/// Returns the signals that were not consumed, or consumed without becoming an entry, oldest first.
fn unused_signals(records: &[Record]) -> Vec<Signal> {
    let is_abandoned = abandoned_filter(records);
    let entries = entries_of(0, records).into_iter().filter(|entry| !entry.is_abandoned && !entry.is_aside);
    let mut entries: Vec<(Name, Hash)> = entries.map(|entry| (entry.role, Hash::of(&entry.content))).collect();
    let mut signals: Vec<(Signal, bool)> = Vec::new();
    for record in records {
        for (index, event) in record.indexed() {
            let carried =
                |CarriedSignal { name, payload, sender, .. }: CarriedSignal| (Signal { index, name, payload, sender }, false);
            match event {
                Event::RunStarted(started) => signals.extend(started.mailbox.iter().cloned().map(carried)),
                Event::SignalReceived(SignalReceived { name, payload, signal_id, sender }) => {
                    let (name, payload) = (name.clone(), payload.clone());
                    let (signal_id, sender) = (signal_id.clone(), sender.clone());
                    signals.push(carried(CarriedSignal { name, payload, signal_id, sender }));
                }
                Event::SignalConsumed(event) if !is_abandoned(index) => {
                    // Signals of one name are consumed in order.
                    let is_it = |(signal, is_consumed): &&mut (Signal, bool)| {
                        !*is_consumed && signal.index == event.index && signal.name == event.name
                    };
                    signals.iter_mut().find(is_it).into_iter().for_each(|(_, is_consumed)| *is_consumed = true);
                }
                _ => {}
            }
        }
    }
    // An entry from outside has a role, so these are matched first.
    for is_outside in [true, false] {
        signals.retain(|(signal, is_consumed)| {
            let role = OutsideEntry::of_signal(&signal.name, &signal.payload).map(|entry| entry.role);
            if !is_consumed || role.is_some() != is_outside {
                return true;
            }
            let hash = Hash::of(&signal_content(&signal.name, &signal.payload));
            let is_it = |(by, text): &(Name, Hash)| *text == hash && role.as_ref().is_none_or(|role| role == by);
            let entry = entries.iter().position(is_it);
            entry.map(|position| entries.swap_remove(position)).is_none()
        });
    }
    signals.into_iter().map(|(signal, _)| signal).collect()
}
