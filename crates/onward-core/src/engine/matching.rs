//! Comparison of the code's calls with the log, and the report of a divergence.
//!
//! A recorded call agrees with one of the code if kind, call id, name and input agree. Options such as retries and timeouts may
//! change between versions of the code.

use super::call::StepIdentity;
use super::{Engine, Fault};
use crate::log::codec::Field;
use crate::log::event::{Checkpoint, Divergence, PromiseCreated, SuspendReason, TaskScheduled};
use crate::{CallId, ErrorCode, Event, Failure, Hash, Index, Payload, Record};

/// The last call on which code and log agreed; described only after a divergence.
#[derive(Debug, Clone)]
pub(super) enum Matched {
    Attempted(Box<Event>),
    Step(StepIdentity, CallId),
}

impl Engine {
    pub(super) fn nearest(&self) -> Option<String> {
        self.last_matched.as_ref().map(|matched| match matched {
            Matched::Attempted(event) => describe(event),
            Matched::Step(identity, call_id) => describe_step(identity, call_id),
        })
    }

    /// Compares the calls of this activation with the recorded commit. Fails if they diverge.
    pub(super) fn match_commit(&mut self, expected: Record) -> Result<(), Fault> {
        if expected.commit.is_some_and(|commit| commit.is_while_paused) {
            // The calls of the code come with the next commit that was not made while paused (N7).
            self.next_commit += 1;
            self.pass_identity();
            return Ok(());
        }
        self.adopt_requested();
        let mut attempted = self.take_out();
        self.match_marker(&expected);
        let postponed =
            matches!(expected.events.last(), Some(Event::RunSuspended(last)) if last.reason == SuspendReason::Continuing);
        let end = attempted.pop_if(|event| postponed && matches!(event, Event::RunContinued(_)));
        let mut attempted = attempted.into_iter();
        for (index, recorded) in expected.indexed().filter(|(_, event)| is_requested(event)) {
            match attempted.next() {
                Some(event) if recorded == &event || self.is_same(recorded, &event) => {
                    self.last_matched = Some(Matched::Attempted(Box::new(event)))
                }
                other => {
                    let attempted = other.as_ref().map(describe);
                    return Err(self.diverged(index, describe(recorded), attempted));
                }
            }
        }
        if let Some(extra) = attempted.next() {
            // A recorded step that the code did not call is a better report than "nothing more".
            let missing = expected.indexed().find_map(|(index, event)| Some((index, self.missing_step(event)?)));
            let (index, recorded) = missing.unwrap_or_else(|| (expected.next_index(), "nothing more at this point".to_owned()));
            return Err(self.diverged(index, recorded, Some(describe(&extra))));
        }
        self.next_commit += 1;
        self.pass_identity();
        self.settle();
        self.unsettled = matches!(expected.events.first(), Some(Event::SegmentAbandoned(_)));
        self.out.extend(end);
        Ok(())
    }

    /// Returns true if both events are the same call, though their bytes differ.
    fn is_same(&self, recorded: &Event, attempted: &Event) -> bool {
        if is_refused_answer(recorded, attempted) {
            return true;
        }
        if !self.strict {
            return agrees(recorded, attempted);
        }
        match (recorded, attempted) {
            // Options that the code did not set come from its kind.
            (Event::TaskScheduled(task), Event::TaskScheduled(own)) => {
                let own = TaskScheduled { options: own.options.filled_as(&task.options), ..own.clone() };
                canonical(recorded) == canonical(&own.into())
            }
            _ => canonical(recorded) == canonical(attempted),
        }
    }

    /// Compares a recorded step result with the step that the code called at its call id. Fails if they diverge.
    pub(super) fn match_step(&mut self, index: Index, call_id: &CallId, recorded: &StepIdentity) -> Result<(), Fault> {
        let attempted = match self.calls.get(call_id) {
            Some(call) => match &call.what {
                super::call::CallDetails::Step { identity, .. } if identity == recorded => None,
                super::call::CallDetails::Step { identity, .. } => Some(describe_step(identity, call_id)),
                other => Some(format!("{} at {call_id}", other.describe())),
            },
            None => match self.dropped_steps.get(call_id) {
                Some((identity, _)) if identity == recorded => None,
                Some((identity, _)) => Some(describe_step(identity, call_id)),
                None => return Err(self.diverged(index, describe_step(recorded, call_id), None)),
            },
        };
        match attempted {
            None => {
                self.last_matched = Some(Matched::Step(recorded.clone(), call_id.clone()));
                Ok(())
            }
            attempted => Err(self.diverged(index, describe_step(recorded, call_id), attempted)),
        }
    }

    /// Describes the recorded step if the code has not called one at its call id.
    fn missing_step(&self, event: &Event) -> Option<String> {
        let (identity, call_id) = StepIdentity::of(event)?;
        let attempted =
            matches!(self.calls.get(call_id), Some(super::call::Call { what: super::call::CallDetails::Step { .. }, .. }));
        let known = attempted || self.dropped_steps.contains_key(call_id);
        (!known).then(|| describe_step(&identity, call_id))
    }

