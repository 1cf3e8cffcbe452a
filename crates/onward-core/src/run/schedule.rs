//! Schedules as internal runs (ADR 0039): the admission of their inputs, and the effects of what they decide.
//!
//! The log of a schedule has one event, `schedule_decided`: the input with its changes. [`crate::schedule`] decides; this module
//! turns a decision into a record, and its effects into a timer and messages. A run that a schedule started is a child of the
//! schedule that outlives it; the number of its firing is its call id.
//!
//! Must never evaluate a specification except at admission: a replay applies recorded changes (SC9).
//!
//! Invariants:
//! - SR1 (L23): a decision, the timer and the starts that follow from it are one write.
//! - SR2: the timer of a schedule is due at the wake time of its head, in every generation.
//! - SR3: the end of a run reaches the schedule without the output of the run, and leaves no idempotency record there.
//! - SR4: ids of schedules are reserved: no run, child, signal or reader reaches a schedule under its id.

use crate::log::event::{OnParentClose, ParentLink, RunContinued, RunStarted, ScheduleDecided, TerminateRequested};
use crate::run::internal::InternalRuns;
use crate::run::{Admitted, Effect, IdempotencyRecord, Input, NewRun, OutboxMessage, Refusal, RunHead, Status};
use crate::schedule::{
    Decision, Ended, Ending, Firing, ScheduleChange, ScheduleDefinition, ScheduleDue, ScheduleEffect, ScheduleHead,
    ScheduleInput, ScheduleStart, SlotContext,
};
use crate::{CallId, ErrorCode, Event, Failure, Name, Namespace, Payload, Record, RunId, RunKey, Timestamp};

/// The number of events after which the log of a schedule continues as its next generation.
const EVENTS_MAX: u64 = 1_000;

/// Returns the key of the run that keeps a schedule.
pub fn schedule_key(namespace: Namespace, id: &Name) -> Option<RunKey> {
    let id = RunId::new(format!("{}{id}", InternalRuns::Schedules.prefix())).ok()?;
    Some(RunKey::new(namespace, id))
}

/// Returns the id of the schedule that a run keeps; `None` if it keeps none.
pub fn schedule_of(run: &RunId) -> Option<&str> {
    run.as_str().strip_prefix(InternalRuns::Schedules.prefix())
}

/// Returns the call id of the timer of a schedule.
pub fn wake_call() -> CallId {
    CallId::root(u32::MAX)
}

/// Returns a schedule to start; it is decided for the first time in the same write.
pub fn start_schedule(key: RunKey, definition: ScheduleDefinition, seed: u64) -> NewRun {
    let kind = Name::new(InternalRuns::Schedules.prefix()).expect("a constant name");
    let requester = definition.requester.clone();
    let schedule = Some(Box::new(ScheduleStart::New(Box::new(definition))));
    let started = RunStarted { schedule, requester, ..RunStarted::new(kind, Payload::null(), seed) };
    NewRun { key, started, signal: Some(Box::new(ScheduleInput::Due(ScheduleDue {}).into())) }
}

/// Returns the message to a schedule about a run that could not be started.
pub(super) fn not_started(schedule: &ParentLink, result: Result<Payload, Failure>) -> OutboxMessage {
    to_schedule(schedule, failed_start(schedule, result))
}

/// Returns the end of a run that could not be started.
pub(super) fn failed_start(link: &ParentLink, result: Result<Payload, Failure>) -> Ended {
    let code = result.err().map(|failure| failure.code);
    let is_there = code.as_deref() == Some(ErrorCode::RunExists.as_str());
    Ended { number: link.call_id.ordinal(), ending: if is_there { Ending::Existed } else { Ending::Failed }, code }
}

/// Returns the message to a schedule about the end of a run that it started. The code of a failure is the run's own, so that only
/// the event determines the ending.
pub(super) fn ended_by(schedule: &ParentLink, event: &Event, result: Result<Payload, Failure>) -> OutboxMessage {
    to_schedule(schedule, end_of(schedule, event, result))
}

