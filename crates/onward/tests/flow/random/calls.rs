//! The calls of a run as events, compared with those of the reference.

use std::time::Duration;

use onward::{Payload, RetryPolicy};
use onward_core::task::TaskOptions;
use onward_core::{Event, Failure, Name, Timestamp};
use onward_flow::document::MemoScope;
use onward_flow::machine::{Call, CallMemo, CallRequest, FlowFailure, RetryRule};
use serde_json::{Value, json};

/// Compares an event of a commit with the call that made it.
pub fn check_call(event: &Event, at: Timestamp, call: &Call) {
    match (event, &call.request) {
        (Event::TaskScheduled(task), CallRequest::Task { kind, input, queue, retry, timeout_ms }) => {
            assert_eq!((task.kind.as_str(), &task.input.read::<Value>().unwrap()), (kind.as_str(), input), "{call:?}");
            assert_eq!(task.options.queue.as_ref().map(Name::as_str), queue.as_deref(), "{call:?}");
            check_options(&task.options, retry.as_ref(), *timeout_ms);
        }
        (Event::TaskScheduled(task), CallRequest::Model { model, system, prompt }) => {
            let input: Value = task.input.read().unwrap();
            let model = model.as_deref().expect("the generator names models");
            assert_eq!(
                (task.kind.as_str(), &input["settings"]["ask"]),
                (format!("llm.{model}").as_str(), &json!(prompt)),
                "{call:?}"
            );
            assert_eq!(
                input["settings"]["request"].get("system"),
                system.as_ref().map(|system| json!(system)).as_ref(),
                "{call:?}"
            );
        }
        (Event::MemoRequested(requested), _) => check_memo(requested, call),
        (Event::ChildStarted(child), CallRequest::Child { kind, input, .. }) => {
            assert_eq!((child.kind.as_str(), &child.input.read::<Value>().unwrap()), (kind.as_str(), input), "{call:?}");
        }
        (Event::ApprovalRequested(asked), CallRequest::Approval { name, title, show, deciders, answer, within_ms }) => {
            assert_eq!((asked.name.as_str(), &asked.title, &asked.deciders), (name.as_str(), title, deciders));
            assert_eq!(asked.show.as_ref().map(|show| show.read::<Value>().unwrap()), *show, "{call:?}");
            assert_eq!(asked.answer_schema.as_ref().map(|schema| schema.read::<Value>().unwrap()), *answer, "{call:?}");
            check_due(asked.deadline, at, *within_ms);
        }
        (Event::SignalAwaited(awaited), CallRequest::Signal { name, within_ms }) => {
            assert_eq!(awaited.name.as_str(), name, "{call:?}");
            check_due(awaited.deadline, at, *within_ms);
        }
        (Event::SignalConsumed(consumed), CallRequest::Signal { name, .. }) => assert_eq!(consumed.name.as_str(), name),
        (Event::TimerStarted(timer), CallRequest::Sleep { ms }) => check_due(Some(timer.due_at), at, Some(*ms)),
        (Event::StepCompleted(step), CallRequest::Action { .. }) => {
            assert_eq!(step.name.as_str(), call.label);
            assert!(step.output == Payload::null(), "a printed message has no result: {step:?}");
        }
        (Event::StepFailed(step), CallRequest::Action { .. }) => assert_eq!(step.name.as_str(), call.label),
        (Event::MemoStored(_) | Event::MemoReleased(_), _) => assert!(call.memo.is_some(), "{call:?}"),
        (Event::TaskCanceled(_) | Event::WaitCanceled(_) | Event::ChildCanceled(_), _) => {}
        (event, _) => panic!("{event:?} is recorded for {call:?}"),
    }
}

fn check_options(options: &TaskOptions, rule: Option<&RetryRule>, timeout_ms: Option<u64>) {
    assert_eq!(options.attempt_timeout_ms, timeout_ms);
    let policy = |rule: &RetryRule| {
        let policy = RetryPolicy::attempts(rule.attempts).delay(Duration::from_millis(rule.backoff_ms));
        rule.backoff_max_ms.into_iter().fold(policy, |policy, ms| policy.delay_max(Duration::from_millis(ms)))
    };
    assert_eq!(options.retry(), rule.map(policy).unwrap_or_default());
}

fn check_memo(requested: &onward_core::event::MemoRequested, call: &Call) {
    let CallMemo { ttl_ms, key, scope } = call.memo.as_ref().unwrap_or_else(|| panic!("{requested:?} of {call:?}"));
    let scope = match scope {
        MemoScope::Namespace => onward::MemoScope::Namespace,
        MemoScope::Tree => onward::MemoScope::Tree,
    };
    assert_eq!((requested.ttl_ms, requested.scope, requested.is_derived), (*ttl_ms, scope, key.is_none()), "{call:?}");
    assert!(key.as_ref().is_none_or(|key| *key == requested.key), "{requested:?} of {call:?}");
}

/// Compares a due time: the time of the code is that of the event that it saw last, which may be earlier than that of its commit.
fn check_due(due: Option<Timestamp>, at: Timestamp, ms: Option<u64>) {
    assert_eq!(due.is_some(), ms.is_some());
    if let (Some(due), Some(ms)) = (due, ms) {
        assert!(due.0 <= at.0 + ms, "{due} is more than {ms} ms after {at}");
    }
}

/// Compares the failure of a run with that of the reference, whose step is a part of the details.
pub fn check_failure(failure: &Failure, expected: &FlowFailure) {
    let FlowFailure { code, message, retryable, details, step } = expected;
    assert_eq!((&failure.code, failure.retryable), (code, *retryable), "{failure:?}");
    let message = match (code.as_str(), step) {
        ("expression_failed", Some(step)) => format!("step `{step}`: {message}"),
        _ => message.clone(),
    };
    assert_eq!(failure.to_string(), message, "{failure:?}");
    let mut expected = match details.clone() {
        None if step.is_none() => None,
        None => Some(json!({})),
        Some(details) if details.is_object() || step.is_none() => Some(details),
        Some(details) => Some(json!({ "details": details })),
    };
    if let (Some(Value::Object(details)), Some(step)) = (&mut expected, step) {
        details.entry("step").or_insert(json!(step));
    }
    assert_eq!(failure.details.as_ref().map(|details| details.read::<Value>().unwrap()), expected, "the details");
}