    fn diverged(&self, index: Index, recorded: String, attempted: Option<String>) -> Fault {
        let attempted = attempted.unwrap_or_else(|| self.nothing_attempted());
        let hint = format!(
            "the code changed while this run was open, or it depends on something that is not recorded (time, randomness, \
             environment, map order); deploy the change under `ctx.version` or as a new version, then `onward run resume {}`",
            self.key.id
        );
        Fault::Diverged(Box::new(Divergence { index, recorded, attempted, nearest: self.nearest(), hint }))
    }

    fn nothing_attempted(&self) -> String {
        if self.ended {
            return "nothing: the code had returned".to_owned();
        }
        let open = self.open_calls();
        if open.is_empty() { "nothing".to_owned() } else { format!("nothing: the code waits for {}", open.join(", ")) }
    }
}

/// Returns true for calls of the code, false for step results and markers.
fn is_requested(event: &Event) -> bool {
    !event.is_step_result() && !matches!(event, Event::RunSuspended(_) | Event::SegmentAbandoned(_))
}

/// Returns true if the worker recorded that the answer of an update does not fit its schema. Replay does not compare answers with
/// schemas, so the code gives the answer again, and what is recorded stays (KI6).
fn is_refused_answer(recorded: &Event, attempted: &Event) -> bool {
    let (Event::UpdateAnswered(recorded), Event::UpdateAnswered(attempted)) = (recorded, attempted) else { return false };
    let is_refused = recorded.result.as_ref().is_err_and(|failure| failure.code == ErrorCode::OutputInvalid);
    recorded.update_id == attempted.update_id && is_refused && attempted.result.is_ok()
}

fn agrees(recorded: &Event, attempted: &Event) -> bool {
    match (recorded, attempted) {
        (Event::TaskScheduled(a), Event::TaskScheduled(b)) => {
            (&a.call_id, &a.kind, a.input_hash) == (&b.call_id, &b.kind, b.input_hash)
        }
        (Event::ChildStarted(a), Event::ChildStarted(b)) => {
            (&a.call_id, &a.kind, &a.child, a.input_hash) == (&b.call_id, &b.kind, &b.child, b.input_hash)
        }
        (Event::ApprovalRequested(a), Event::ApprovalRequested(b)) => {
            (&a.call_id, &a.name, &a.title, &a.description, a.bound_to)
                == (&b.call_id, &b.name, &b.title, &b.description, b.bound_to)
                && same(a.show.as_ref(), b.show.as_ref())
        }
        (Event::PromiseCreated(a), Event::PromiseCreated(b)) => (&a.call_id, &a.name, &a.key) == (&b.call_id, &b.name, &b.key),
        (Event::SignalAwaited(a), Event::SignalAwaited(b)) => {
            (&a.call_id, &a.name, a.is_pattern) == (&b.call_id, &b.name, b.is_pattern)
        }
        (Event::StateSet(a), Event::StateSet(b)) => {
            (&a.call_id, &a.key) == (&b.call_id, &b.key) && same(Some(&a.value), Some(&b.value))
        }
        (Event::SignalSent(a), Event::SignalSent(b)) => {
            (&a.call_id, &a.to, &a.name) == (&b.call_id, &b.to, &b.name) && same(Some(&a.payload), Some(&b.payload))
        }
        (Event::UpdateAnswered(a), Event::UpdateAnswered(b)) => {
            a.update_id == b.update_id
                && same(a.result.as_ref().ok(), b.result.as_ref().ok())
                && a.result.is_ok() == b.result.is_ok()
        }
        (Event::AttributeSet(a), Event::AttributeSet(b)) => a == b,
        (Event::MemoRequested(a), Event::MemoRequested(b)) => {
            (&a.call_id, a.of_type, &a.name, a.scope, &a.key) == (&b.call_id, b.of_type, &b.name, b.scope, &b.key)
        }
        (Event::MemoStored(a), Event::MemoStored(b)) => a.call_id == b.call_id && same(Some(&a.output), Some(&b.output)),
        // The recorded budget applies, even if newer code would set another one.
        (Event::BudgetSet(a), Event::BudgetSet(b)) => a.call_id == b.call_id,
        (Event::RunCompleted(a), Event::RunCompleted(b)) => same(Some(&a.output), Some(&b.output)),
        (Event::RunContinued(a), Event::RunContinued(b)) => {
            let state = |checkpoint: &Option<Box<Checkpoint>>| {
                checkpoint.as_ref().map(|checkpoint| (Hash::of(&checkpoint.state), checkpoint.handoff.clone()))
            };
            same(Some(&a.input), Some(&b.input)) && state(&a.checkpoint) == state(&b.checkpoint)
        }
        (Event::EntryAppended(a), Event::EntryAppended(b)) => (&a.call_id, a.id, a.is_aside) == (&b.call_id, b.id, b.is_aside),
        // The message of a failure may differ between builds; its code may not.
        (Event::RunFailed(a), Event::RunFailed(b)) => a.failure.code == b.failure.code,
        (Event::RunCanceled(_), Event::RunCanceled(_)) => true,
        _ => false,
    }
}

