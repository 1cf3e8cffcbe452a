//! Open calls: one [`Call`] per call id without an answer.

use super::{Engine, Wake};
use crate::log::event::{ChildCanceled, TaskCanceled, WaitCanceled};
use crate::task::RetryPolicy;
use crate::{Event, Failure, Hash, Index, Name, Payload, Place, RunId};

/// The identity of a recorded step.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct StepIdentity {
    pub name: Name,
    pub input_hash: Option<Hash>,
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
    Running,
    /// The attempt's result is being committed.
    Reported,
    /// Waits for its next attempt.
    Backoff,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum What {
    Step { identity: StepIdentity, retry: RetryPolicy, attempt: u32, phase: StepPhase },
    Task { kind: Name },
    Timer,
    Signal { pattern: super::Pattern },
    Approval { name: Name },
    Promise { name: Name },
    Child { child: RunId, kind: Name },
    ChildResult { child: RunId },
    Canceled,
}

impl What {
    pub fn describe(&self) -> String {
        match self {
            What::Step { identity, .. } => format!("step `{}`", identity.name),
            What::Task { kind } => format!("task `{kind}`"),
            What::Timer => "a timer".to_owned(),
            What::Signal { pattern } => format!("signal `{pattern}`"),
            What::Approval { name } => format!("approval `{name}`"),
            What::Promise { name } => format!("promise `{name}`"),
            What::Child { child, kind } => format!("child `{kind}` ({child})"),
            What::ChildResult { child } => format!("the result of child {child}"),
            What::Canceled => "cancellation".to_owned(),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Open,
    /// A signal is reserved for this call and will be delivered at its index.
    Reserved(super::mailbox::Signal),
    Ready {
        index: Index,
        result: Result<Payload, Failure>,
        signal: Option<super::mailbox::Signal>,
    },
}

impl Answer {
    /// Returns the signal that is reserved for the call or answers it, until the code takes it.
    pub fn signal(&self) -> Option<&super::mailbox::Signal> {
        match self {
            Answer::Reserved(signal) => Some(signal),
            Answer::Ready { signal, .. } => signal.as_ref(),
            Answer::Open => None,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Call {
    pub what: What,
    pub answer: Answer,
    /// The position of the call's event in `out`, with the number of the activation.
    asked: Option<(u64, usize)>,
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
    pub(super) fn open(&mut self, place: Place, what: What, event: Option<Event>) {
        let asked = event.map(|event| {
            self.out.push(event);
            (self.out_batch, self.out.len() - 1)
        });
        self.calls.insert(place, Call { what, answer: Answer::Open, asked });
    }

    /// Registers a call that fails at once, without an event. The failure must depend on the code only, so that replay gives the
    /// same.
    pub(super) fn open_refused(&mut self, place: Place, what: What, failure: Failure) {
        let answer = Answer::Ready { index: self.delivered.unwrap_or_default(), result: Err(failure), signal: None };
        self.calls.insert(place, Call { what, answer, asked: None });
    }

    /// Sets options of a call. They are recorded, so they must be set before the first await.
    pub fn configure(&mut self, place: &Place, options: Options<'_>) {
        match self.calls.get(place).map(|call| call.asked) {
            Some(None) => {} // a refused call has no event
            Some(Some((batch, position))) if batch == self.out_batch => options(&mut self.out[position]),
            _ => self.misuse("options of a call must be set before anything is awaited after it"),
        }
    }

    /// Answers the call at `place`, if the code still waits for it.
    pub(super) fn answer(&mut self, place: &Place, index: Index, result: Result<Payload, Failure>) -> Option<Wake> {
        let call = self.calls.get_mut(place)?;
        if !matches!(call.answer, Answer::Open) {
            return None;
        }
        call.answer = Answer::Ready { index, result, signal: None };
        Some(Wake::Call(place.clone()))
    }

    /// Takes the answer, which ends the call.
    pub fn poll_call(&mut self, place: &Place) -> Option<Result<Payload, Failure>> {
        self.meet_cancel(place);
        let call = self.calls.get(place)?;
        if !matches!(call.answer, Answer::Ready { .. }) {
            return None;
        }
        self.deferred_steps.remove(place);
        self.cancel.taken(place);
        let Call { what, answer, .. } = self.calls.remove(place)?;
        match answer {
            Answer::Ready { index, result, signal } => {
                self.finished(place, what, index);
                if let Some(signal) = signal {
                    self.consumed(place, &signal);
                }
                Some(result)
            }
            _ => None,
        }
    }

    /// Returns the index of the event that answered the call: it decides which of several calls is first.
    pub fn ready_at(&self, place: &Place) -> Option<Index> {
        match self.calls.get(place)?.answer {
            Answer::Ready { index, .. } => Some(index),
            _ => None,
        }
    }

    pub fn is_open(&self, place: &Place) -> bool {
        self.calls.contains_key(place)
    }

    /// Drops the call at `place`: its future was dropped.
    ///
    /// Tasks and children continue; waits that only the code could use are canceled.
    pub fn drop_call(&mut self, place: &Place) {
        if self.detached {
            return;
        }
        let Some(call) = self.calls.get(place) else { return };
        self.cancel.dropped(place);
        match (&call.what, &call.answer) {
            (What::Step { .. }, _) => self.drop_step(place),
            (What::Signal { .. }, _) => self.drop_signal(place),
            (What::Task { .. } | What::Child { .. } | What::Canceled, _) | (_, Answer::Ready { .. }) => {
                self.calls.remove(place);
            }
            (What::Timer | What::Approval { .. } | What::Promise { .. } | What::ChildResult { .. }, _) => {
                self.calls.remove(place);
                self.out.push(WaitCanceled { place: self.origin_of(place) }.into());
            }
        }
    }

    /// Cancels the call at `place`; awaiting it afterwards fails at once.
    pub fn cancel_call(&mut self, place: &Place) -> CancelOutcome {
        let Some(call) = self.calls.get(place) else { return CancelOutcome::AlreadyCompleted };
        match &call.answer {
            Answer::Ready { result: Err(failure), .. } if failure.is_canceled() => return CancelOutcome::AlreadyCanceled,
            Answer::Ready { .. } => return CancelOutcome::AlreadyCompleted,
            _ => {}
        }
        let message = format!("{} was canceled", call.what.describe());
        self.withdraw_call(place, Failure { retryable: false, ..Failure::new("canceled", message) });
        CancelOutcome::Canceled
    }

    /// Withdraws the open call at `place`; awaiting it fails with `failure`.
    pub fn withdraw_call(&mut self, place: &Place, failure: Failure) {
        let index = self.delivered.unwrap_or_default();
        let origin = self.origin_of(place);
        let Some(call) = self.calls.get_mut(place).filter(|call| matches!(call.answer, Answer::Open | Answer::Reserved(_)))
        else {
            return;
        };
        call.answer = Answer::Ready { index, result: Err(failure), signal: None };
        let event = call.give_up(&origin);
        self.out.extend(event);
        self.wakes.push_back(Wake::Call(place.clone()));
    }

    /// Describes the open calls, for reports.
    pub fn open_calls(&self) -> Vec<String> {
        self.calls.iter().map(|(place, call)| format!("{} at {place}", call.what.describe())).collect()
    }
}

impl Call {
    /// Returns true if the call has an event.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// Returns true if the call was made since the last commit.
    pub(super) fn is_asked_in(&self, out_batch: u64) -> bool {
        self.asked.is_some_and(|(batch, _)| batch == out_batch)
    }

    /// Returns the event that stops the work on this call.
    pub(super) fn give_up(&self, place: &Place) -> Option<Event> {
        let place = place.clone();
        match &self.what {
            What::Task { .. } => Some(TaskCanceled { place }.into()),
            What::Child { child, .. } => Some(ChildCanceled { place, child: child.clone() }.into()),
            What::Timer | What::Signal { .. } | What::Approval { .. } | What::Promise { .. } | What::ChildResult { .. } => {
                Some(WaitCanceled { place }.into())
            }
            What::Step { phase: StepPhase::Backoff, .. } => Some(WaitCanceled { place }.into()),
            What::Step { .. } | What::Canceled => None,
        }
    }
}
