//! Steps: side effects that run inside the worker and are recorded once.
//!
//! A step's result is delivered from the log like everything else: the worker reports what the closure returned, the report is
//! committed, and only the durable event answers the call.

use super::call::{Call, CallDetails, CallState, StepIdentity, StepPhase};
use super::{Engine, Wake};
use crate::log::event::{StepCompleted, StepFailed, WaitCanceled};
use crate::run::live::RunningStep;
use crate::task::RetryPolicy;
use crate::{CallId, Event, Failure, Hash, Index, Name, Payload, Timestamp};

/// The worker's action for a polled step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepPoll {
    /// The recorded result; the closure must not run.
    Recorded(Result<Payload, Failure>),
    /// Run the closure now, as this attempt; report with [`Engine::report_step`].
    Start {
        attempt: u32,
    },
    Pending,
}

impl Engine {
    pub fn open_step(&mut self, name: Name) -> CallId {
        let call_id = self.next_call_id();
        let identity = StepIdentity { name, input_hash: None };
        let phase = self.not_begun();
        let what = CallDetails::Step { identity, retry: RetryPolicy::default(), attempt: 1, phase, input: None };
        self.open(call_id.clone(), what, None);
        call_id
    }

    /// Returns the phase of a step before its next attempt. Another process may have begun the attempt, unless this one has
    /// passed the end of the log, or nothing was recorded (N9).
    fn not_begun(&self) -> StepPhase {
        let has_recorded_nothing = self.next_commit == 0 && self.is_live();
        StepPhase::Idle { maybe_begun: !self.was_live && !has_recorded_nothing, behind_request: self.is_canceled() }
    }

    pub fn set_step_retry(&mut self, call_id: &CallId, policy: RetryPolicy) {
        if let Some(Call { what: CallDetails::Step { retry, .. }, .. }) = self.calls.get_mut(call_id) {
            *retry = policy;
        }
    }

    pub fn set_step_input(&mut self, call_id: &CallId, input: Hash) {
        if let Some(Call { what: CallDetails::Step { identity, .. }, .. }) = self.calls.get_mut(call_id) {
            identity.input_hash = Some(input);
        }
    }

    /// Records this input with the results of the step. It is for people: replay does not compare it.
    pub fn record_step_input(&mut self, call_id: &CallId, recorded: Payload) {
        if let Some(Call { what: CallDetails::Step { input, .. }, .. }) = self.calls.get_mut(call_id) {
            *input = Some(recorded);
        }
    }

    /// Returns the input that is recorded with the results of an open step.
    pub fn recorded_step_input(&self, call_id: &CallId) -> Option<Payload> {
        match self.calls.get(call_id) {
            Some(Call { what: CallDetails::Step { input, .. }, .. }) => input.clone(),
            _ => None,
        }
    }

    pub fn poll_step(&mut self, call_id: &CallId) -> StepPoll {
        if let Some(result) = self.poll_call(call_id) {
            return StepPoll::Recorded(result);
        }
        if self.step_is_adopted(call_id) {
            return StepPoll::Pending;
        }
        let caught_up = self.batch.is_empty() && self.queue.is_empty() && self.expected.is_none() && self.in_flight.is_none();
        let may_start = caught_up && !self.polled && !self.is_paused();
        let Some(Call { what: CallDetails::Step { attempt, phase, .. }, .. }) = self.calls.get_mut(call_id) else {
            return StepPoll::Pending;
        };
        if !matches!(phase, StepPhase::Idle { .. }) {
            return StepPoll::Pending;
        }
        if !may_start {
            self.deferred_steps.insert(call_id.clone()); // N2, N6
            return StepPoll::Pending;
        }
        *phase = StepPhase::Running(self.now);
        self.running_steps += 1;
        StepPoll::Start { attempt: *attempt }
    }

    /// Sets the time at which the attempt at `call_id` began, for readers of the run; by default that of the last event.
    pub fn set_step_start(&mut self, call_id: &CallId, at: Timestamp) {
        if let Some(Call { what: CallDetails::Step { phase: StepPhase::Running(since), .. }, .. }) = self.calls.get_mut(call_id) {
            *since = at;
        }
    }

    /// Returns the steps that run now.
    pub fn steps_under_way(&self) -> Vec<RunningStep> {
        let running = |(call_id, call): (&CallId, &Call)| match &call.what {
            CallDetails::Step { identity, attempt, input, phase: StepPhase::Running(started_at), .. } => Some(RunningStep {
                call_id: call_id.clone(),
                name: identity.name.clone(),
                attempt: *attempt,
                started_at: *started_at,
                input: input.clone(),
            }),
            _ => None,
        };
        self.calls.iter().filter_map(running).collect()
    }

