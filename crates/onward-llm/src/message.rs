//! Messages to and from a model, independent of the provider.
//!
//! Invariants:
//! - LM1: arguments of a call are the exact text that the model wrote, even if it is not JSON.
//! - LM4: a model's own call goes back to it in a form that every provider accepts: otherwise one invalid name would end the
//!   conversation.
//! - LM2: content that a provider signed or encrypted (reasoning, its own tools) goes back to that provider unchanged, and to
//!   no other.
//! - LM3: the same value is always written as the same JSON: fields in one order, no floats, no unordered maps.

use std::borrow::Cow;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::JsonText;
use crate::transport::json::Object;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    pub role: Role,
    pub blocks: Vec<Block>,
}

impl Message {
    /// Replaces each attachment for which `other` returns a block.
    pub fn replace_attachments(&mut self, other: &mut impl FnMut(&Attachment) -> Option<Block>) {
        self.blocks.iter_mut().for_each(|block| replace(block, other));
    }
}

fn replace(block: &mut Block, other: &mut impl FnMut(&Attachment) -> Option<Block>) {
    match block {
        Block::Attachment(attachment) => {
            if let Some(other) = other(attachment) {
                *block = other;
            }
        }
        Block::ToolResult(result) => result.blocks.iter_mut().for_each(|block| replace(block, other)),
        _ => {}
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    User,
    Assistant,
    /// Results of calls; such a message contains nothing else.
    Tool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    Text {
        text: String,
        /// Sources of the text, in the provider's own format.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        citations: Vec<JsonText>,
    },
    Attachment(Attachment),
    ToolCall(ToolCall),
    ToolResult(ToolResult),
    Reasoning(Reasoning),
    /// The model or its provider refused to answer; the text may be empty.
    Refusal {
        text: String,
    },
    /// A block of a type that only its provider knows.
    Opaque(ProviderPayload),
}

/// An image or a document. If the provider does not support it, a note to the model replaces it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// `image/png`, `application/pdf`, …
    pub media_type: String,
    pub source: Source,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Base64(String),
    Url(String),
    /// The hash of bytes that are stored elsewhere. The caller of a provider replaces it before
    /// ([`ModelRequest::replace_attachments`](crate::ModelRequest::replace_attachments)).
    Hash(String),
}

impl Source {
    pub fn bytes(bytes: &[u8]) -> Source {
        Source::Base64(BASE64_STANDARD.encode(bytes))
    }
}

impl Attachment {
    /// Returns the note to the model for an attachment that it cannot be shown; `why` follows a comma.
    pub fn described(&self, why: &str) -> String {
        let name = match &self.source {
            Source::Base64(_) => String::new(),
            Source::Url(name) | Source::Hash(name) => format!(" {name}"),
        };
        format!("[an attachment{name} of type {}, {why}]", self.media_type)
    }

    /// Returns the note for an attachment that the provider does not support.
    pub fn described_as_unknown(&self) -> String {
        self.described("which this model cannot be shown")
    }

    /// Returns the media type in lower case and without parameters such as a charset.
    pub(crate) fn essence(&self) -> String {
        self.media_type.split(';').next().unwrap_or_default().trim_end().to_ascii_lowercase()
    }

    /// Returns true if it is a text with bytes, now or later; its text can be sent to every model.
    pub fn is_text(&self) -> bool {
        const TEXTS: [&str; 4] = ["application/json", "application/xml", "application/yaml", "application/x-yaml"];
        let media_type = self.essence();
        let media_type = media_type.as_str();
        let is_text = media_type.starts_with("text/") || media_type.ends_with("+json") || media_type.ends_with("+xml");
        (is_text || TEXTS.contains(&media_type)) && !matches!(self.source, Source::Url(_))
    }

    /// Returns the text of the attachment for the model, if its bytes are present and UTF-8.
    pub fn words(&self) -> Option<String> {
        let Source::Base64(data) = &self.source else { return None };
        let words = String::from_utf8(BASE64_STANDARD.decode(data).ok()?).ok()?;
        self.is_text().then(|| format!("[an attachment of type {}]\n{words}", self.media_type))
    }
}

/// A tool call that the model requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    pub id: String,
    pub name: String,
    /// The text that the model wrote (LM1).
    pub arguments: String,
}

impl ToolCall {
    /// Returns the arguments as JSON; an empty text stands for no arguments.
    pub fn json(&self) -> Result<&RawValue, serde_json::Error> {
        let text = if self.arguments.trim().is_empty() { "{}" } else { &self.arguments };
        serde_json::from_str(text)
    }

    /// Returns a name that an object in the arguments has twice. Parsers disagree about its meaning, so it cannot be approved.
    pub fn repeated_name(&self) -> Option<String> {
        self.json().ok().and_then(|arguments| crate::transport::json::repeated_name(arguments.get()))
    }

    /// Returns the arguments for the provider: the model's own text if it is an object, otherwise an object with that text
    /// (LM4).
    pub(crate) fn arguments_to_send(&self) -> Cow<'_, RawValue> {
        match self.json() {
            Ok(json) if json.get().starts_with('{') => Cow::Borrowed(json),
            _ => Cow::Owned(Object::default().with("INVALID_JSON", &self.arguments).into_raw()),
        }
    }

    /// Returns the name for the provider (LM4).
    pub(crate) fn name_to_send(&self) -> Cow<'_, str> {
        as_taken(&self.name)
    }
}

/// Returns a name or id in a form that every provider accepts: letters, digits, `_` and `-`, up to a maximum length.
pub(crate) fn as_taken(text: &str) -> Cow<'_, str> {
    const TAKEN_MAX: usize = 64;
    let is_taken = |char: char| char.is_ascii_alphanumeric() || char == '_' || char == '-';
    if (1..=TAKEN_MAX).contains(&text.len()) && text.chars().all(is_taken) {
        return Cow::Borrowed(text);
    }
    let taken: String = text.chars().take(TAKEN_MAX).map(|char| if is_taken(char) { char } else { '_' }).collect();
    Cow::Owned(if taken.is_empty() { "_".to_owned() } else { taken })
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolResult {
    pub call_id: String,
    /// Texts and attachments.
    pub blocks: Vec<Block>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// The model's reasoning before its response.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reasoning {
    /// For people; may be a summary, or empty if the provider hides it.
    pub text: String,
    /// For the provider (LM2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<ProviderPayload>,
}

/// Content in a provider's own format, to be sent back to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderPayload {
    /// The provider's name in the operator's table.
    pub provider: String,
    pub json: JsonText,
}

impl Block {
    pub fn text(text: impl Into<String>) -> Block {
        Block::Text { text: text.into(), citations: Vec::new() }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let Block::Text { text, .. } = self { Some(text) } else { None }
    }

    pub(crate) fn as_call(&self) -> Option<&ToolCall> {
        if let Block::ToolCall(call) = self { Some(call) } else { None }
    }
}

impl Message {
    pub fn user(text: impl Into<String>) -> Message {
        Message { role: Role::User, blocks: vec![Block::text(text)] }
    }

    pub fn tool_result(call_id: impl Into<String>, text: impl Into<String>) -> Message {
        let result = ToolResult { call_id: call_id.into(), blocks: vec![Block::text(text)], is_error: false };
        Message { role: Role::Tool, blocks: vec![Block::ToolResult(result)] }
    }
}

#[cfg(test)]
mod tests;