fn same(a: Option<&Payload>, b: Option<&Payload>) -> bool {
    a == b || a.map(Hash::of) == b.map(Hash::of)
}

/// Returns the event with its payloads in canonical form: the order of a hash map is no divergence (ADR 0003).
pub fn canonical(event: &Event) -> Event {
    let mut event = event.clone();
    event.visit_payloads_mut(&mut |payload| *payload = payload.canonical());
    if let Some(failure) = event.failure_mut() {
        failure.diagnosis = None; // not every reader of a log gets it
    }
    event
}

/// Returns a result with its payload in canonical form.
pub fn canonical_result(result: &Result<Payload, Failure>) -> Result<Payload, Failure> {
    let mut result = result.clone();
    result.visit_payloads_mut(&mut |payload| *payload = payload.canonical());
    result.map_err(|failure| Failure { diagnosis: None, ..failure })
}

fn describe_step(identity: &StepIdentity, call_id: &CallId) -> String {
    match identity.input_hash {
        Some(hash) => format!("step `{}` at {call_id} with input {}", identity.name, short(&hash)),
        None => format!("step `{}` at {call_id}", identity.name),
    }
}

fn short(hash: &Hash) -> String {
    hash.to_string()[..8].to_owned()
}

/// Describes a call for people, with the values that are compared.
pub fn describe(event: &Event) -> String {
    let value = |payload: &Payload| {
        let text = format!("{payload:?}");
        if text.len() <= 60 { text } else { format!("{}…", text.chars().take(60).collect::<String>()) }
    };
    match event {
        Event::TaskScheduled(e) => format!("task `{}` at {} with input {}", e.kind, e.call_id, value(&e.input)),
        Event::TaskCanceled(e) => format!("canceling the task at {}", e.call_id),
        Event::TimerStarted(e) => format!("a timer at {} due {}", e.call_id, e.due_at),
        Event::SignalAwaited(e) => format!("waiting for signal `{}` at {}", e.name, e.call_id),
        Event::SignalConsumed(e) => format!("consuming signal `{}` (event {}) at {}", e.name, e.index, e.call_id),
        Event::ApprovalRequested(e) => format!("approval `{}` at {}: {}", e.name, e.call_id, e.title),
        Event::PromiseCreated(PromiseCreated { call_id, name, key: Some(key), .. }) => {
            format!("promise `{name}` at {call_id} with key `{key}`")
        }
        Event::PromiseCreated(e) => format!("promise `{}` at {}", e.name, e.call_id),
        Event::WaitCanceled(e) => format!("canceling the wait at {}", e.call_id),
        Event::StateSet(e) => format!("state `{}` = {} at {}", e.key, value(&e.value), e.call_id),
        Event::StateCleared(e) => format!("clearing state `{}` at {}", e.key, e.call_id),
        Event::AttributeSet(e) => match &e.value {
            Some(value) => format!("attribute `{}` = {value} at {}", e.name, e.call_id),
            None => format!("clearing attribute `{}` at {}", e.name, e.call_id),
        },
        Event::BudgetSet(e) => format!("the budget {} at {}", e.budget, e.call_id),
        Event::ChildStarted(e) => format!("child `{}` ({}) at {} with input {}", e.kind, e.child, e.call_id, value(&e.input)),
        Event::ChildCanceled(e) => format!("canceling child {} at {}", e.child, e.call_id),
        Event::ChildAwaited(e) => format!("the result of child {} at {}", e.child, e.call_id),
        Event::SignalSent(e) => format!("signal `{}` to {} at {} with {}", e.name, e.to, e.call_id, value(&e.payload)),
        Event::VersionChosen(e) => format!("version {} of `{}`", e.version, e.change),
        Event::UpdateAnswered(e) => format!("the answer to update {}", e.update_id),
        Event::RunCompleted(e) => format!("the end of the run with {}", value(&e.output)),
        Event::RunFailed(e) => format!("the failure of the run: {}", e.failure),
        Event::RunCanceled(_) => "the cancellation of the run".to_owned(),
        Event::RunContinued(e) => match &e.checkpoint {
            Some(checkpoint) if checkpoint.handoff.is_some() => {
                format!("handing over to `{}`", checkpoint.handoff.as_ref().map_or("", |kind| kind.as_str()))
            }
            Some(checkpoint) => format!("the checkpoint {}", value(&checkpoint.state)),
            None => format!("continuing as new with {}", value(&e.input)),
        },
        Event::EntryAppended(e) => format!("the {} entry {} at {}", e.role, value(&e.content), e.call_id),
        Event::MemoRequested(e) => format!("the memo of {} `{}` at {} with key `{}`", e.of_type, e.name, e.call_id, e.key),
        Event::MemoStored(e) => format!("the memo of the result at {}", e.call_id),
        Event::MemoReleased(e) => format!("giving up the memo at {}", e.call_id),
        Event::CallAdopted(e) => format!("taking over the call at {} at {}", e.from, e.call_id),
        other => match StepIdentity::of(other) {
            Some((identity, call_id)) => describe_step(&identity, call_id),
            None => other.name().replace('_', " "),
        },
    }
}