    /// Returns true if an abandoned part of the log has the result of the step, which then comes with the next commit.
    pub(super) fn step_is_adopted(&mut self, call_id: &CallId) -> bool {
        let Some(Call { what: CallDetails::Step { identity, phase: StepPhase::Idle { .. }, .. }, .. }) = self.calls.get(call_id)
        else {
            return false;
        };
        let StepIdentity { name, input_hash } = identity.clone();
        let is_adopted = self.adopt_step(call_id, &name, input_hash);
        if is_adopted && let Some(Call { what: CallDetails::Step { phase, .. }, .. }) = self.calls.get_mut(call_id) {
            *phase = StepPhase::Reported;
        }
        is_adopted
    }

    /// Reports the result of the closure for the attempt that runs at `call_id`.
    pub fn report_step(&mut self, call_id: &CallId, result: Result<Payload, Failure>, took_ms: u64) {
        let now = self.now;
        let Some(Call { what: CallDetails::Step { identity, retry, attempt, phase, input }, .. }) = self.calls.get_mut(call_id)
        else {
            return;
        };
        *phase = StepPhase::Reported;
        self.running_steps -= 1;
        let StepIdentity { name, input_hash } = identity.clone();
        let (call_id, attempt, input) = (call_id.clone(), *attempt, input.clone());
        let event: Event = match result {
            Ok(output) => StepCompleted { call_id, name, input_hash, output, attempt, took_ms, input }.into(),
            Err(failure) => {
                let failure = failure.bounded();
                // `now` is the time of the last event; the retry delay counts from the end of the step.
                let ended = now.after(std::time::Duration::from_millis(took_ms));
                let retry_at = retry.next_attempt(attempt, &failure, ended);
                StepFailed { call_id, name, input_hash, failure, attempt, took_ms, retry_at, input }.into()
            }
        };
        self.out.push(event);
    }

    /// Replaces the result in flight of the step at `call_id`, which the store cannot accept, by a failure without retry: its
    /// effect has happened. The commit is then passed to the store again.
    pub fn fail_reported(&mut self, call_id: &CallId, failure: Failure) {
        let Some(events) = &mut self.in_flight else { return };
        let reported = |event: &&mut Event| matches!(event, Event::StepCompleted(step) if step.call_id == *call_id);
        let Some(event) = events.iter_mut().find(reported) else { return };
        if let Event::StepCompleted(StepCompleted { call_id, name, input_hash, attempt, took_ms, .. }) = event.clone() {
            let failure = Failure { retryable: false, ..failure.bounded() };
            *event = StepFailed { call_id, name, input_hash, failure, attempt, took_ms, retry_at: None, input: None }.into();
        }
    }

    pub(super) fn step_completed(&mut self, index: Index, event: StepCompleted) -> Result<Option<Wake>, super::Fault> {
        let identity = StepIdentity { name: event.name.clone(), input_hash: event.input_hash };
        self.match_step(index, &event.call_id, &identity)?;
        self.memo_ended(&event.call_id, Some(&event.output));
        Ok(self.answer(&event.call_id, index, Ok(event.output)))
    }

    pub(super) fn step_failed(&mut self, index: Index, event: StepFailed) -> Result<Option<Wake>, super::Fault> {
        let identity = StepIdentity { name: event.name.clone(), input_hash: event.input_hash };
        self.match_step(index, &event.call_id, &identity)?;
        if event.retry_at.is_none() {
            self.memo_ended(&event.call_id, None);
            return Ok(self.answer(&event.call_id, index, Err(event.failure)));
        }
        if let Some(Call { what: CallDetails::Step { attempt, phase, .. }, .. }) = self.calls.get_mut(&event.call_id) {
            *attempt = event.attempt.saturating_add(1);
            *phase = StepPhase::Backoff;
        } else {
            // The code dropped the step while its report was in flight: no retry is needed.
            self.stop_timer(&event.call_id);
        }
        Ok(None)
    }

    fn stop_timer(&mut self, call_id: &CallId) {
        self.out.push(WaitCanceled { call_id: call_id.clone() }.into());
    }

    /// Ends the delay before the next attempt, or the wait for the memo.
    pub(super) fn step_due(&mut self, call_id: &CallId) -> Option<Wake> {
        let not_begun = self.not_begun();
        let Some(Call { what: CallDetails::Step { phase, .. }, answer: CallState::Open, .. }) = self.calls.get_mut(call_id)
        else {
            return None;
        };
        *phase = not_begun;
        Some(Wake::Call(call_id.clone()))
    }

    /// Drops the step. A running closure is dropped with its future.
    pub(super) fn drop_step(&mut self, call_id: &CallId) {
        let Some(Call { what: CallDetails::Step { identity, phase, .. }, answer, .. }) = self.calls.remove(call_id) else {
            return;
        };
        self.deferred_steps.remove(call_id);
        match phase {
            StepPhase::Running(_) => self.running_steps -= 1,
            StepPhase::Backoff if matches!(answer, CallState::Open) => self.stop_timer(call_id),
            _ => {}
        }
        self.dropped_steps.insert(call_id.clone(), (identity, self.next_commit));
    }
}
