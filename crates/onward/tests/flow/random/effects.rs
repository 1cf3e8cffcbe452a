//! The world outside: it answers tasks, model calls, actions and children, and remembers every execution.
//!
//! An answer depends on the idempotency key and the attempt, nothing else: a service that is called again answers the same.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use onward::middleware::{AttemptCall, Middleware, MiddlewareFuture, NextAttempt};
use onward::{Failure, Payload, RunId};
use onward_core::task::{Task, TaskReport, idempotency_key};
use onward_core::{CallId, Event, Index, Namespace, Record, RunKey};
use onward_flow::document::Action;
use onward_flow::machine::{CallRequest, FlowFailure};
use onward_store::{MemoryStore, Store};
use serde_json::{Value, json};

use super::random_flows::answers::{Answer, answer};
use super::random_flows::random::Random;
use crate::requests::reply;

/// One execution of an effect.
#[derive(Debug, Clone)]
pub struct Execution {
    pub key: String,
    /// The input of a task; the action with its arguments.
    pub input: Value,
    /// The value or the code of the failure.
    pub answer: Result<Value, String>,
}

pub struct Effects {
    seed: u64,
    /// How many of 100 attempts fail.
    failures: usize,
    store: Arc<MemoryStore>,
    pub executed: Mutex<Vec<Execution>>,
    /// Executions that should not have happened.
    pub wrong: Mutex<Vec<String>>,
}

pub fn key_of(run: &RunId) -> RunKey {
    RunKey::new(Namespace::default(), run.clone())
}

/// Returns the log of a run as the store has it.
pub fn log_of(store: &MemoryStore, run: &RunKey) -> Vec<Record> {
    let read = store.read_log(run.clone(), None, Index(0), usize::MAX).now_or_never();
    read.expect("a store in memory answers at once").unwrap_or_default()
}

impl Effects {
    pub fn new(seed: u64, store: Arc<MemoryStore>) -> Effects {
        let failures = [0, 5, 15, 30][Random::of(seed, "failures").below(4)];
        Effects { seed, failures, store, executed: Mutex::default(), wrong: Mutex::default() }
    }

    fn answer(&self, key: &str, attempt: u32, request: &CallRequest) -> Answer {
        answer(&mut Random::of(self.seed, &format!("{key} {attempt}")), request, self.failures)
    }

    /// Executes an attempt of a task.
    pub fn task(&self, task: &Task) -> TaskReport {
        let key = task.idempotency_key();
        let is_model = task.kind.as_str().starts_with("llm.");
        let request = if is_model { model() } else { work() };
        let answer = self.answer(&key, task.attempt, &request).map(|value| match value.as_str() {
            Some(text) if is_model => serde_json::to_value(reply(text)).unwrap(),
            _ => value,
        });
        self.execute(&task.id.run, &key, task.attempt, task.input.read().unwrap(), &answer);
        match answer {
            Ok(value) => TaskReport::Completed(Payload::json(&value).unwrap()),
            Err(failure) => TaskReport::Failed(to_failure(failure)),
        }
    }

    /// Computes the result of a child.
    pub fn child(&self, run: &RunId, is_agent: bool) -> Result<Value, Failure> {
        let request = CallRequest::Child { kind: String::new(), input: Value::Null, is_agent };
        self.answer(run.as_str(), 0, &request).map_err(to_failure)
    }

    /// Chooses the decision of an approval.
    pub fn decision(&self, approval: &str, has_answer: bool) -> Value {
        let answer_schema = has_answer.then_some(Value::Null);
        let (name, title) = (String::new(), String::new());
        let request = CallRequest::Approval { name, title, show: None, deciders: vec![], answer: answer_schema, within_ms: None };
        answer(&mut Random::of(self.seed, approval), &request, 0).unwrap()
    }

    /// Notes an execution, which is wrong if its outcome is recorded already.
    fn execute(&self, run: &RunKey, key: &str, attempt: u32, input: Value, answer: &Answer) {
        let log = log_of(&self.store, run);
        let mut outcomes = log.iter().flat_map(|record| &record.events).filter_map(outcome_of);
        if outcomes.any(|(call_id, until)| attempt <= until && idempotency_key(run, 0, call_id) == key) {
            let message = format!("attempt {attempt} of {input} of {} is executed after its outcome was recorded", run.id);
            self.wrong.lock().unwrap().push(message);
        }
        let answer = answer.clone().map_err(|failure| failure.code);
        self.executed.lock().unwrap().push(Execution { key: key.to_owned(), input, answer });
    }
}

/// Returns the call whose outcome the event is, and the last attempt that must not be executed after it.
fn outcome_of(event: &Event) -> Option<(&CallId, u32)> {
    match event {
        Event::TaskCompleted(event) => Some((&event.call_id, u32::MAX)),
        Event::TaskFailed(event) => Some((&event.call_id, u32::MAX)),
        Event::StepCompleted(event) => Some((&event.call_id, u32::MAX)),
        Event::StepFailed(event) => Some((&event.call_id, event.retry_at.map_or(u32::MAX, |_| event.attempt))),
        _ => None,
    }
}

fn model() -> CallRequest {
    CallRequest::Model { model: None, system: None, prompt: String::new() }
}

fn work() -> CallRequest {
    CallRequest::Task { kind: String::new(), input: Value::Null, queue: None, retry: None, timeout_ms: None }
}

pub fn to_failure(failure: FlowFailure) -> Failure {
    let FlowFailure { code, message, retryable, details, .. } = failure;
    let failure = Failure { retryable, ..Failure::new(code, message) };
    details.iter().fold(failure, |failure, details| failure.with_details(Payload::json(details).unwrap()))
}

/// Sees the actions.
pub struct Watch(pub Arc<Effects>);

impl Middleware for Watch {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        let Watch(effects) = self;
        let run = key_of(&call.run);
        let request = CallRequest::Action { action: Action::Print, arguments: json!({}), retry: None, timeout_ms: None };
        let answer = effects.answer(&call.idempotency_key, call.attempt, &request);
        effects.execute(&run, &call.idempotency_key, call.attempt, call.input.read().unwrap(), &answer);
        match answer {
            Ok(_) => next.run(call),
            Err(failure) => Box::pin(std::future::ready(Err(to_failure(failure)))),
        }
    }
}
