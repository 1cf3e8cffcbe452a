//! Responses in the Messages format.

use serde_json::{Value, json};

use crate::conversation::{ScriptedConversation, sign};
use crate::play::{fragments, in_turns};
use crate::script::{Fault, ReplyPart, ScriptedReply, TokenCounts};

pub(crate) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        400 => "invalid_request_error",
        401 => "authentication_error",
        404 => "not_found_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": null})
}

/// Returns the response in one piece.
pub(crate) fn whole(conversation: &ScriptedConversation, answer: &ScriptedReply, tokens: TokenCounts) -> Value {
    let id = conversation.fingerprint();
    let content: Vec<Value> = answer.parts.iter().enumerate().map(|(index, part)| block(part, &id, index)).collect();
    let mut message = head(conversation, tokens, tokens.output);
    message["content"] = json!(content);
    message["stop_reason"] = json!(stop_reason(answer));
    message
}

fn head(conversation: &ScriptedConversation, tokens: TokenCounts, output: u64) -> Value {
    let usage = json!({"input_tokens": tokens.input - tokens.cached, "cache_creation_input_tokens": 0,
                       "cache_read_input_tokens": tokens.cached, "output_tokens": output});
    json!({"id": format!("msg_{}", conversation.fingerprint()), "type": "message", "role": "assistant", "model": conversation.model,
           "content": [], "stop_reason": null, "stop_sequence": null, "usage": usage})
}

fn block(part: &ReplyPart, id: &str, index: usize) -> Value {
    match part {
        ReplyPart::Text(text) | ReplyPart::Refusal(text) => json!({"type": "text", "text": text}),
        ReplyPart::Reasoning(text) => json!({"type": "thinking", "thinking": text, "signature": sign(text)}),
        ReplyPart::Call { name, arguments } => {
            // A message in one piece cannot contain invalid JSON.
            let input: Value = serde_json::from_str(arguments).unwrap_or(json!({}));
            json!({"type": "tool_use", "id": format!("toolu_{id}_{index}"), "name": name, "input": input})
        }
    }
}

/// Returns the response as events.
pub(crate) fn events(conversation: &ScriptedConversation, answer: &ScriptedReply, tokens: TokenCounts) -> Vec<String> {
    let id = conversation.fingerprint();
    let blocks = answer.parts.iter().enumerate().map(|(index, part)| block_events(part, &id, index)).collect();
    let blocks = if answer.fault == Some(Fault::Interleaved) { in_turns(blocks) } else { blocks.into_iter().flatten().collect() };
    let start = json!({"type": "message_start", "message": head(conversation, tokens, 1.min(tokens.output))});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": stop_reason(answer), "stop_sequence": null},
                     "usage": {"output_tokens": tokens.output}});
    let events = [start, json!({"type": "ping"})].into_iter().chain(blocks).chain([end, json!({"type": "message_stop"})]);
    events.map(|event| self::event(&event)).collect()
}

pub(crate) fn event(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())
}

fn block_events(part: &ReplyPart, id: &str, index: usize) -> Vec<Value> {
    let start = match part {
        ReplyPart::Text(_) | ReplyPart::Refusal(_) => json!({"type": "text", "text": ""}),
        ReplyPart::Reasoning(_) => json!({"type": "thinking", "thinking": "", "signature": ""}),
        ReplyPart::Call { name, .. } => {
            json!({"type": "tool_use", "id": format!("toolu_{id}_{index}"), "name": name, "input": {}})
        }
    };
    let deltas: Vec<Value> = match part {
        ReplyPart::Text(text) | ReplyPart::Refusal(text) => {
            fragments(text).map(|text| json!({"type": "text_delta", "text": text})).collect()
        }
        ReplyPart::Reasoning(text) => {
            let thoughts = fragments(text).map(|text| json!({"type": "thinking_delta", "thinking": text}));
            thoughts.chain([json!({"type": "signature_delta", "signature": sign(text)})]).collect()
        }
        ReplyPart::Call { arguments, .. } => {
            let pieces = fragments(arguments).map(|text| json!({"type": "input_json_delta", "partial_json": text}));
            [json!({"type": "input_json_delta", "partial_json": ""})].into_iter().chain(pieces).collect()
        }
    };
    let deltas = deltas.into_iter().map(|delta| json!({"type": "content_block_delta", "index": index, "delta": delta}));
    let start = json!({"type": "content_block_start", "index": index, "content_block": start});
    [start].into_iter().chain(deltas).chain([json!({"type": "content_block_stop", "index": index})]).collect()
}

fn stop_reason(answer: &ScriptedReply) -> &'static str {
    match answer {
        answer if answer.cut => "max_tokens",
        answer if answer.has_calls() => "tool_use",
        answer if answer.refuses() => "refusal",
        _ => "end_turn",
    }
}
