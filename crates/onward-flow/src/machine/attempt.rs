//! Attempts of an item: the call, the sleep beside it that limits its time, and the sleep before another attempt.

use serde_json::Value;

use super::Machine;
use super::calls::{CallRole, Owner};
use super::each::Outcome;
use super::outcome::{self, Accepted};
use super::path::PathId;
use super::plan::{KindPlan, StepPlan};
use super::request;
use super::turn::{CallId, CallRequest, FlowFailure};

/// An attempt that is under way, or the sleep before it.
#[derive(Debug)]
pub struct ItemAttempt {
    number: u32,
    /// The number of calls of the model in this attempt.
    questions: u32,
    call: CallId,
    limit: Option<CallId>,
    /// The bytes of the input of the call. The sleep before another attempt counts for them too: the input is sent again.
    bytes: usize,
}

impl ItemAttempt {
    /// Returns the calls of the attempt that may be open.
    pub fn into_calls(self) -> impl Iterator<Item = CallId> {
        std::iter::once(self.call).chain(self.limit)
    }
}

impl Machine {
    /// Begins an attempt of an item. Returns the outcome if it needs no call.
    pub(super) fn attempt(&mut self, path: PathId, item: u32, number: u32) -> Outcome {
        let plan = self.plan.clone();
        let work = self.work(path)?;
        let (step, scope) = (&plan.steps[work.step], work.scope(&plan.steps[work.step], item));
        if let KindPlan::Set(set) = &step.kind {
            return Some(self.set(path, set, &scope));
        }
        let label = work.label(step, item);
        let request = request::of_step(step, &scope, &label).and_then(|request| Ok((request, request::memo_of(step, &scope)?)));
        let (request, memo) = match request {
            Ok(request) => request,
            Err(failure) => return Some(Err(failure)),
        };
        let bytes = request.bytes();
        let call = self.calls.open(Owner::Item { path, item, role: CallRole::Work }, label.clone(), request, bytes);
        self.calls.set_memo(memo);
        let limit = machine_timeout(step).map(|ms| {
            let owner = Owner::Item { path, item, role: CallRole::Limit };
            self.calls.open(owner, format!("{label}.timeout"), CallRequest::Sleep { ms }, 0)
        });
        self.work(path)?.open.insert(item, ItemAttempt { number, questions: 1, call, limit, bytes });
        None
    }

    /// Takes the answer of a call of an item.
    pub(super) fn answer_item(&mut self, path: PathId, item: u32, role: CallRole, result: Result<Value, FlowFailure>) {
        let outcome = match role {
            CallRole::Work => self.answer_work(path, item, result),
            CallRole::Limit => self.answer_limit(path, item, result),
            CallRole::Backoff => self.answer_backoff(path, item, result),
        };
        let Some(outcome) = outcome else { return };
        self.close_attempt(path, item);
        let outcome = match self.settle(path, item, outcome) {
            Some(failure) => Some(Err(failure)),
            None => self.fill(path),
        };
        if let Some(outcome) = outcome {
            self.end_step(path, outcome);
        }
    }

    fn answer_work(&mut self, path: PathId, item: u32, result: Result<Value, FlowFailure>) -> Outcome {
        let plan = self.plan.clone();
        let work = self.work(path)?;
        let step = &plan.steps[work.step];
        let questions = work.open.get(&item)?.questions;
        match result.and_then(|answer| outcome::accepted(step, answer, questions)) {
            Ok(Accepted::Result(result)) => Some(Ok(result)),
            Ok(Accepted::AskAgain { answer, problems }) => self.ask_again(path, item, &answer, &problems),
            Err(failure) => self.attempt_failed(path, item, failure),
        }
    }

    /// Calls the model again, with its answer and the problems.
    fn ask_again(&mut self, path: PathId, item: u32, answer: &Value, problems: &[String]) -> Outcome {
        let plan = self.plan.clone();
        let work = self.work(path)?;
        let step = &plan.steps[work.step];
        let (scope, label) = (work.scope(step, item), work.label(step, item));
        match request::question_again(step, &scope, &label, answer, problems) {
            Ok(request) => {
                let bytes = request.bytes();
                let call = self.calls.open(Owner::Item { path, item, role: CallRole::Work }, label, request, bytes);
                let attempt = self.work(path)?.open.get_mut(&item)?;
                (attempt.questions, attempt.call, attempt.bytes) = (attempt.questions + 1, call, bytes);
                None
            }
            Err(failure) => Some(Err(failure)),
        }
    }

    fn answer_limit(&mut self, path: PathId, item: u32, result: Result<Value, FlowFailure>) -> Outcome {
        let step = self.work(path)?.step;
        let ms = self.plan.steps[step].timeout_ms.unwrap_or_default();
        let failure = result.err().unwrap_or_else(|| FlowFailure::timed_out(ms));
        self.attempt_failed(path, item, failure)
    }

    fn answer_backoff(&mut self, path: PathId, item: u32, result: Result<Value, FlowFailure>) -> Outcome {
        let number = self.work(path)?.open.remove(&item)?.number;
        match result {
            Ok(_) => self.attempt(path, item, number),
            Err(failure) => Some(Err(failure)),
        }
    }

    /// Sleeps before another attempt, or returns the failure.
    fn attempt_failed(&mut self, path: PathId, item: u32, failure: FlowFailure) -> Outcome {
        let (number, bytes) = self.close_attempt(path, item)?;
        let plan = self.plan.clone();
        let work = self.work(path)?;
        let step = &plan.steps[work.step];
        let is_retried = is_retried_here(step) && number < step.retry.attempts && failure.is_attempted_again(&step.retry.on);
        if !is_retried {
            return Some(Err(failure));
        }
        let label = format!("{}.retry", work.label(step, item));
        let ms = backoff_ms(step, number);
        let call = self.calls.open(Owner::Item { path, item, role: CallRole::Backoff }, label, CallRequest::Sleep { ms }, bytes);
        self.work(path)?.open.insert(item, ItemAttempt { number: number + 1, questions: 0, call, limit: None, bytes });
        None
    }

    /// Cancels what is open of an attempt that is over. Returns its number and bytes.
    fn close_attempt(&mut self, path: PathId, item: u32) -> Option<(u32, usize)> {
        let attempt = self.work(path)?.open.remove(&item)?;
        let closed = (attempt.number, attempt.bytes);
        attempt.into_calls().for_each(|call| self.calls.cancel(call));
        Some(closed)
    }
}

/// Returns whether the machine makes the attempts of a step: the engine does for tasks and actions, unless `on` restricts them.
pub fn is_retried_here(step: &StepPlan) -> bool {
    !step.kind.is_timed_by_engine() || !step.retry.on.is_empty()
}

/// Returns the time limit of an attempt that the machine has to keep.
fn machine_timeout(step: &StepPlan) -> Option<u64> {
    step.timeout_ms.filter(|_| !step.kind.is_timed_by_engine())
}

/// Returns the time between a failed attempt and the next one.
fn backoff_ms(step: &StepPlan, number: u32) -> u64 {
    let doubled = step.retry.backoff_ms.saturating_mul(1u64.checked_shl(number - 1).unwrap_or(u64::MAX));
    doubled.min(step.retry.backoff_max_ms.unwrap_or(crate::document::Span::from_ms(u64::MAX).as_ms()))
}
