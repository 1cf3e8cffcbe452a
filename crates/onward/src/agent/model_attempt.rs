//! One attempt of a model call in a worker: the prompt is assembled from the conversation.
//!
//! Owns which failures are retried and when, and what the next attempt inherits; the engine waits durably. Must never retry by
//! itself.

use std::future::{Future as _, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use onward_core::conversation::Walk;
use onward_core::spend::{PicoDollars, Spend, Tokens};
use onward_core::{ErrorCode, Failure, Payload};
use onward_llm::{
    Block, CallError, Cause, Delta, EmptyModelResponse, Failures, Message, Model, ModelReply, ModelRequest, Next, Usage,
};
use onward_store::{Consequence, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::attachments::{self, Attachments};
use super::model_call::{Prompt, Settings, SettingsSource};
use super::prompt::{self, text_of};
use super::refused::leave_out_all;
use crate::Result;
use crate::host::code::panic_message;
use crate::middleware::{AttemptCall, AttemptKind};
use crate::registry::TaskHandler;
use crate::task::TaskCtx;

pub(crate) fn handler(model: Model) -> TaskHandler {
    let model = Arc::new(model);
    Arc::new(move |ctx, input| {
        let model = model.clone();
        let mut attempt = Box::pin(async move { attempt(&ctx, &model, input).await });
        // A panicked attempt is not retried: such attempts are not counted, and they may have cost something.
        Box::pin(poll_fn(move |cx| {
            let polled = catch_unwind(AssertUnwindSafe(|| attempt.as_mut().poll(cx)));
            polled.unwrap_or_else(|panic| {
                let message = format!("the model call panicked: {}", panic_message(&*panic));
                Poll::Ready(Err(Failure::fatal(message).with_code("panicked")))
            })
        }))
    })
}

/// State that a failed attempt passes to the next one.
#[derive(Default, Serialize, Deserialize)]
struct AttemptHistory {
    #[serde(flatten)]
    failures: Failures,
    /// The provider refused the request with attachments: the next one has none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    omits_attachments: bool,
    /// A missing or incomplete attachment is no longer waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_late: bool,
}

impl AttemptHistory {
    fn of(ctx: &TaskCtx) -> AttemptHistory {
        let details = ctx.last_failure().and_then(|failure| failure.details.as_ref());
        details.and_then(|details| details.read().ok()).unwrap_or_default()
    }
}

async fn attempt(ctx: &TaskCtx, model: &Arc<Model>, input: Payload) -> Result<Payload> {
    let prompt = opened(ctx, &input)?;
    let assembled = assemble(ctx, model.provider.name(), prompt).await?;
    if ctx.middlewares().is_empty() {
        return send(ctx, model, assembled).await;
    }
    // Middlewares see the question as the last message.
    let AssembledRequest { mut request, question, truncate_at } = assembled;
    let has_question = question.is_some();
    request.messages.extend(question.map(Message::user));
    let call = AttemptCall::of_task(AttemptKind::ModelCall, &model.name, ctx, Payload::json(&request)?);
    let (task, model) = (ctx.clone(), model.clone());
    let sent = ctx.middlewares().clone().attempt(call, move |input| {
        Box::pin(async move {
            let mut request: ModelRequest = input.read().map_err(|error| {
                Failure::fatal(format!("a middleware has changed the request to something else: {error}"))
                    .with_code("invalid_input")
            })?;
            let last = request.messages.pop_if(|_| has_question);
            let question = last.map(|message| text_of(&message.blocks));
            send(&task, &model, AssembledRequest { request, question, truncate_at }).await
        })
    });
    // A failure of a middleware must not make the next attempt forget the failures before.
    sent.await.map_err(|failure| match ctx.last_failure().and_then(|last| last.details.clone()) {
        Some(so_far) if failure.retryable && failure.details.is_none() => failure.with_details(*so_far),
        _ => failure,
    })
}

/// Loads the attachments of a request and sends it to the provider.
async fn send(ctx: &TaskCtx, model: &Model, assembled: AssembledRequest) -> Result<Payload> {
    let provider = &model.provider;
    let AssembledRequest { mut request, question, truncate_at } = assembled;
    request
        .replace_attachments(|attachment| (!provider.shows(attachment)).then(|| Block::text(attachment.described_as_unknown())));
    let so_far = AttemptHistory::of(ctx);
    let left_out = if so_far.omits_attachments { leave_out_all(provider.name(), &mut request) } else { Vec::new() };
    let attachments = ctx.find_dep::<Attachments>();
    if let Err(error) = attachments::put_in_place(&mut request, attachments.as_deref(), so_far.is_late).await {
        ctx.spend(line(model, None, false));
        return Err(failed(ctx, model, so_far, &request, &error));
    }
    truncate_at.into_iter().for_each(|chars_max| prompt::truncate(&mut request.messages, chars_max));
    request.messages.extend(question.map(Message::user));
    // From here on, the ledger has the attempt whatever its outcome.
    ctx.spend(line(model, None, true));
    let mut on_delta = |delta: Delta| {
        if let Delta::Usage(usage) = &delta {
            ctx.spend(line(model, Some(*usage), true));
        }
        ctx.stream(&delta);
    };
    match model.call(&request, &mut on_delta).await {
        Ok(reply) => {
            ctx.spend(line(model, reply.usage, reply.usage.is_none()));
            Ok(Payload::json(&ModelReply { left_out, ..reply })?)
        }
        Err(error) => {
            ctx.spend(line(model, error.arrived.usage, error.cost_is_unknown()));
            Err(failed(ctx, model, so_far, &request, &error))
        }
    }
}

/// Returns the cost of the attempt, as far as the provider has reported it.
fn line(model: &Model, usage: Option<Usage>, is_unknown: bool) -> Spend {
    let Usage { input, cached_read, cached_write, output, reasoning } = usage.unwrap_or_default();
    let cost = model.settings.price.as_ref().map(|price| PicoDollars(price.cost(&usage.unwrap_or_default()).0));
    Spend {
        model: model.name.clone(),
        provider: model.provider.name().to_owned(),
        tokens: Tokens { input, cached_read, cached_write, output, reasoning },
        cost,
        is_unknown,
    }
}

/// Decodes a payload of the call. A process that serves models for others, such as a server, may lack their encryption key.
fn opened<T: DeserializeOwned>(ctx: &TaskCtx, payload: &Payload) -> Result<T> {
    if let Some(key) = payload.sealed_with() {
        let run = &ctx.task().run.id;
        let message = format!(
            "the model call is encrypted with key `{key}`, which this process does not have; register the model on a worker that \
             has the key, then `onward run retry {run}`"
        );
        return Err(Failure::fatal(message).with_code(ErrorCode::PayloadUnreadable));
    }
    payload.read().map_err(|error| Failure::fatal(format!("invalid input of a model call: {error}")))
}

/// A request before attachments are loaded and texts are truncated.
struct AssembledRequest {
    request: ModelRequest,
    /// A question after the conversation, never truncated.
    question: Option<String>,
    truncate_at: Option<usize>,
}

async fn assemble(ctx: &TaskCtx, provider: &str, prompt: Prompt) -> Result<AssembledRequest> {
    let (library, task) = (ctx.library(), ctx.task());
    let settings = match prompt.settings {
        SettingsSource::Here(settings) => *settings,
        SettingsSource::Kept(kept) => {
            let kept = library.kept(&task.run, task.generation, kept).await.map_err(unreadable)?;
            opened(ctx, &kept.content)?
        }
    };
    let Settings { request, ask: question, until, truncate_at } = settings;
    let walk = library.read(&task.run, task.generation, Walk::context(prompt.leaf)).await.map_err(unreadable)?;
    let mut entries = walk.into_entries();
    if let Some(last) = until.and_then(|until| entries.iter().position(|entry| entry.id == until)) {
        entries.truncate(last + 1);
    }
    let mut prompt_messages = prompt::to_messages(&entries, provider);
    if request.tools.is_empty() {
        prompt_messages.messages = prompt::without_tools(prompt_messages.messages);
    }
    let system: Vec<String> = request.system.into_iter().chain(prompt_messages.system).collect();
    let system = (!system.is_empty()).then(|| system.join("\n\n"));
    Ok(AssembledRequest {
        request: ModelRequest { system, messages: prompt_messages.messages, ..request },
        question,
        truncate_at,
    })
}

/// Converts a store error. A log that cannot be read now is retryable; a damaged one is not.
fn unreadable(error: StoreError) -> Failure {
    let retryable = error.consequence() == Consequence::Retry;
    Failure { retryable, ..Failure::new(error.code(), error.to_string()) }
}

/// Logs the error and returns the failure: whether and when to retry, and for how long the provider key is rate-limited.
fn failed(ctx: &TaskCtx, model: &Model, so_far: AttemptHistory, request: &ModelRequest, error: &CallError) -> Failure {
    let AttemptHistory { mut failures, mut omits_attachments, mut is_late } = so_far;
    let mut next = model.provider.retries().after(&mut failures, error);
    // An attachment that the provider rejects, or that no summary makes smaller, must not end the conversation.
    if matches!(error.cause, Cause::BadRequest | Cause::ContextTooLong) && !request.attachments().is_empty() && !omits_attachments
    {
        (next, omits_attachments) = (Next::Again { delay: Duration::ZERO }, true);
    }
    if matches!(error.cause, Cause::AttachmentMissing | Cause::AttachmentDamaged) && next == Next::GiveUp && !is_late {
        (next, is_late) = (Next::Again { delay: Duration::ZERO }, true);
    }
    let next_delay = match next {
        Next::Again { delay } => Some(delay),
        Next::GiveUp => None,
    };
    // Without the provider's message, which may repeat the prompt. The run's failure has it, for operators.
    tracing::warn!(
        run = %ctx.task().run,
        model = model.name,
        provider = model.provider.name(),
        attempt = ctx.attempt(),
        code = error.code(),
        status = error.status,
        request_id = error.request_id,
        blocks = error.arrived.blocks.len(),
        output_tokens = error.arrived.usage.map_or(0, |usage| usage.output),
        next_delay_ms = next_delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        "a model call failed: {}",
        error.cause
    );
    // Without a time from the provider, other calls with this key wait as long as this one; after the last attempt there is no
    // such time.
    let limited = error.retry_after().or(next_delay).filter(|_| error.limits_key());
    let message = format!("{error}; {}", error.hint());
    let (failure, details) = match next {
        Next::Again { delay } => {
            let so_far = AttemptHistory { failures, omits_attachments, is_late };
            (Failure::new(error.code(), message).with_retry_after(delay), Payload::json(&so_far).ok())
        }
        Next::GiveUp => {
            let run = &ctx.task().run;
            let hint = format!("if this fails the run, continue the conversation with `onward run retry {run}`");
            (Failure::fatal(format!("{message}; {hint}")).with_code(error.code()), details(&failures, error))
        }
    };
    let failure = limited.into_iter().fold(failure, Failure::with_limited);
    let failure = error.provider_message.iter().fold(failure, Failure::with_diagnosis);
    details.into_iter().fold(failure, Failure::with_details)
}

/// Returns the part of the answer that had arrived, as details of the failure.
fn details(failures: &Failures, error: &CallError) -> Option<Payload> {
    let details = match EmptyModelResponse::after(failures, error) {
        Some(empty) => Payload::json(&empty),
        None => {
            let ModelReply { blocks, usage, .. } = &*error.arrived;
            if blocks.is_empty() && usage.is_none() {
                return None;
            }
            Payload::json(error)
        }
    };
    details.ok()
}
