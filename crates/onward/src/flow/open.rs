//! The calls of the machine as calls of the run.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::conversation::ENTRY_SIGNAL;
use onward_core::engine::Decision;
use onward_core::memo::MemoScope;
use onward_core::task::RetryPolicy;
use onward_core::{Failure, Name, Payload};
use onward_flow::document;
use onward_flow::machine::{self, CallRequest, FlowFailure, RetryRule};
use onward_llm::{ModelReply, StopReason};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::actions::{ActionCall, run_action};
use super::failures::refused;
use crate::Result;
use crate::agent::{AgentCtx, model_kind};
use crate::ctx::{Answered, Approval, Child, Ctx, Memo, TaskCall};
use crate::host::cell::find_dep;
use crate::shell::{Call, CallFuture, Opened, ShellCode, Stopped};

/// The maximum number of ancestors of a run whose flow starts a child; a flow that starts itself would not end.
const NESTING_MAX: u32 = 64;

/// The longest name of a step of the run, in bytes; labels can have keys of maps in them.
const LABEL_BYTES_MAX: usize = 200;

type BoxCall = Pin<Box<dyn Call>>;
type Raw = Box<RawValue>;

/// The model of prompts that name none.
pub(crate) struct DefaultModel(pub String);

/// What became of a call of the machine.
pub(super) enum OpenCall {
    Opened {
        opened: Opened,
        /// It is a task or a child, which goes on unless it is canceled.
        goes_on: bool,
    },
    /// The engine does not accept its arguments, and it was not made (FP2).
    Refused(FlowFailure),
}

/// Makes a call (FP1).
pub(super) fn open(code: &Arc<ShellCode>, call: machine::Call) -> Result<OpenCall, Stopped> {
    let mut call = call;
    if let CallRequest::Model { model: model @ None, .. } = &mut call.request {
        *model = code.read(|ctx| find_dep::<DefaultModel>(&ctx.cell.shared.deps).map(|default| default.0.clone()))?;
    }
    if let Err(failure) = check_names(&call.request) {
        return Ok(OpenCall::Refused(failure));
    }
    if matches!(call.request, CallRequest::Child { .. }) && code.read(|ctx| ctx.nesting())? >= NESTING_MAX {
        return Ok(OpenCall::Refused(refused(format!("the run has {NESTING_MAX} ancestors, so it starts no child"))));
    }
    let goes_on = matches!(call.request, CallRequest::Task { .. } | CallRequest::Child { .. });
    let opened = code.open(|ctx, _| make(code, ctx, &call.label, call.request, call.memo.map(memo)))?;
    Ok(OpenCall::Opened { opened, goes_on })
}

/// Checks the names of a call. An invalid one would pause the run.
fn check_names(request: &CallRequest) -> Result<(), FlowFailure> {
    let check = |what: &str, name: &str| match Name::new(name) {
        Ok(_) if what == "signal" && name == ENTRY_SIGNAL => Err(refused(format!("the signal `{name}` is reserved"))),
        Ok(_) => Ok(()),
        Err(error) => Err(refused(format!("the name of the {what} is not valid: {error}"))),
    };
    match request {
        CallRequest::Task { kind, queue, .. } => {
            queue.iter().try_for_each(|queue| check("queue", queue))?;
            check("task", kind)
        }
        CallRequest::Model { model: Some(model), .. } => check("model", &model_kind(model)),
        CallRequest::Model { model: None, .. } => {
            Err(refused("the step has no `model`, and there is no default one: set it with `Builder::flow_model` or the setting `flows.model`".to_owned()))
        }
        CallRequest::Child { kind, .. } => check("child", kind),
        CallRequest::Approval { name, .. } => check("approval", name),
        CallRequest::Signal { name, .. } => check("signal", name),
        CallRequest::Action { .. } | CallRequest::Sleep { .. } => Ok(()),
    }
}

fn make(code: &Arc<ShellCode>, ctx: &AgentCtx, label: &str, request: CallRequest, memo: Option<Memo>) -> BoxCall {
    match request {
        CallRequest::Task { kind, input, queue, retry, timeout_ms } => {
            let task: TaskCall<Raw> = Ctx::task(ctx, kind.as_str(), &input);
            let task = queue.iter().fold(task, |task, queue| task.queue(queue));
            let task = retry.into_iter().fold(task, |task, rule| task.retry(policy(&rule)));
            let task = timeout_ms.into_iter().fold(task, |task, ms| task.timeout(Duration::from_millis(ms)));
            let task = memo.into_iter().fold(task, |task, memo| task.memo(memo));
            Box::pin(CallFuture::durable(task, raw).with_cancel(TaskCall::cancel))
        }
        CallRequest::Action { action, arguments, retry, timeout_ms } => {
            let call = Arc::new(ActionCall::new(ctx, Arc::downgrade(code), label, action, arguments));
            action_step(ctx, label, call, retry, timeout_ms, memo)
        }
        CallRequest::Model { model, system, prompt } => {
            let call = ctx.llm(&model.unwrap_or_default()).ask(prompt);
            let call = system.into_iter().fold(call, |call, system| call.system(system));
            let call = memo.into_iter().fold(call, |call, memo| call.memo(memo));
            Box::pin(CallFuture::durable(call.start_alone(), model_text))
        }
        CallRequest::Child { kind, input, is_agent } => {
            let child: Child<Raw> = ctx.child(kind.as_str(), &input);
            let read = if is_agent { agent_text } else { raw };
            Box::pin(CallFuture::durable(child, read).with_cancel(Child::cancel))
        }
        CallRequest::Approval { name, title, show, deciders, answer, within_ms } => {
            let approval = ctx.approval(&name, title);
            let approval = show.iter().fold(approval, Approval::show);
            let approval = if deciders.is_empty() { approval } else { approval.deciders(deciders) };
            let approval = within_ms.into_iter().fold(approval, |approval, ms| approval.within(Duration::from_millis(ms)));
            match answer {
                None => Box::pin(CallFuture::durable(approval, decision)),
                Some(schema) => Box::pin(CallFuture::durable(approval.answer_schema::<Value>(&schema), answered)),
            }
        }
        CallRequest::Signal { name, within_ms: None } => {
            Box::pin(CallFuture::durable(ctx.signal(name.as_str()).recv::<Raw>(), raw))
        }
        CallRequest::Signal { name, within_ms: Some(ms) } => {
            let recv = ctx.signal(name.as_str()).recv_timeout::<Raw>(Duration::from_millis(ms));
            Box::pin(CallFuture::durable(recv, move |received: Result<Option<Raw>>| match received? {
                Some(value) => raw(Ok(value)),
                None => Err(Failure { retryable: false, ..Failure::timed_out(&format!("the wait for the signal `{name}`")) }),
            }))
        }
        CallRequest::Sleep { ms } => Box::pin(CallFuture::durable(ctx.sleep(Duration::from_millis(ms)), encoded)),
    }
}

