//! Requests in the Chat Completions format.

use serde::Serialize;

use crate::error::{CallError, NOT_IN_PLACE};
use crate::message::{Attachment, Block, Message, ProviderPayload, Role, Source, ToolCall, ToolResult};
use crate::request::{ModelRequest, ToolChoice, ToolSchema};
use crate::transport::json::Object;

/// Returns the body, with the token limit under the name that the server knows.
pub(crate) fn body(request: &ModelRequest, provider: &str, max_tokens_name: &str) -> Result<Object, CallError> {
    let mut body = Object::default()
        .with("model", &request.model)
        .with("messages", messages(request, provider)?)
        .with("stream", true)
        .with("stream_options", Object::default().with("include_usage", true))
        .with_some(max_tokens_name, request.max_tokens)
        .with_some("temperature", request.temperature().as_ref().map(|text| text.raw()))
        .with_some("tool_choice", request.tool_choice.as_ref().map(tool_choice));
    if !request.tools.is_empty() {
        body.set("tools", request.tools.iter().map(tool).collect::<Vec<_>>());
    }
    body.merge(&request.extras);
    Ok(body)
}

fn tool(tool: &ToolSchema) -> Object {
    let function =
        Object::default().with("name", &tool.name).with("description", &tool.description).with("parameters", tool.input.raw());
    Object::default().with("type", "function").with("function", function)
}

