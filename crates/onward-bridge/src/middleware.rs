//! Middleware of the shell around model calls, which this side makes.
//!
//! Steps, tasks, tools and the code of runs are functions of the shell, which surrounds them itself. The attempt of a model call is
//! work for it: its innermost `next` is the request `attempt_next`, and the end of the job is the result.

use std::sync::Arc;

use onward::Failure;
use onward::middleware::{AttemptCall, AttemptKind, Middleware, MiddlewareFuture, NextAttempt};
use onward_core::Payload;
use onward_store::sync::lock;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use crate::Work;
use crate::error::{BridgeError, failure_text, payload_of, text_of};
use crate::host::Host;
use crate::verbs::read;

/// Passes model calls to the shell.
pub(crate) struct ShellMiddleware(pub Arc<Host>);

impl Middleware for ShellMiddleware {
    fn attempt<'a>(&'a self, call: AttemptCall, next: NextAttempt<'a>) -> MiddlewareFuture<'a> {
        if call.kind != AttemptKind::ModelCall {
            return next.run(call);
        }
        Box::pin(around(self.0.clone(), call, next))
    }
}

/// A request to make the call.
pub(crate) struct Continuation {
    input: Payload,
    is_muted: bool,
    reply: oneshot::Sender<Result<Payload, Failure>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NextArguments {
    job: u64,
    input: Box<RawValue>,
    #[serde(default)]
    mute: bool,
}

async fn around(host: Arc<Host>, mut call: AttemptCall, next: NextAttempt<'_>) -> Result<Payload, Failure> {
    let (job, result) = host.begin_job(None);
    let (sender, continuation) = oneshot::channel();
    lock(&job.host.continuations).insert(job.number, sender);
    let info = serde_json::json!({
        "attempt": call.attempt,
        "idempotency_key": call.idempotency_key,
        "trace": null,
        "run": call.run.as_str(),
        "is_model_call": true,
    });
    let (kind, input) = (call.name.clone(), text_of(&call.input));
    job.host.queue.push(Work::Task { job: job.number, kind, input, info: info.to_string() });
    let mut result = std::pin::pin!(result);
    let mut failed = None;
    let ended = tokio::select! {
        ended = result.as_mut() => ended,
        Ok(Continuation { input, is_muted, mut reply }) = continuation => {
            call.input = input;
            if is_muted {
                call.mute();
            }
            tokio::select! {
                made = next.run(call) => {
                    failed = made.as_ref().err().cloned();
                    drop(reply.send(made)); // the middleware may have given it up
                }
                () = reply.closed() => {}
            }
            result.await
        }
    };
    match ended {
        Ok(Ok(value)) => Ok(payload_of(value)),
        Ok(Err(failure)) => Err(with_rest_of(failure, failed)),
        // The shell is gone, which is no result: another process makes the call again.
        Err(_) => std::future::pending().await,
    }
}

/// Adds the parts of the original failure that shells do not see.
fn with_rest_of(failure: Failure, original: Option<Failure>) -> Failure {
    match original {
        Some(original) if original.code == failure.code => {
            let diagnosis = original.diagnosis.filter(|_| original.message == failure.message);
            Failure { limited_ms: original.limited_ms, diagnosis, ..failure }
        }
        _ => failure,
    }
}

/// Executes the request `attempt_next`: makes the call of a job, and returns `{value}` or `{failure}`.
pub(crate) async fn attempt_next(host: &Host, text: &str) -> Result<String, BridgeError> {
    let NextArguments { job, input, mute } = read("attempt_next", text)?;
    let (reply, made) = oneshot::channel();
    let waiting = lock(&host.continuations).remove(&job);
    let sent = waiting.map(|waiting| waiting.send(Continuation { input: payload_of(input), is_muted: mute, reply }));
    if !matches!(sent, Some(Ok(()))) {
        let hint = "await `next` once, before the middleware ends";
        return Err(BridgeError::refused("attempt_next", format_args!("job {job} makes no call now"), hint));
    }
    match made.await {
        Ok(Ok(value)) => Ok(format!(r#"{{"value":{}}}"#, text_of(&value))),
        Ok(Err(failure)) => Ok(format!(r#"{{"failure":{}}}"#, failure_text(&failure))),
        Err(_) => Err(onward::Error::ShutDown.into()),
    }
}
