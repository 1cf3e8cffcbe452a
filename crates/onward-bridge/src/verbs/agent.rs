//! The verbs of agents.

use onward::agent::{AgentCtx, EntryId, JsonText, ToolCall, ToolChoice, ToolSchema};
use onward::shell::CallFuture;
use onward_core::Hash;
use serde::{Deserialize, Serialize};

use super::arguments::*;
use super::waits::encoded;
use super::{Caller, Raw, Result, failed, json, unknown};
use crate::Called;
use crate::error::payload_of;

arguments! {
    First { state: Raw }
    EndTurn { state: Raw, signal: Option<String> }
    Append { role: String, content: Raw, key: Option<String> }
    MessagesArguments { last: Option<usize> }
    Compact { text: String, covers: Hash }
    BranchFrom { entry: Hash }
    Handoff { kind: String, #[serde(default = "null")] input: Raw }
    ModelArguments {
        model: String,
        system: Option<String>,
        #[serde(default)]
        tools: Vec<ToolSchema>,
        tool_choice: Option<ToolChoice>,
        max_tokens: Option<u32>,
        temperature_milli: Option<u32>,
        ask: Option<String>,
        at: Option<Hash>,
        truncate_at: Option<usize>,
        memo: Option<MemoArguments>,
        #[serde(default)]
        extra: std::collections::BTreeMap<String, JsonText>,
    }
    ToolArguments { call: ToolCall }
}

#[derive(Serialize)]
struct EntryReply {
    entry: Hash,
}

fn entry(id: EntryId) -> EntryReply {
    EntryReply { entry: id.into() }
}

pub(super) fn call(caller: &Caller<'_>, verb: &str, text: &str) -> Result<Called> {
    match verb {
        "turn_begin" => {
            let First { state } = read(verb, text)?;
            caller.wait(|ctx, _| {
                let ctx = ctx.clone();
                Box::pin(CallFuture::any(async move { ctx.begin_turn(&state).await }, |state| state))
            })
        }
        "turn_end" => {
            let EndTurn { state, signal } = read(verb, text)?;
            caller.wait(|ctx, _| {
                let ctx = ctx.clone();
                let end = async move { ctx.end_turn::<Raw>(&state, signal.as_deref()).await };
                Box::pin(CallFuture::any(end, |never| never.map(payload_of)))
            })
        }
        "checkpoint" => {
            let First { state } = read(verb, text)?;
            caller.wait(|ctx, _| {
                let ctx = ctx.clone();
                let end = async move { ctx.checkpoint::<Raw>(&state).await };
                Box::pin(CallFuture::any(end, |never| never.map(payload_of)))
            })
        }
        "checkpointed" => {
            let state = caller.with(|ctx| ctx.checkpointed::<Raw>())?.map_err(failed)?;
            json(state.map(|value| Value { value }))
        }
        "append" => {
            let Append { role, content, key } = read(verb, text)?;
            caller.attempt(|ctx| {
                // Both are ready at once: nothing is awaited in them.
                let appended = match &key {
                    Some(key) => at_once(ctx.append_once(key, &role, &content)),
                    None => at_once(ctx.append(&role, &content)),
                };
                appended.map(entry)
            })
        }
        "compact" => {
            let Compact { text, covers } = read(verb, text)?;
            caller.attempt(|ctx| at_once(ctx.compact(&text, covers.into())).map(entry))
        }
        "take_in" => caller.value(|ctx| {
            let taken = at_once_any(ctx.take_in()).unwrap_or_default();
            taken.into_iter().map(Hash::from).collect::<Vec<_>>()
        }),
        "entry_count" => caller.value(AgentCtx::entry_count),
        "leaf" => caller.value(|ctx| ctx.leaf().map(Hash::from)),
        "messages" => {
            let MessagesArguments { last } = read(verb, text)?;
            caller.wait(|ctx, _| {
                let messages = ctx.messages();
                let messages = last.into_iter().fold(messages, onward::agent::Messages::last);
                Box::pin(CallFuture::any(messages.into_future(), encoded))
            })
        }
        "branch" => {
            let BranchFrom { entry } = read(verb, text)?;
            caller.wait(|ctx, _| {
                let ctx = ctx.clone();
                Box::pin(CallFuture::any(async move { ctx.branch(entry.into()).await }, encoded))
            })
        }
        "handoff" => {
            let Handoff { kind, input } = read(verb, text)?;
            caller.wait(|ctx, _| Box::pin(CallFuture::any(ctx.handoff::<Raw, _>(&kind, &input), |never| never.map(payload_of))))
        }
        "llm" => {
            let arguments: ModelArguments = read(verb, text)?;
            caller.wait(|ctx, _| Box::pin(CallFuture::durable(model_call(ctx, arguments).start(), encoded)))
        }
        "tool" => {
            let ToolArguments { call } = read(verb, text)?;
            caller.wait(|ctx, _| Box::pin(CallFuture::any(ctx.tool(&call), encoded)))
        }
        _ => Err(unknown(verb)),
    }
}

/// Returns the output of a future that waits for nothing.
fn at_once<T>(future: impl Future<Output = onward::Result<T>>) -> onward::Result<T> {
    at_once_any(future).unwrap_or_else(|| Err(onward::Failure::fatal("an entry is appended at once")))
}

fn at_once_any<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::pin!(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

fn model_call(ctx: &AgentCtx, arguments: ModelArguments) -> onward::agent::ModelCall {
    use onward::agent::ModelCall;
    let ModelArguments { model, system, tools, tool_choice, max_tokens, temperature_milli, ask, at, truncate_at, memo, extra } =
        arguments;
    let call = ctx.llm(&model).schemas(tools);
    let call = system.into_iter().fold(call, ModelCall::system);
    let call = tool_choice.into_iter().fold(call, ModelCall::tool_choice);
    let call = max_tokens.into_iter().fold(call, ModelCall::max_tokens);
    let call = temperature_milli.into_iter().fold(call, ModelCall::temperature_milli);
    let call = ask.into_iter().fold(call, ModelCall::ask);
    let call = at.into_iter().fold(call, |call, at| call.at(at.into()));
    let call = truncate_at.into_iter().fold(call, ModelCall::truncate_at);
    let call = memo.into_iter().fold(call, |call, memo| call.memo(memo));
    extra.into_iter().fold(call, |call, (name, value)| call.extra(name, value))
}
