//! Cells of start policies as internal runs (ADR 0044): the admission of their inputs, and the effects of what they decide.
//!
//! The log of a cell has one event, `start_decided`: the input with its changes. [`crate::start_policy`] decides; this module turns
//! a decision into a record, and its effects into a timer and messages. A run that a cell started is a child of the cell that
//! outlives it; the number of its start is its call id.
//!
//! Invariants:
//! - SS1: a decision, the timer and the starts that follow from it are one write.
//! - SS2: the timer of a cell is due at the wake time of its head, in every generation.
//! - SS3: a singleton learns of the end of its run without the output of the run; other cells learn only of starts that failed.
//! - SS4: ids of cells are reserved: no run, child, signal or reader reaches a cell under its id.
//! - SS5: a log has at most [`EVENTS_MAX`] events; then the cell continues as its next generation.

use super::schedule::{end_of, failed_start, wake_call};
use crate::log::event::{CancelRequested, OnParentClose, ParentLink, RunCompleted, RunContinued, RunStarted, StartDecided};
use crate::run::internal::InternalRuns;
use crate::run::{Admitted, Effect, IdempotencyRecord, Input, NewRun, OutboxMessage, Refusal, RunHead, Status};
use crate::schedule::Ended;
use crate::start_policy::{
    HeldStart, KEPT_FOR, PolicyAsk, PolicyCell, PolicyChange, PolicyDecision, PolicyDue, PolicyHead, PolicyInput, PolicyStart,
    PolicyType, policy_of,
};
use crate::{CallId, Event, Failure, Name, Payload, Record, RunKey, Timestamp};

/// The number of events after which the log of a cell continues as its next generation.
pub const EVENTS_MAX: u64 = 1_000;

/// Returns a cell to start; the start that it is for is decided in the same write.
pub fn start_cell(key: RunKey, cell: PolicyCell, ask: PolicyAsk, seed: u64) -> NewRun {
    let prefix = InternalRuns::StartPolicies.prefix();
    let kind = Name::new(format!("{prefix}{}", KEPT_FOR.as_secs())).expect("a prefix and a number are a name");
    let start_policy = Some(Box::new(PolicyStart::New(Box::new(cell))));
    let started = RunStarted { start_policy, ..RunStarted::new(kind, Payload::null(), seed) };
    NewRun { key, started, signal: Some(Box::new(PolicyInput::Ask(Box::new(ask)).into())) }
}

/// Where a start goes, of the two ids of its cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// The id that has the state, or gets it.
    pub current: usize,
    /// The cell of that id is open: append to it. Otherwise start one.
    pub is_open: bool,
    /// The ended cell that may know the request id.
    pub ended: Option<usize>,
    /// An older cell under the id of a new one: delete it first. It ended before the ended one began, so its request ids are older
    /// than [`KEPT_FOR`].
    pub outdated: bool,
}

/// Decides where a start goes, from the heads under the two ids.
pub fn route(cells: [Option<&RunHead>; 2]) -> Route {
    let since = |at: usize| cells[at].map(|head| (!head.status.is_closed(), head.created_at, head.ended_at));
    let newest = if since(1) > since(0) { 1 } else { 0 };
    let other = 1 - newest;
    match since(newest) {
        None => Route { current: 0, is_open: false, ended: None, outdated: false },
        Some((true, ..)) => {
            let ended = cells[other].filter(|head| head.status.is_closed()).map(|_| other);
            Route { current: newest, is_open: true, ended, outdated: false }
        }
        Some((false, ..)) => Route { current: other, is_open: false, ended: Some(newest), outdated: cells[other].is_some() },
    }
}

/// Returns the message to a cell about a run that could not be started.
pub(super) fn not_started(cell: &ParentLink, result: Result<Payload, Failure>) -> OutboxMessage {
    to_cell(cell, failed_start(cell, result))
}

/// Returns the message to a singleton about the end of its run. Other cells do not wait for it (SS3).
pub(super) fn ended_by(cell: &ParentLink, event: &Event, result: Result<Payload, Failure>) -> Option<OutboxMessage> {
    let waits = policy_of(&cell.run.id) == Some(PolicyType::Singleton);
    waits.then(|| to_cell(cell, end_of(cell, event, result)))
}

fn to_cell(cell: &ParentLink, ended: Ended) -> OutboxMessage {
    let input = Input { incarnation: cell.incarnation, ..PolicyInput::Ended(ended).into() };
    OutboxMessage::Input { to: cell.run.clone(), input }
}

impl From<PolicyInput> for Input {
    fn from(input: PolicyInput) -> Input {
        let event = StartDecided::asked(input);
        Input { once: event.once(), ..Input::new(event) }
    }
}