/// Returns the end of a run by this event.
pub(super) fn end_of(link: &ParentLink, event: &Event, result: Result<Payload, Failure>) -> Ended {
    let ending = match event {
        Event::RunCompleted(_) => Ending::Completed,
        Event::RunCanceled(_) => Ending::Canceled,
        Event::TerminateRequested(_) => Ending::Terminated,
        _ => Ending::Failed,
    };
    Ended { number: link.call_id.ordinal(), ending, code: result.err().map(|failure| failure.code) }
}

fn to_schedule(schedule: &ParentLink, ended: Ended) -> OutboxMessage {
    let input = Input { incarnation: schedule.incarnation, ..ScheduleInput::Ended(ended).into() }; // SR3
    OutboxMessage::Input { to: schedule.run.clone(), input }
}

impl From<ScheduleInput> for Input {
    fn from(input: ScheduleInput) -> Input {
        Input::new(ScheduleDecided::asked(input))
    }
}

impl RunHead {
    /// Decides on an input to a schedule. On success the head is updated.
    pub(in crate::run) fn admit_to_schedule(&mut self, input: Input, at: Timestamp) -> Result<Admitted, Refusal> {
        let Input { event, incarnation, .. } = input;
        let key = || self.key.clone();
        let Some(schedule) = &self.schedule else {
            return Err(Refusal::Malformed { key: key(), why: "the run is not a schedule" });
        };
        if self.status.is_closed() {
            return Err(Refusal::Closed { key: key(), status: self.status }); // R4
        }
        if incarnation.is_some_and(|incarnation| Some(incarnation) != self.origin_incarnation()) {
            return Err(Refusal::OtherGeneration { key: key() }); // R10
        }
        let mut after = None;
        let mut events = match event {
            Event::TerminateRequested(_) => vec![event],
            Event::ScheduleDecided(decided) => {
                let input = decided.input;
                let Decision { changes, head } = schedule.decide(&input, at).map_err(Refusal::Schedule)?;
                after = Some(head);
                vec![ScheduleDecided { input, changes }.into()]
            }
            _ => return Err(Refusal::Malformed { key: key(), why: "a schedule does not accept it" }),
        };
        let mut successor = None;
        if let Some(head) = after.as_ref().filter(|_| self.next_index.0 >= EVENTS_MAX) {
            events.push(RunContinued { input: Payload::null(), checkpoint: None }.into());
            successor = Some(self.next_schedule_generation(head.clone()));
        }
        let effects = events.iter().flat_map(|event| self.schedule_effects(event)).collect();
        let record = Record { index: self.next_index, at, commit: None, events };
        self.take_schedule_record(&record);
        debug_assert!(after.is_none_or(|after| self.schedule.as_deref() == Some(&after)), "SC9");
        Ok(Admitted { record, effects, successor })
    }

    fn next_schedule_generation(&self, head: ScheduleHead) -> Box<NewRun> {
        let generation = self.generation + 1;
        let started = RunStarted {
            schedule: Some(Box::new(ScheduleStart::Continued(Box::new(head)))),
            generation,
            first_seed: self.origin_incarnation(),
            created_at: Some(self.created_at),
            requester: self.requester.clone(),
            ..RunStarted::new(self.kind.clone(), Payload::null(), self.child_seed(&wake_call()))
        };
        Box::new(NewRun { key: self.key.clone(), started, signal: None })
    }

    /// Updates the head of a schedule by a record that was admitted.
    pub(in crate::run) fn take_schedule_record(&mut self, record: &Record) {
        for event in &record.events {
            match event {
                Event::ScheduleDecided(decided) => {
                    let head = self.schedule.as_mut();
                    head.into_iter().for_each(|head| decided.changes.iter().for_each(|change| head.apply(change, record.at)));
                }
                Event::RunContinued(_) => self.status = Status::Completed,
                Event::TerminateRequested(_) => self.status = Status::Terminated,
                _ => {}
            }
        }
        self.advance(record);
    }