fn tool_choice(choice: &ToolChoice) -> ToolChoiceField<'_> {
    match choice {
        ToolChoice::Auto => ToolChoiceField::Word("auto"),
        ToolChoice::Any => ToolChoiceField::Word("required"),
        ToolChoice::None => ToolChoiceField::Word("none"),
        ToolChoice::Tool(name) => ToolChoiceField::Function(
            Object::default().with("type", "function").with("function", Object::default().with("name", name)),
        ),
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ToolChoiceField<'a> {
    Word(&'a str),
    Function(Object),
}

fn messages(request: &ModelRequest, provider: &str) -> Result<Vec<Object>, CallError> {
    let system = request.system.iter().map(|text| Object::default().with("role", "system").with("content", text));
    let mut messages: Vec<Object> = system.collect();
    // Tool results contain only text, so attachments of tools follow in a user message, after all results, which must not be
    // separated.
    let mut attached: Vec<Object> = Vec::new();
    let last_user = request.messages.iter().rposition(|message| message.role == Role::User);
    for (at, message) in request.messages.iter().enumerate() {
        if message.role != Role::Tool && !attached.is_empty() {
            messages.push(Object::default().with("role", "user").with("content", std::mem::take(&mut attached)));
        }
        match message.role {
            Role::User => messages.push(user(message)?),
            Role::Assistant => messages.push(assistant(message, provider, Some(at) > last_user)),
            Role::Tool => {
                for result in message.blocks.iter().filter_map(as_result) {
                    messages.push(tool_result(result));
                    attached.extend(attachments(&result.blocks)?);
                }
            }
        }
    }
    if !attached.is_empty() {
        messages.push(Object::default().with("role", "user").with("content", attached));
    }
    Ok(messages)
}

fn user(message: &Message) -> Result<Object, CallError> {
    let user = Object::default().with("role", "user");
    if let [Block::Text { text, .. }] = &message.blocks[..] {
        return Ok(user.with("content", text));
    }
    let mut parts = Vec::new();
    for block in &message.blocks {
        match block {
            Block::Text { text, .. } => parts.push(text_part(text)),
            Block::Attachment(attachment) => parts.push(attachment_part(attachment)?),
            _ => {}
        }
    }
    Ok(user.with("content", parts))
}

/// Writes an assistant message. Plain reasoning goes back only within its turn: servers want it with the calls it led to.
fn assistant(message: &Message, provider: &str, in_turn: bool) -> Object {
    let mut assistant = Object::default().with("role", "assistant");
    let text: String = message.blocks.iter().filter_map(Block::as_text).collect();
    let calls: Vec<Object> = message.blocks.iter().filter_map(Block::as_call).map(call).collect();
    for block in &message.blocks {
        match block {
            Block::Reasoning(reasoning) => {
                let own = reasoning.payload.as_ref().filter(|payload| payload.provider == provider); // LM2
                give_back(&mut assistant, own, in_turn);
            }
            Block::Refusal { text } => assistant.set("refusal", text),
            _ => {}
        }
    }
    // A message with calls only has no content; an empty message has an empty one.
    let content = (!text.is_empty() || calls.is_empty()).then_some(text);
    assistant.set("content", content);
    if !calls.is_empty() {
        assistant.set("tool_calls", calls);
    }
    assistant
}

fn give_back(assistant: &mut Object, payload: Option<&ProviderPayload>, in_turn: bool) {
    let fields = payload.and_then(|payload| serde_json::from_str::<Object>(payload.json.as_str()).ok());
    for (name, value) in fields.into_iter().flat_map(Object::into_entries) {
        if in_turn || name == "reasoning_details" {
            assistant.set(&name, value);
        }
    }
}

fn call(call: &ToolCall) -> Object {
    let function = Object::default().with("name", call.name_to_send()).with("arguments", call.arguments_to_send().get());
    Object::default().with("id", &call.id).with("type", "function").with("function", function)
}

/// Writes a tool result. The format has no flag for a failed tool, so the text contains it.
fn tool_result(result: &ToolResult) -> Object {
    let text: String = result.blocks.iter().filter_map(Block::as_text).collect();
    let content = if result.is_error { format!("error: {text}") } else { text };
    Object::default().with("role", "tool").with("tool_call_id", &result.call_id).with("content", content)
}

fn attachments(blocks: &[Block]) -> Result<Vec<Object>, CallError> {
    let attachments = blocks.iter().filter_map(|block| match block {
        Block::Attachment(attachment) => Some(attachment_part(attachment)),
        _ => None,
    });
    attachments.collect()
}

enum Sort {
    Image,
    File,
    Audio(&'static str),
    Words,
}

/// Returns how servers of this format accept the attachment; `None` if they do not.
fn sort_of(attachment: &Attachment) -> Option<Sort> {
    let has_bytes = !matches!(attachment.source, Source::Url(_));
    match attachment.essence().as_str() {
        _ if attachment.is_text() => Some(Sort::Words),
        image if image.starts_with("image/") => Some(Sort::Image),
        "application/pdf" if has_bytes => Some(Sort::File),
        "audio/wav" | "audio/x-wav" if has_bytes => Some(Sort::Audio("wav")),
        "audio/mpeg" | "audio/mp3" if has_bytes => Some(Sort::Audio("mp3")),
        _ => None,
    }
}

/// Returns true if the format supports the attachment, as itself or as text.
pub(crate) fn shows(attachment: &Attachment) -> bool {
    sort_of(attachment).is_some()
}

fn attachment_part(attachment: &Attachment) -> Result<Object, CallError> {
    let Some(sort) = sort_of(attachment) else { return Ok(text_part(&attachment.described_as_unknown())) };
    let (url, data) = match &attachment.source {
        Source::Base64(data) => (format!("data:{};base64,{data}", attachment.essence()), data.as_str()),
        Source::Url(url) => (url.clone(), ""),
        Source::Hash(hash) => return Err(CallError::attachment_missing(hash, NOT_IN_PLACE)),
    };
    let part = match sort {
        Sort::Image => Object::default().with("type", "image_url").with("image_url", Object::default().with("url", url)),
        Sort::File => {
            let file = Object::default().with("filename", "attachment.pdf").with("file_data", url);
            Object::default().with("type", "file").with("file", file)
        }
        Sort::Audio(format) => {
            let audio = Object::default().with("data", data).with("format", format);
            Object::default().with("type", "input_audio").with("input_audio", audio)
        }
        Sort::Words => text_part(&attachment.words().unwrap_or_else(|| attachment.described_as_unknown())),
    };
    Ok(part)
}

fn text_part(text: &str) -> Object {
    Object::default().with("type", "text").with("text", text)
}

fn as_result(block: &Block) -> Option<&ToolResult> {
    match block {
        Block::ToolResult(result) => Some(result),
        _ => None,
    }
}
