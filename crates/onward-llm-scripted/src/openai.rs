//! Responses in the Chat Completions format.

use serde_json::{Map, Value, json};

use crate::conversation::{ScriptedConversation, sign};
use crate::play::{fragments, in_turns};
use crate::script::{Fault, ReplyPart, ScriptedReply, TokenCounts};

/// Constant, so that responses are reproducible (SM1).
const CREATED: u64 = 1_700_000_000;

pub(crate) fn error(status: u16, message: &str) -> Value {
    let (kind, code) = match status {
        400 if message.contains("context length") => ("invalid_request_error", json!("context_length_exceeded")),
        400 | 404 => ("invalid_request_error", Value::Null),
        401 => ("invalid_request_error", json!("invalid_api_key")),
        429 => ("requests", json!("rate_limit_exceeded")),
        _ => ("server_error", Value::Null),
    };
    json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
}

/// Returns the response in one piece.
pub(crate) fn whole(conversation: &ScriptedConversation, answer: &ScriptedReply, tokens: TokenCounts) -> Value {
    let id = conversation.fingerprint();
    let mut message =
        Map::from_iter([("role".into(), json!("assistant")), ("content".into(), Value::Null), ("refusal".into(), Value::Null)]);
    let mut calls = Vec::new();
    for part in &answer.parts {
        match part {
            ReplyPart::Text(text) => append(&mut message, "content", text),
            ReplyPart::Refusal(text) => append(&mut message, "refusal", text),
            ReplyPart::Reasoning(text) => {
                message.insert("reasoning".into(), json!(text));
                message.insert("reasoning_details".into(), json!([detail(text, Some(sign(text)))]));
            }
            ReplyPart::Call { name, arguments } => {
                let function = json!({"name": name, "arguments": arguments});
                calls.push(json!({"id": format!("call_{id}_{}", calls.len()), "type": "function", "function": function}));
            }
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".into(), json!(calls));
    }
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": finish_reason(answer)});
    let choices = if matches!(answer.fault, Some(Fault::Empty)) { json!([]) } else { json!([choice]) };
    json!({"id": format!("chatcmpl-{id}"), "object": "chat.completion", "created": CREATED, "model": conversation.model,
           "choices": choices, "usage": usage(tokens)})
}

fn append(message: &mut Map<String, Value>, field: &str, text: &str) {
    let before = message[field].as_str().unwrap_or_default().to_owned();
    message.insert(field.into(), json!(before + text));
}

/// Returns the response as events.
pub(crate) fn events(conversation: &ScriptedConversation, answer: &ScriptedReply, tokens: Option<TokenCounts>) -> Vec<String> {
    let id = conversation.fingerprint();
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({"id": format!("chatcmpl-{id}"), "object": "chat.completion.chunk", "created": CREATED,
                           "model": conversation.model, "choices": choices, "usage": usage});
        format!("data: {chunk}\n\n")
    };
    let piece = |delta: Value, finish: Value| {
        chunk(json!([{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}]), Value::Null)
    };
    let mut events = vec![piece(json!({"role": "assistant", "content": "", "refusal": null}), Value::Null)];
    events.extend(deltas(answer, &id).into_iter().map(|delta| piece(delta, Value::Null)));
    events.push(piece(json!({}), finish_reason(answer)));
    events.extend(tokens.map(|tokens| chunk(json!([]), usage(tokens))));
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn deltas(answer: &ScriptedReply, id: &str) -> Vec<Value> {
    let mut deltas = Vec::new();
    let mut calls: Vec<Vec<Value>> = Vec::new();
    for part in &answer.parts {
        match part {
            ReplyPart::Text(text) => deltas.extend(fragments(text).map(|text| json!({"content": text}))),
            ReplyPart::Refusal(text) => deltas.extend(fragments(text).map(|text| json!({"refusal": text}))),
            ReplyPart::Reasoning(text) => {
                deltas.extend(fragments(text).map(|text| json!({"reasoning": text, "reasoning_details": [detail(text, None)]})));
                deltas.push(json!({"reasoning_details": [detail("", Some(sign(text)))]}));
            }
            ReplyPart::Call { name, arguments } => {
                let index = calls.len();
                let id = (answer.fault != Some(Fault::WithoutIds)).then(|| format!("call_{id}_{index}"));
                let first = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
                let rest = fragments(arguments).map(|text| json!({"index": index, "function": {"arguments": text}}));
                calls.push(std::iter::once(first).chain(rest).map(|call| json!({"tool_calls": [call]})).collect());
            }
        }
    }
    let calls = if answer.fault == Some(Fault::Interleaved) { in_turns(calls) } else { calls.into_iter().flatten().collect() };
    deltas.extend(calls);
    deltas
}

fn detail(text: &str, signature: Option<String>) -> Value {
    json!({"type": "reasoning.text", "index": 0, "text": text, "signature": signature})
}

fn finish_reason(answer: &ScriptedReply) -> Value {
    match answer {
        answer if answer.cut => json!("length"),
        answer if answer.has_calls() => json!("tool_calls"),
        _ => json!("stop"),
    }
}

fn usage(tokens: TokenCounts) -> Value {
    json!({"prompt_tokens": tokens.input, "completion_tokens": tokens.output, "total_tokens": tokens.input + tokens.output,
           "prompt_tokens_details": {"cached_tokens": tokens.cached}, "completion_tokens_details": {"reasoning_tokens": tokens.reasoning}})
}