    /// Returns the timer of a schedule, if it has one (SR2).
    pub(super) fn schedule_timer(&self) -> Option<Effect> {
        self.schedule.as_ref().and_then(|schedule| timer(schedule.wake_at))
    }

    /// Returns the effects of an event at a schedule; `self` is the head before it.
    pub(super) fn schedule_effects(&self, event: &Event) -> Vec<Effect> {
        let Some(schedule) = &self.schedule else { return Vec::new() };
        let changes = match event {
            Event::ScheduleDecided(decided) => &decided.changes,
            Event::RunContinued(_) => return vec![Effect::EndRun { goes_on: true }],
            _ => return vec![Effect::EndRun { goes_on: false }],
        };
        // The timer that is due was removed, also if the next one is due at the same time.
        let mut wake_at = schedule.wake_at;
        let mut definition = &schedule.definition;
        let mut effects = Vec::new();
        for change in changes {
            if let ScheduleChange::Defined(defined) = change {
                definition = defined;
            }
            match ScheduleHead::effect(change) {
                None => {}
                Some(ScheduleEffect::Wake(at)) => wake_at = at,
                Some(ScheduleEffect::Start(firing)) => {
                    effects.push(Effect::Send(Box::new(self.start_of(schedule, definition, firing))));
                }
                Some(ScheduleEffect::Cancel { run, .. }) => effects.push(self.stop(run, false)),
                Some(ScheduleEffect::Terminate { run, .. }) => effects.push(self.stop(run, true)),
            }
        }
        effects.push(timer(wake_at).unwrap_or_else(|| Effect::StopTimer { call_id: wake_call() }));
        effects
    }

    /// Returns the start of the run of a firing.
    fn start_of(&self, schedule: &ScheduleHead, definition: &ScheduleDefinition, firing: Firing) -> OutboxMessage {
        let target = &definition.target;
        let call_id = CallId::root(firing.number);
        let started = RunStarted {
            version: target.version.clone(),
            // Runs of all generations report their ends.
            parent: Some(ParentLink {
                incarnation: self.origin_incarnation(),
                ..self.link(&call_id, OnParentClose::Abandon, false)
            }),
            attributes: target.attributes.clone(),
            deadline_ms: target.deadline_ms,
            budget: definition.granted.clone(),
            requester: definition.requester.clone(),
            copied_by: firing.requested_by.iter().cloned().collect(),
            ..RunStarted::new(target.kind.clone(), target.input.clone(), self.child_seed(&call_id))
        };
        let run = NewRun { key: RunKey::new(self.key.namespace.clone(), firing.run.clone()), started, signal: None };
        match target.is_template {
            false => OutboxMessage::Start(run),
            true => {
                let time_zone = definition.spec.time_zone.clone();
                OutboxMessage::StartFromTemplate { run, slot: SlotContext { schedule: schedule.id.clone(), firing, time_zone } }
            }
        }
    }

    /// Returns the effect that ends a run for a later slot.
    fn stop(&self, run: RunId, at_once: bool) -> Effect {
        let schedule = self.schedule.as_ref().map_or("", |schedule| schedule.id.as_str());
        let reason = format!("a later slot of schedule {schedule} is due");
        let event: Event = match at_once {
            true => TerminateRequested { reason, reset_to: None }.into(),
            false => crate::log::event::CancelRequested::new(reason).into(),
        };
        let once = Some(IdempotencyRecord::new(format!("{}:schedule", if at_once { "terminate" } else { "cancel" })));
        let input = Input { once, child_of: Some(self.key.clone()), ..Input::new(event) };
        Effect::Send(Box::new(OutboxMessage::Input { to: RunKey::new(self.key.namespace.clone(), run), input }))
    }

    /// Returns the input of the timer of a schedule.
    pub(super) fn schedule_due(&self) -> Option<Input> {
        self.schedule.as_ref().map(|_| ScheduleInput::Due(ScheduleDue {}).into())
    }
}

fn timer(wake_at: Option<Timestamp>) -> Option<Effect> {
    wake_at.map(|due_at| Effect::StartTimer { call_id: wake_call(), due_at })
}

#[cfg(test)]
mod tests;
