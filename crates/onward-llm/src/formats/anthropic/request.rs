//! Requests in the Messages format.

use serde_json::value::RawValue;

use crate::error::{CallError, NOT_IN_PLACE};
use crate::message::{Attachment, Block, ProviderPayload, Role, Source, ToolCall, ToolResult, as_taken};
use crate::request::{ModelRequest, ToolChoice, ToolSchema};
use crate::transport::json::{JsonText, Object};

/// The format requires a token limit, so this is the default.
const MAX_TOKENS: u32 = 4_096;

pub(crate) fn body(request: &ModelRequest, provider: &str) -> Result<Object, CallError> {
    let mut body = Object::default()
        .with("model", &request.model)
        .with("max_tokens", request.max_tokens.unwrap_or(MAX_TOKENS))
        .with("messages", messages(request, provider)?)
        .with("stream", true)
        .with_some("system", request.system.as_ref())
        .with_some("temperature", request.temperature().as_ref().map(|text| text.raw()))
        .with_some("tool_choice", request.tool_choice.as_ref().map(tool_choice));
    if !request.tools.is_empty() {
        body.set("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
    }
    body.merge(&request.extras);
    Ok(body)
}

fn tool(tool: &ToolSchema) -> Object {
    Object::default().with("name", &tool.name).with("description", &tool.description).with("input_schema", tool.input.raw())
}

fn tool_choice(choice: &ToolChoice) -> Object {
    let (word, name) = match choice {
        ToolChoice::Auto => ("auto", None),
        ToolChoice::Any => ("any", None),
        ToolChoice::None => ("none", None),
        ToolChoice::Tool(name) => ("tool", Some(name)),
    };
    Object::default().with("type", word).with_some("name", name)
}

/// Merges successive messages of one side: all tool results of a turn must be in the message after its calls.
fn messages(request: &ModelRequest, provider: &str) -> Result<Vec<Object>, CallError> {
    let mut sides: Vec<(&str, Vec<Object>)> = Vec::new();
    for message in &request.messages {
        let side = if message.role == Role::Assistant { "assistant" } else { "user" };
        let mut blocks = Vec::new();
        for block in &message.blocks {
            blocks.extend(self::block(block, provider)?);
        }
        match sides.last_mut() {
            Some((last, earlier)) if *last == side => earlier.extend(blocks),
            _ => sides.push((side, blocks)),
        }
    }
    sides.retain(|(_, blocks)| !blocks.is_empty());
    Ok(sides.into_iter().map(|(side, blocks)| Object::default().with("role", side).with("content", blocks)).collect())
}

fn block(block: &Block, provider: &str) -> Result<Option<Object>, CallError> {
    let block = match block {
        // The provider refuses a text of blanks.
        Block::Text { text, .. } | Block::Refusal { text } if text.trim().is_empty() => None,
        Block::Text { text, citations } => {
            let citations: Vec<&RawValue> = citations.iter().map(JsonText::raw).collect();
            Some(self::text(text).with_some("citations", (!citations.is_empty()).then_some(citations)))
        }
        Block::Refusal { text } => Some(self::text(text)),
        Block::Attachment(attachment) => Some(self::attachment(attachment)?),
        Block::ToolCall(call) => Some(tool_use(call)),
        Block::ToolResult(result) => Some(tool_result(result, provider)?),
        Block::Reasoning(reasoning) => reasoning.payload.as_ref().and_then(|payload| own(payload, provider)),
        Block::Opaque(payload) => own(payload, provider),
    };
    Ok(block)
}

fn text(text: &str) -> Object {
    Object::default().with("type", "text").with("text", text)
}

/// Returns this provider's own content unchanged; content of another one would be refused (LM2).
fn own(payload: &ProviderPayload, provider: &str) -> Option<Object> {
    (payload.provider == provider).then(|| serde_json::from_str(payload.json.as_str()).ok()).flatten()
}

/// Writes a tool call. Ids of another provider are converted to characters that this one accepts.
fn tool_use(call: &ToolCall) -> Object {
    let tool_use = Object::default().with("type", "tool_use").with("id", as_taken(&call.id)).with("name", call.name_to_send());
    tool_use.with("input", call.arguments_to_send())
}

fn tool_result(result: &ToolResult, provider: &str) -> Result<Object, CallError> {
    let mut content = Vec::new();
    for block in &result.blocks {
        content.extend(self::block(block, provider)?);
    }
    let object =
        Object::default().with("type", "tool_result").with("tool_use_id", as_taken(&result.call_id)).with("content", content);
    Ok(object.with_some("is_error", result.is_error.then_some(true)))
}

/// Returns true if the format supports the attachment, as itself or as text.
pub(crate) fn shows(attachment: &Attachment) -> bool {
    sort_of(&attachment.essence()).is_some() || attachment.is_text()
}

fn sort_of(media_type: &str) -> Option<&'static str> {
    match media_type {
        "application/pdf" => Some("document"),
        "image/jpeg" | "image/png" | "image/gif" | "image/webp" => Some("image"),
        _ => None,
    }
}

fn attachment(attachment: &Attachment) -> Result<Object, CallError> {
    let (media_type, source) = (attachment.essence(), &attachment.source);
    if !shows(attachment) {
        return Ok(text(&attachment.described_as_unknown()));
    }
    let (sort, source) = match (sort_of(&media_type), source) {
        (_, Source::Hash(hash)) => return Err(CallError::attachment_missing(hash, NOT_IN_PLACE)),
        (None, _) => return Ok(text(&attachment.words().unwrap_or_else(|| attachment.described_as_unknown()))),
        (Some(sort), Source::Base64(data)) => {
            (sort, Object::default().with("type", "base64").with("media_type", &media_type).with("data", data))
        }
        (Some(sort), Source::Url(url)) => (sort, Object::default().with("type", "url").with("url", url)),
    };
    Ok(Object::default().with("type", sort).with("source", source))
}
