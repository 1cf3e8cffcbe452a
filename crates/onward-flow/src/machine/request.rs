//! The requests of steps and of compensation, with rendered templates.

use serde_json::Value;

use super::attempt;
use super::plan::{KindPlan, MemoPlan, RetryPlan, SleepPlan, StepPlan, UndoAct, UndoPlan};
use super::state::json_bytes;
use super::turn::{CallMemo, CallRequest, FlowFailure, RetryRule};
use crate::document::Span;
use crate::expression::{Scope, Template};

/// The longest key of a memo, in bytes.
const MEMO_KEY_BYTES_MAX: usize = 1_024;

/// The length of the part of an answer that a model is shown again.
const ANSWER_CHARS_MAX: usize = 4_000;

/// Returns the request of a step for an item.
pub fn of_step(step: &StepPlan, scope: &Scope, label: &str) -> Result<CallRequest, FlowFailure> {
    match &step.kind {
        KindPlan::Prompt { prompt, model, system } => {
            let system = system.as_ref().map(|system| text(system, scope)).transpose()?;
            Ok(CallRequest::Model { model: model.clone(), system, prompt: with_schema(step, text(prompt, scope)?) })
        }
        KindPlan::Agent { agent, prompt } => {
            let input = Value::String(with_schema(step, text(prompt, scope)?));
            Ok(CallRequest::Child { kind: agent.clone(), input, is_agent: true })
        }
        KindPlan::Task { kind, input, queue } => {
            let (retry, timeout_ms) = (engine_retry(step), step.timeout_ms);
            Ok(CallRequest::Task { kind: kind.clone(), input: value(input, scope)?, queue: queue.clone(), retry, timeout_ms })
        }
        KindPlan::Action { action, arguments } => {
            let (retry, timeout_ms) = (engine_retry(step), step.timeout_ms);
            Ok(CallRequest::Action { action: *action, arguments: value(arguments, scope)?, retry, timeout_ms })
        }
        KindPlan::Approval { title, show, deciders, answer, within_ms } => Ok(CallRequest::Approval {
            name: label.to_owned(),
            title: text(title, scope)?,
            show: show.as_ref().map(|show| value(show, scope)).transpose()?,
            deciders: deciders.iter().map(|decider| text(decider, scope)).collect::<Result<_, _>>()?,
            answer: answer.clone(),
            within_ms: *within_ms,
        }),
        KindPlan::Wait { signal, within_ms } => Ok(CallRequest::Signal { name: text(signal, scope)?, within_ms: *within_ms }),
        KindPlan::Sleep(sleep) => Ok(CallRequest::Sleep { ms: sleep_ms(sleep, scope)? }),
        KindPlan::Child { kind, input } => {
            Ok(CallRequest::Child { kind: kind.clone(), input: value(input, scope)?, is_agent: false })
        }
        KindPlan::Set(_) | KindPlan::Parallel(_) | KindPlan::Join(_) | KindPlan::Switch { .. } => {
            Err(FlowFailure::permanent("flow_stuck", "a step of this kind makes no calls"))
        }
    }
}

/// Returns the memo of a step for an item.
pub fn memo_of(step: &StepPlan, scope: &Scope) -> Result<Option<CallMemo>, FlowFailure> {
    let Some(MemoPlan { ttl_ms, key, scope: shared }) = &step.memo else { return Ok(None) };
    let key = key.as_ref().map(|key| text(key, scope)).transpose()?;
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > MEMO_KEY_BYTES_MAX) {
        let message = format!("the key of the memo has 1 to {MEMO_KEY_BYTES_MAX} bytes");
        return Err(FlowFailure::permanent("expression_failed", &message));
    }
    Ok(Some(CallMemo { ttl_ms: *ttl_ms, key, scope: *shared }))
}

