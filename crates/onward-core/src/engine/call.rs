//! Open calls: one [`Call`] per call id without an answer.

use super::memo::CallMemo;
use super::{Engine, Wake};
use crate::log::event::{ChildCanceled, TaskCanceled, WaitCanceled};
use crate::task::RetryPolicy;
use crate::{CallId, Event, Failure, Hash, Index, Name, Payload, RunId, Timestamp};

/// The identity of a recorded step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepIdentity {
    pub name: Name,
    pub input_hash: Option<Hash>,
}

impl StepIdentity {
    /// Returns the step of a recorded result, with its call id.
    pub fn of(event: &Event) -> Option<(StepIdentity, &CallId)> {
        let (call_id, name, input_hash) = match event {
            Event::StepCompleted(event) => (&event.call_id, &event.name, event.input_hash),
            Event::StepFailed(event) => (&event.call_id, &event.name, event.input_hash),
            _ => return None,
        };
        Some((StepIdentity { name: name.clone(), input_hash }, call_id))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepPhase {
    /// Not begun by this process.
    Idle {
        /// A process that is gone may have begun it (N9).
        maybe_begun: bool,
        /// A cancellation request was there before the call.
        behind_request: bool,
    },
    /// The closure runs since this time.
    Running(Timestamp),
    /// The attempt's result is being committed.
    Reported,
    /// Waits for its next attempt.
    Backoff,
    /// Waits for its memo.
    Asks,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallDetails {
    Step {
        identity: StepIdentity,
        retry: RetryPolicy,
        attempt: u32,
        phase: StepPhase,
        /// Recorded with each result.
        input: Option<Payload>,
    },
    Task {
        kind: Name,
    },
    Timer,
    Signal {
        pattern: super::Pattern,
    },
    Approval {
        name: Name,
    },
    Promise {
        name: Name,
    },
    Child {
        child: RunId,
        kind: Name,
    },
    ChildResult {
        child: RunId,
    },
    Canceled,
}

impl CallDetails {
    pub fn describe(&self) -> String {
        match self {
            CallDetails::Step { identity, .. } => format!("step `{}`", identity.name),
            CallDetails::Task { kind } => format!("task `{kind}`"),
            CallDetails::Timer => "a timer".to_owned(),
            CallDetails::Signal { pattern } => format!("signal `{pattern}`"),
            CallDetails::Approval { name } => format!("approval `{name}`"),
            CallDetails::Promise { name } => format!("promise `{name}`"),
            CallDetails::Child { child, kind } => format!("child `{kind}` ({child})"),
            CallDetails::ChildResult { child } => format!("the result of child {child}"),
            CallDetails::Canceled => "cancellation".to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum CallState {
    Open,
    /// A signal is reserved for this call and will be delivered at its index.
    Reserved(super::mailbox::Signal),
    Ready {
        index: Index,
        result: Result<Payload, Failure>,
        signal: Option<super::mailbox::Signal>,
    },
}

impl CallState {
    /// Returns the signal that is reserved for the call or answers it, until the code takes it.
    pub fn signal(&self) -> Option<&super::mailbox::Signal> {
        match self {
            CallState::Reserved(signal) => Some(signal),
            CallState::Ready { signal, .. } => signal.as_ref(),
            CallState::Open => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub what: CallDetails,
    pub answer: CallState,
    pub memo: Option<CallMemo>,
    /// The position of the call's event in `out`, with the number of the activation.
    request: Option<(u64, usize)>,
}

/// The result of canceling a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    Canceled,
    AlreadyCompleted,
    AlreadyCanceled,
}

/// Changes the event of a call before it is committed.
pub type Options<'a> = &'a mut dyn FnMut(&mut Event);

impl Engine {
    /// Registers a call and its event.
    pub(super) fn open(&mut self, call_id: CallId, what: CallDetails, event: Option<Event>) {
        let request = event.map(|event| {
            self.out.push(event);
            (self.out_batch, self.out.len() - 1)
        });
        self.calls.insert(call_id, Call { what, answer: CallState::Open, memo: None, request });
    }

    /// Registers a call that fails at once, without an event. The failure must depend on the code only, so that replay gives the
    /// same.
    pub(super) fn open_refused(&mut self, call_id: CallId, what: CallDetails, failure: Failure) {
        let answer = CallState::Ready { index: self.delivered.unwrap_or_default(), result: Err(failure), signal: None };
        self.calls.insert(call_id, Call { what, answer, memo: None, request: None });
    }

    /// Sets options of a call. They are recorded, so they must be set before the first await.
    pub fn configure(&mut self, call_id: &CallId, options: Options<'_>) {
        if let Some(task) = self.held_task(call_id) {
            options(task);
            return self.check_memo_class(call_id);
        }
        match self.calls.get(call_id).map(|call| call.request) {
            Some(None) => {} // a refused call has no event
            Some(Some((batch, position))) if batch == self.out_batch => options(&mut self.out[position]),
            _ => self.misuse("options of a call must be set before anything is awaited after it"),
        }
    }

    /// Answers the call at `call_id`, if the code still waits for it.
    pub(super) fn answer(&mut self, call_id: &CallId, index: Index, result: Result<Payload, Failure>) -> Option<Wake> {
        let call = self.calls.get_mut(call_id)?;
        if !matches!(call.answer, CallState::Open) {
            return None;
        }
        call.answer = CallState::Ready { index, result, signal: None };
        Some(Wake::Call(call_id.clone()))
    }

    /// Takes the answer, which ends the call.
    pub fn poll_call(&mut self, call_id: &CallId) -> Option<Result<Payload, Failure>> {
        self.meet_cancel(call_id);
        let call = self.calls.get(call_id)?;
        if !matches!(call.answer, CallState::Ready { .. }) {
            return None;
        }
        self.deferred_steps.remove(call_id);
        self.cancel.taken(call_id);
        let Call { what, answer, .. } = self.calls.remove(call_id)?;
        match answer {
            CallState::Ready { index, result, signal } => {
                self.finished(call_id, what, index);
                if let Some(signal) = signal {
                    self.consumed(call_id, &signal);
                }
                Some(result)
            }
            _ => None,
        }
    }

    /// Returns the index of the event that answered the call: it decides which of several calls is first.
    pub fn ready_at(&self, call_id: &CallId) -> Option<Index> {
        match self.calls.get(call_id)?.answer {
            CallState::Ready { index, .. } => Some(index),
            _ => None,
        }
    }

    pub fn is_open(&self, call_id: &CallId) -> bool {
        self.calls.contains_key(call_id)
    }

    /// Drops the call at `call_id`: its future was dropped.
    ///
    /// Tasks and children continue; waits that only the code could use are canceled.
    pub fn drop_call(&mut self, call_id: &CallId) {
        if self.detached {
            return;
        }
        let Some(call) = self.calls.get_mut(call_id) else { return };
        self.out.extend(call.release_memo(call_id));
        self.cancel.dropped(call_id);
        match (&call.what, &call.answer) {
            (CallDetails::Step { .. }, _) => self.drop_step(call_id),
            (CallDetails::Signal { .. }, _) => self.drop_signal(call_id),
            (CallDetails::Task { .. } | CallDetails::Child { .. } | CallDetails::Canceled, _) | (_, CallState::Ready { .. }) => {
                self.calls.remove(call_id);
            }
            (
                CallDetails::Timer | CallDetails::Approval { .. } | CallDetails::Promise { .. } | CallDetails::ChildResult { .. },
                _,
            ) => {
                self.calls.remove(call_id);
                self.out.push(WaitCanceled { call_id: self.origin_of(call_id) }.into());
            }
        }
    }

    /// Cancels the call at `call_id`; awaiting it afterwards fails at once.
    pub fn cancel_call(&mut self, call_id: &CallId) -> CancelOutcome {
        let Some(call) = self.calls.get(call_id) else { return CancelOutcome::AlreadyCompleted };
        match &call.answer {
            CallState::Ready { result: Err(failure), .. } if failure.is_canceled() => return CancelOutcome::AlreadyCanceled,
            CallState::Ready { .. } => return CancelOutcome::AlreadyCompleted,
            _ => {}
        }
        let message = format!("{} was canceled", call.what.describe());
        self.withdraw_call(call_id, Failure { retryable: false, ..Failure::new("canceled", message) });
        CancelOutcome::Canceled
    }

    /// Withdraws the open call at `call_id`; awaiting it fails with `failure`.
    pub fn withdraw_call(&mut self, call_id: &CallId, failure: Failure) {
        let index = self.delivered.unwrap_or_default();
        let origin = self.origin_of(call_id);
        let Some(call) =
            self.calls.get_mut(call_id).filter(|call| matches!(call.answer, CallState::Open | CallState::Reserved(_)))
        else {
            return;
        };
        let events = call.give_up(&origin);
        call.answer = CallState::Ready { index, result: Err(failure), signal: None };
        self.out.extend(events);
        self.wakes.push_back(Wake::Call(call_id.clone()));
    }

    /// Describes the open calls, for reports.
    pub fn open_calls(&self) -> Vec<String> {
        self.calls.iter().map(|(call_id, call)| format!("{} at {call_id}", call.what.describe())).collect()
    }
}

impl Call {
    /// Returns true if the call has an event.
    pub(super) fn is_requested(&self) -> bool {
        self.request.is_some()
    }

    /// Returns true if the call was made since the last commit.
    pub(super) fn is_requested_in(&self, out_batch: u64) -> bool {
        self.request.is_some_and(|(batch, _)| batch == out_batch)
    }

    /// Returns the events that stop the work on this call, and take its memo.
    pub(super) fn give_up(&mut self, call_id: &CallId) -> Vec<Event> {
        let work = self.stop_work(call_id);
        self.release_memo(call_id).into_iter().chain(work).collect()
    }

    fn stop_work(&self, call_id: &CallId) -> Option<Event> {
        let call_id = call_id.clone();
        match &self.what {
            // It was not scheduled.
            CallDetails::Task { .. } if matches!(self.memo, Some(CallMemo::Asked { .. })) => None,
            CallDetails::Task { .. } => Some(TaskCanceled { call_id }.into()),
            CallDetails::Child { child, .. } => Some(ChildCanceled { call_id, child: child.clone() }.into()),
            CallDetails::Timer
            | CallDetails::Signal { .. }
            | CallDetails::Approval { .. }
            | CallDetails::Promise { .. }
            | CallDetails::ChildResult { .. } => Some(WaitCanceled { call_id }.into()),
            CallDetails::Step { phase: StepPhase::Backoff, .. } => Some(WaitCanceled { call_id }.into()),
            CallDetails::Step { .. } | CallDetails::Canceled => None,
        }
    }
}
