//! Calls that wait.

use std::sync::Arc;
use std::time::Duration;

use onward::agent::AgentCtx;
use onward::ctx::{Child, TaskCall};
use onward::shell::CallFuture;
use onward::{Ctx, Failure};
use onward_core::task::EffectClass;
use onward_core::{Payload, Timestamp};
use serde::Serialize;

use super::arguments::*;
use super::{BoxCall, Caller, Raw, Result, json, spawned};
use crate::error::{BridgeError, payload_of};
use crate::{Called, Function};

/// Encodes the value of a call.
pub(super) fn value(result: onward::Result<Raw>) -> onward::Result<Payload> {
    result.map(payload_of)
}

/// Encodes any other answer of a call.
pub(super) fn encoded<T: Serialize>(result: onward::Result<T>) -> onward::Result<Payload> {
    result.and_then(|value| Payload::json(&value).map_err(|error| Failure::fatal(format!("the answer is not JSON: {error}"))))
}

pub(super) fn step(caller: &Caller<'_>, arguments: StepArguments) -> Result<Called> {
    let (host, run) = (caller.host.clone(), caller.code.number());
    let StepArguments { name, memo, retry: policy, timeout_ms, input, record, record_as } = arguments;
    caller.wait(|ctx, number| {
        let shown: Arc<str> = name.as_str().into();
        let function = Function::Step(number);
        let step = ctx.step_with(&name, move |attempt| host.run_step(run, function, shown, attempt));
        let step = policy.into_iter().fold(step, |step, policy| step.retry(retry(policy)));
        let step = timeout_ms.into_iter().fold(step, |step, ms| step.timeout(Duration::from_millis(ms)));
        let step = input.iter().fold(step, |step, input| step.input(input));
        let step = record_as.iter().fold(step, |step, shown| step.record_as(shown));
        let step = if record { step.record() } else { step };
        let step = memo.into_iter().fold(step, |step, memo| step.memo(memo));
        Box::pin(CallFuture::durable(step, value))
    })
}

/// Registers a compensation; its number is that of its function.
pub(super) fn on_failure(caller: &Caller<'_>, Named { name }: Named) -> Result<Called> {
    let (host, run) = (caller.host.clone(), caller.code.number());
    let number = host.number();
    let (function, shown) = (Function::Undo(number), Arc::<str>::from(name.as_str()));
    caller.with(|ctx| {
        ctx.on_failure_with(&name, move |attempt| async move { host.run_step(run, function, shown, attempt).await.map(drop) })
    })?;
    json(number)
}

pub(super) fn task(caller: &Caller<'_>, arguments: TaskArguments) -> Result<Called> {
    if arguments.id.is_some() || arguments.trace.is_some() {
        let hint = "leave them out, or start the task without a run";
        return Err(BridgeError::refused("task", "the task of a run has no `id` and no `trace` of its own", hint));
    }
    let class = arguments.class.as_deref().map(effect_class).transpose()?;
    let is_agent = caller.code.is_agent();
    caller.wait(|ctx, _| {
        let TaskArguments { kind, input, queue, key, priority, retry: policy, idempotency_key, costs, memo, .. } = arguments;
        // The effect class of an agent's task is recorded with each attempt; that of a workflow's only if it is given.
        let task: TaskCall<Raw> = if is_agent { ctx.task(kind.as_str(), &input) } else { Ctx::task(ctx, kind.as_str(), &input) };
        let ms = Duration::from_millis;
        let task = queue.iter().fold(task, |task, queue| task.queue(queue));
        let task = key.iter().fold(task, |task, key| task.key(key));
        let task = priority.into_iter().fold(task, TaskCall::priority);
        let task = policy.into_iter().fold(task, |task, policy| task.retry(retry(policy)));
        let task = arguments.timeout_ms.into_iter().fold(task, |task, timeout| task.timeout(ms(timeout)));
        let task = arguments.total_timeout_ms.into_iter().fold(task, |task, timeout| task.total_timeout(ms(timeout)));
        let task = arguments.queued_timeout_ms.into_iter().fold(task, |task, timeout| task.queued_timeout(ms(timeout)));
        let task = arguments.heartbeat_ms.into_iter().fold(task, |task, timeout| task.heartbeat(ms(timeout)));
        let task = idempotency_key.iter().fold(task, |task, key| task.idempotency_key(key));
        let task = if costs { task.costs() } else { task };
        let task = match class {
            Some(EffectClass::Pure) => task.pure(),
            Some(EffectClass::Keyed) => task.keyed(),
            Some(EffectClass::AtMostOnce) => task.at_most_once(),
            Some(EffectClass::AtLeastOnce) | None => task,
        };
        let task = memo.into_iter().fold(task, |task, memo| task.memo(memo));
        Box::pin(CallFuture::durable(task, value).with_cancel(TaskCall::cancel))
    })
}

pub(crate) fn effect_class(text: &str) -> Result<EffectClass> {
    serde_json::from_value(text.into()).map_err(|error| BridgeError::arguments("the effect class", &error))
}

pub(super) fn sleep(caller: &Caller<'_>, arguments: Sleep) -> Result<Called> {
    let sleep = |make: &dyn Fn(&AgentCtx) -> onward::ctx::Sleep| {
        caller.wait(|ctx, _| Box::pin(CallFuture::durable(make(ctx), encoded)) as BoxCall)
    };
    match arguments {
        Sleep { ms: Some(ms), until: None } => sleep(&|ctx| ctx.sleep(Duration::from_millis(ms))),
        Sleep { ms: None, until: Some(until) } => sleep(&|ctx| ctx.sleep_until(Timestamp(until))),
        _ => Err(BridgeError::arguments("the arguments of `sleep`", &"give either `ms` or `until`")),
    }
}