/// Makes a built-in action, as a step under its label.
fn action_step(
    ctx: &AgentCtx,
    label: &str,
    call: Arc<ActionCall>,
    retry: Option<RetryRule>,
    timeout_ms: Option<u64>,
    memo: Option<Memo>,
) -> BoxCall {
    let input = json!({"action": call.action, "arguments": call.arguments});
    let step = ctx.step_with(&step_name(label), move |attempt| run_action(call, attempt));
    let step = retry.into_iter().fold(step, |step, rule| step.retry(policy(&rule)));
    let step = timeout_ms.into_iter().fold(step, |step, ms| step.timeout(Duration::from_millis(ms)));
    let step = memo.into_iter().fold(step.input(&input), |step, memo| step.memo(memo));
    Box::pin(CallFuture::durable(step, encoded::<Value>))
}

/// Returns a name that the engine accepts: control characters are replaced, and a long label is truncated (FP2).
fn step_name(label: &str) -> String {
    let mut name: String = label.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    name.truncate(name.floor_char_boundary(LABEL_BYTES_MAX));
    if Name::new(&name).is_ok() { name } else { "action".to_owned() }
}

fn memo(of: machine::CallMemo) -> Memo {
    let scope = match of.scope {
        document::MemoScope::Namespace => MemoScope::Namespace,
        document::MemoScope::Tree => MemoScope::Tree,
    };
    let memo = Memo::new(Duration::from_millis(of.ttl_ms)).scope(scope);
    of.key.into_iter().fold(memo, Memo::key)
}

fn policy(rule: &RetryRule) -> RetryPolicy {
    let policy = RetryPolicy::attempts(rule.attempts).delay(Duration::from_millis(rule.backoff_ms));
    rule.backoff_max_ms.into_iter().fold(policy, |policy, ms| policy.delay_max(Duration::from_millis(ms)))
}

fn raw(result: Result<Raw>) -> Result<Payload> {
    result.map(|value| Payload::from_json_text(String::from(Box::<str>::from(value))))
}

fn encoded<T: Serialize>(result: Result<T>) -> Result<Payload> {
    result.and_then(|value| Ok(Payload::json(&value)?))
}

/// Returns the text of a model's response.
fn model_text(reply: Result<ModelReply>) -> Result<Payload> {
    let reply = reply?;
    let text = reply.text();
    if text.is_empty() && (reply.stop == Some(StopReason::Refusal) || reply.refusal().is_some()) {
        let words = reply.refusal().filter(|words| !words.is_empty()).map(|words| format!(": {words}")).unwrap_or_default();
        return Err(Failure::fatal(format!("the model refused to answer{words}")).with_code("model_refused"));
    }
    encoded(Ok(text))
}

/// Returns the text of an agent's outcome: the field `text` of an object, or else the outcome.
fn agent_text(outcome: Result<Raw>) -> Result<Payload> {
    let outcome: Value = serde_json::from_str(outcome?.get())?;
    encoded(Ok(match outcome.get("text") {
        Some(text @ Value::String(_)) => text.clone(),
        _ => outcome,
    }))
}

/// Returns a decision as the value of an approval. An expired one is a failure.
fn decision(decision: Result<Decision>) -> Result<Payload> {
    let Decision { approved, feedback, decided_by, expired, .. } = decision?;
    answered(Ok(Answered { approved, answer: None, feedback, decided_by, expired }))
}

/// Returns a decision as the value of an approval, with its structured answer.
fn answered(decision: Result<Answered<Value>>) -> Result<Payload> {
    let Answered { approved, answer, feedback, decided_by, expired } = decision?;
    if expired {
        return Err(Failure { retryable: false, ..Failure::timed_out("the approval") });
    }
    let mut value = json!({"approved": approved, "decider": decided_by, "feedback": feedback});
    if let Some(answer) = answer {
        value["answer"] = answer;
    }
    encoded(Ok(value))
}
