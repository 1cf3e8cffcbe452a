//! Requests to models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JsonText;
use crate::message::{Attachment, Block, Message, Role, Source};

/// A request to a model: a conversation, the tools it may call, and options.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelRequest {
    /// The provider's name of the model.
    pub model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    pub messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSchema>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// In thousandths, because no floats are recorded: 700 is 0.7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Fields of the provider's own request, applied last; `null` removes one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extras: BTreeMap<String, JsonText>,
}

/// The description of a tool for a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSchema {
    pub name: String,
    pub description: String,
    /// JSON Schema of the arguments, which are an object.
    pub input: JsonText,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    Auto,
    /// The model must call a tool.
    Any,
    None,
    Tool(String),
}

impl ModelRequest {
    pub fn new(model: impl Into<String>, messages: Vec<Message>) -> ModelRequest {
        ModelRequest { model: model.into(), messages, ..ModelRequest::default() }
    }

    /// Returns the hashes of attachments whose bytes are stored elsewhere, the latest first, each once.
    pub fn hashes(&self) -> Vec<String> {
        hashes(&self.messages)
    }

    /// Returns those hashes that come after the last response of a model.
    pub fn new_hashes(&self) -> Vec<String> {
        hashes(self.unanswered())
    }

    /// Returns all attachments, the latest first.
    pub fn attachments(&self) -> Vec<&Attachment> {
        latest_first(&self.messages).collect()
    }

    fn unanswered(&self) -> &[Message] {
        let answered = self.messages.iter().rposition(|message| message.role == Role::Assistant);
        &self.messages[answered.map_or(0, |answered| answered + 1)..]
    }

    /// Replaces each attachment for which `other` returns a block.
    pub fn replace_attachments(&mut self, mut other: impl FnMut(&Attachment) -> Option<Block>) {
        self.messages.iter_mut().for_each(|message| message.replace_attachments(&mut other));
    }

    pub(crate) fn temperature(&self) -> Option<JsonText> {
        let milli = self.temperature_milli?;
        let text = format!("{}.{:03}", milli / 1000, milli % 1000);
        let text = text.trim_end_matches('0').trim_end_matches('.');
        Some(JsonText::parse(text).expect("a decimal number is JSON"))
    }
}

fn hashes(messages: &[Message]) -> Vec<String> {
    let mut hashes: Vec<String> = Vec::new();
    for attachment in latest_first(messages) {
        if let Source::Hash(hash) = &attachment.source
            && !hashes.contains(hash)
        {
            hashes.push(hash.clone());
        }
    }
    hashes
}

fn latest_first(messages: &[Message]) -> impl Iterator<Item = &Attachment> {
    messages.iter().rev().flat_map(|message| message.blocks.iter().rev()).flat_map(attachments)
}

/// Returns the attachments of a block, the latest first. They are in messages and in tool results, and no deeper.
fn attachments(block: &Block) -> Vec<&Attachment> {
    match block {
        Block::Attachment(attachment) => vec![attachment],
        Block::ToolResult(result) => result.blocks.iter().rev().flat_map(attachments).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