pub(super) fn recv(caller: &Caller<'_>, RecvArguments { signal, pattern, timeout_ms }: RecvArguments) -> Result<Called> {
    match (which(signal, pattern)?, timeout_ms) {
        (Which::Signal(name), None) => {
            caller.wait(|ctx, _| Box::pin(CallFuture::durable(ctx.signal(name.as_str()).recv::<Raw>(), value)))
        }
        (Which::Signal(name), Some(ms)) => caller.wait(|ctx, _| {
            let recv = ctx.signal(name.as_str()).recv_timeout::<Raw>(Duration::from_millis(ms));
            Box::pin(CallFuture::durable(recv, |result: onward::Result<Option<Raw>>| {
                encoded(result.map(|value| value.map(|value| Value { value })))
            }))
        }),
        (Which::Pattern(pattern), None) => caller.wait(|ctx, _| {
            Box::pin(CallFuture::durable(ctx.signals(&pattern).recv::<Raw>(), |result| {
                encoded(result.map(|(name, value)| NamedValue { name: name.to_string(), value }))
            }))
        }),
        (Which::Pattern(_), Some(_)) => {
            Err(BridgeError::arguments("the arguments of `recv`", &"a pattern has no timeout; race it with `sleep`"))
        }
    }
}

pub(super) fn approval(caller: &Caller<'_>, arguments: ApprovalArguments) -> Result<Called> {
    let ApprovalArguments { name, title, description, show, deciders, not_by_requester, within_ms, answer_schema } = arguments;
    caller.wait_with(|ctx, _| {
        let approval = ctx.approval(&name, title);
        let approval = description.into_iter().fold(approval, onward::ctx::Approval::describe);
        let approval = show.iter().fold(approval, |approval, show| approval.show(show));
        let approval = if deciders.is_empty() { approval } else { approval.deciders(deciders) };
        let approval = if not_by_requester { approval.not_by_requester() } else { approval };
        let approval = within_ms.into_iter().fold(approval, |approval, ms| approval.within(Duration::from_millis(ms)));
        let id = serde_json::json!({"id": approval.id()}).to_string();
        let call: BoxCall = match answer_schema {
            None => Box::pin(CallFuture::durable(approval, encoded)),
            Some(schema) => Box::pin(CallFuture::durable(approval.answer_schema::<Raw>(&schema), answered)),
        };
        (call, id)
    })
}

/// The decision of an approval with a structured answer, for the shell.
#[derive(serde::Serialize)]
struct AnsweredDocument {
    approved: bool,
    feedback: Option<String>,
    decided_by: Option<String>,
    expired: bool,
    answer: Option<Raw>,
}

fn answered(decision: onward::Result<onward::Answered<Raw>>) -> onward::Result<Payload> {
    encoded(decision.map(|onward::Answered { approved, answer, feedback, decided_by, expired }| AnsweredDocument {
        approved,
        feedback,
        decided_by,
        expired,
        answer,
    }))
}

pub(super) fn promise(caller: &Caller<'_>, PromiseArguments { name, within_ms }: PromiseArguments) -> Result<Called> {
    caller.wait_with(|ctx, _| {
        let promise = ctx.promise::<Raw>(&name);
        let promise = within_ms.into_iter().fold(promise, |promise, ms| promise.within(Duration::from_millis(ms)));
        let id = serde_json::json!({"id": promise.id()}).to_string();
        (Box::pin(CallFuture::durable(promise, value)), id)
    })
}

pub(super) fn child(caller: &Caller<'_>, arguments: ChildArguments) -> Result<Called> {
    let ChildArguments { kind, input, id, version, on_parent_close, budget, queue, key, priority } = arguments;
    caller.wait_with(|ctx, _| {
        let child: Child<Raw> = ctx.child(kind.as_str(), &input);
        let child = id.iter().fold(child, |child, id| child.id(id));
        let child = version.iter().fold(child, |child, version| child.version(version));
        let child = on_parent_close.into_iter().fold(child, Child::on_parent_close);
        let child = budget.into_iter().fold(child, Child::budget);
        let child = queue.iter().fold(child, |child, queue| child.queue(queue));
        let child = key.iter().fold(child, |child, key| child.key(key));
        let child = priority.into_iter().fold(child, Child::priority);
        let run = serde_json::json!({"run": child.run_id().map(|run| run.to_string())}).to_string();
        (Box::pin(CallFuture::durable(child, value).with_cancel(Child::cancel)), run)
    })
}

pub(super) fn spawned_result(caller: &Caller<'_>, run: &str) -> Result<Called> {
    let spawned = spawned(run)?;
    caller.wait(|ctx, _| Box::pin(CallFuture::durable(spawned.result(ctx), value)))
}

pub(super) fn canceled(caller: &Caller<'_>) -> Result<Called> {
    caller.wait(|ctx, _| {
        Box::pin(CallFuture::durable(ctx.canceled(), |failure: Failure| {
            Ok(Payload::from_json_text(crate::error::failure_text(&failure)))
        }))
    })
}

/// Waits until no handler of an update is in flight.
pub(super) fn updates_finished(caller: &Caller<'_>) -> Result<Called> {
    caller.wait(|ctx, _| Box::pin(CallFuture::any(ctx.updates_finished(), |()| Ok(Payload::null()))))
}

pub(super) fn continue_as_new(caller: &Caller<'_>, NextInput { input }: NextInput) -> Result<Called> {
    caller.wait(|ctx, _| Box::pin(CallFuture::any(ctx.continue_as_new::<Raw, _>(&input), value)))
}