impl RunHead {
    /// Decides on an input to a cell. On success the head is updated.
    pub(in crate::run) fn admit_to_policy(&mut self, input: Input, at: Timestamp) -> Result<Admitted, Refusal> {
        let Input { event, incarnation, .. } = input;
        let key = || self.key.clone();
        let Some(policy) = &self.start_policy else {
            return Err(Refusal::Malformed { key: key(), why: "the run is not the cell of a start policy" });
        };
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: key(), status: self.status }); // R4
        }
        if incarnation.is_some_and(|incarnation| Some(incarnation) != self.origin_incarnation()) {
            return Err(Refusal::OtherGeneration { key: key() }); // R10
        }
        let Event::StartDecided(decided) = event else {
            return Err(Refusal::Malformed { key: key(), why: "the cell of a start policy does not accept it" });
        };
        let input = decided.input;
        if matches!(&input, PolicyInput::Ask(ask) if ask.policy.policy_type() != policy.cell.policy) {
            return Err(Refusal::Malformed { key: key(), why: "it has another start policy" });
        }
        let PolicyDecision { changes, head } = policy.decide(&input, at).map_err(Refusal::StartPolicy)?;
        let is_over = changes.iter().any(|change| matches!(change, PolicyChange::Closed(_)));
        let mut events = vec![StartDecided { input, changes }.into()];
        let mut successor = None;
        if is_over {
            events.push(RunCompleted { output: Payload::null(), attempts: None }.into());
        } else if self.next_index.0 >= EVENTS_MAX - 2 {
            events.push(RunContinued { input: Payload::null(), checkpoint: None }.into()); // SS5
            successor = Some(self.next_policy_generation(head.clone()));
        }
        let effects = events.iter().flat_map(|event| self.policy_effects(event, at)).collect();
        let record = Record { index: self.next_index, at, commit: None, events };
        self.take_policy_record(&record);
        debug_assert!(self.start_policy.as_deref() == Some(&head), "SP6");
        Ok(Admitted { record, effects, successor })
    }

    fn next_policy_generation(&self, head: PolicyHead) -> Box<NewRun> {
        let started = RunStarted {
            start_policy: Some(Box::new(PolicyStart::Continued(Box::new(head)))),
            generation: self.generation + 1,
            first_seed: self.origin_incarnation(),
            created_at: Some(self.created_at),
            ..RunStarted::new(self.kind.clone(), Payload::null(), self.child_seed(&wake_call()))
        };
        Box::new(NewRun { key: self.key.clone(), started, signal: None })
    }

    /// Updates the head of a cell by a record that was admitted.
    pub(in crate::run) fn take_policy_record(&mut self, record: &Record) {
        for event in &record.events {
            match event {
                Event::StartDecided(decided) => {
                    let head = self.start_policy.as_mut();
                    let apply = |head: &mut PolicyHead| {
                        decided.changes.iter().for_each(|change| head.apply(&decided.input, change, record.at));
                    };
                    head.into_iter().for_each(|head| apply(head));
                }
                Event::RunContinued(_) | Event::RunCompleted(_) => self.status = Status::Completed,
                _ => {}
            }
        }
        self.advance(record);
    }

    /// Returns the timer of a cell, if it has one (SS2).
    pub(super) fn policy_timer(&self) -> Option<Effect> {
        self.start_policy.as_ref().and_then(|policy| timer(policy.wake_at))
    }

    /// Returns the input of the timer of a cell.
    pub(super) fn policy_due(&self) -> Option<Input> {
        self.start_policy.as_ref().map(|_| PolicyInput::Due(PolicyDue {}).into())
    }

    /// Returns the effects of an event at a cell; `self` is the head before it.
    pub(super) fn policy_effects(&self, event: &Event, at: Timestamp) -> Vec<Effect> {
        let Some(policy) = &self.start_policy else { return Vec::new() };
        let decided = match event {
            Event::StartDecided(decided) => decided,
            Event::RunContinued(_) => return vec![Effect::EndRun { goes_on: true }],
            _ => return vec![Effect::EndRun { goes_on: false }],
        };
        let mut head = policy.clone();
        let mut effects = Vec::new();
        for change in &decided.changes {
            match (change, &head.held) {
                (PolicyChange::Started(started), Some(held)) => {
                    effects.push(Effect::Send(Box::new(self.start_held(&head.cell, held, started.number))));
                }
                (PolicyChange::Canceled(canceled), _) => {
                    let to = RunKey::new(self.key.namespace.clone(), canceled.run.clone());
                    effects.push(Effect::Send(Box::new(self.cancel_open(to))));
                }
                _ => {}
            }
            head.apply(&decided.input, change, at);
        }
        // The timer that is due was removed, also if the next one is due at the same time.
        effects.push(timer(head.wake_at).unwrap_or_else(|| Effect::StopTimer { call_id: wake_call() }));
        effects
    }

    /// Returns the start of the run of what is held (SP5).
    fn start_held(&self, cell: &PolicyCell, held: &HeldStart, number: u32) -> OutboxMessage {
        let call_id = CallId::root(number);
        let options = held.options.clone();
        let input = match (cell.policy, &held.inputs[..]) {
            (PolicyType::Singleton | PolicyType::Debounce, [input]) => input.clone(),
            (_, inputs) => Payload::list(inputs),
        };
        let started = RunStarted {
            version: options.version,
            // Runs of all generations report their ends.
            parent: Some(ParentLink {
                incarnation: self.origin_incarnation(),
                ..self.link(&call_id, OnParentClose::Abandon, false)
            }),
            attributes: options.attributes,
            deadline_ms: options.deadline_ms,
            trace: options.trace,
            budget: options.granted,
            requester: options.requester,
            ..RunStarted::new(cell.kind.clone(), input, self.child_seed(&call_id))
        };
        OutboxMessage::Start(NewRun { key: RunKey::new(self.key.namespace.clone(), held.run.clone()), started, signal: None })
    }

    /// Returns the request to cancel the open run of a singleton.
    fn cancel_open(&self, to: RunKey) -> OutboxMessage {
        let once = Some(IdempotencyRecord::new("cancel:start_policy".to_owned()));
        let event = CancelRequested::new("a later start with the same key replaces the run".to_owned());
        OutboxMessage::Input { to, input: Input { once, child_of: Some(self.key.clone()), ..Input::new(event) } }
    }
}

fn timer(wake_at: Option<Timestamp>) -> Option<Effect> {
    wake_at.map(|due_at| Effect::StartTimer { call_id: wake_call(), due_at })
}

#[cfg(test)]
mod tests;