/// Returns the request of a prompt again, after an answer that does not fit.
pub fn question_again(
    step: &StepPlan,
    scope: &Scope,
    label: &str,
    answer: &Value,
    problems: &[String],
) -> Result<CallRequest, FlowFailure> {
    let mut request = of_step(step, scope, label)?;
    if let CallRequest::Model { prompt, .. } = &mut request {
        let answer = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
        let answer: String = answer.chars().take(ANSWER_CHARS_MAX).collect();
        let problems: String = problems.iter().map(|problem| format!("- {problem}\n")).collect();
        prompt.push_str(&format!("\n\nYour last answer was:\n{answer}\n\nIts problems:\n{problems}\nAnswer again."));
    }
    Ok(request)
}

/// Adds the schema of the output to a prompt.
fn with_schema(step: &StepPlan, prompt: String) -> String {
    let Some(schema) = &step.output else { return prompt };
    format!("{prompt}\n\nAnswer only with JSON that fits this JSON Schema:\n{}", schema.source())
}

fn engine_retry(step: &StepPlan) -> Option<RetryRule> {
    if attempt::is_retried_here(step) { None } else { rule(&step.retry) }
}

fn rule(retry: &RetryPlan) -> Option<RetryRule> {
    let RetryPlan { attempts, backoff_ms, backoff_max_ms, .. } = *retry;
    (attempts > 0).then_some(RetryRule { attempts, backoff_ms, backoff_max_ms })
}

fn sleep_ms(sleep: &SleepPlan, scope: &Scope) -> Result<u64, FlowFailure> {
    let template = match sleep {
        SleepPlan::Ms(ms) => return Ok(*ms),
        SleepPlan::Template(template) => template,
    };
    let value = value(template, scope)?;
    let ms = match &value {
        Value::String(text) => text.parse::<Span>().ok().map(Span::as_ms),
        value => value.as_f64().filter(|seconds| *seconds >= 0.0).map(|seconds| (seconds * 1_000.0).round() as u64),
    };
    let invalid = || FlowFailure::permanent("expression_failed", "`sleep` is neither a number of seconds nor a duration");
    ms.map(|ms| Span::from_ms(ms).as_ms()).ok_or_else(invalid)
}

fn value(template: &Template, scope: &Scope) -> Result<Value, FlowFailure> {
    template.render(scope).map_err(FlowFailure::of_expression)
}

fn text(template: &Template, scope: &Scope) -> Result<String, FlowFailure> {
    template.text(scope).map_err(FlowFailure::of_expression)
}

impl CallRequest {
    /// Returns the bytes of the input: texts, and values as JSON.
    pub(super) fn bytes(&self) -> usize {
        match self {
            CallRequest::Task { input, .. } | CallRequest::Child { input, .. } => json_bytes(input),
            CallRequest::Action { arguments, .. } => json_bytes(arguments),
            CallRequest::Model { system, prompt, .. } => prompt.len() + system.as_ref().map_or(0, String::len),
            CallRequest::Approval { title, show, deciders, answer, .. } => {
                let deciders: usize = deciders.iter().map(String::len).sum();
                title.len() + show.iter().chain(answer).map(json_bytes).sum::<usize>() + deciders
            }
            CallRequest::Signal { name, .. } => name.len(),
            CallRequest::Sleep { .. } => 0,
        }
    }
}

impl KindPlan {
    /// Returns whether the engine retries the calls of the step and limits their time.
    pub fn is_timed_by_engine(&self) -> bool {
        matches!(self, KindPlan::Task { .. } | KindPlan::Action { .. })
    }
}

impl UndoPlan {
    /// Returns the request that undoes a step.
    pub fn request(&self, scope: &Scope) -> Result<CallRequest, FlowFailure> {
        let (input, retry) = (value(&self.with, scope)?, rule(&self.retry));
        Ok(match &self.act {
            UndoAct::Task(kind) => CallRequest::Task { kind: kind.clone(), input, queue: None, retry, timeout_ms: None },
            UndoAct::Action(action) => CallRequest::Action { action: *action, arguments: input, retry, timeout_ms: None },
        })
    }
}
