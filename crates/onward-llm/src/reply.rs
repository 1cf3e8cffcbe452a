//! Responses of models, complete and in parts.

use serde::{Deserialize, Serialize};

use crate::message::{Block, Message, Role, ToolCall};

/// A response, or the part of it that has arrived.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReply {
    pub blocks: Vec<Block>,
    /// `None` until the provider reports that the model is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// `None` if the provider has not reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The provider's id of this response; empty if it has none.
    #[serde(default)]
    pub response_id: String,
    /// The model that responded, which may differ from the requested one.
    #[serde(default)]
    pub model: String,
    /// Attachments that were left out because the provider did not accept them, by names that the caller of the model chose.
    /// Set by that caller, not by a provider.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model has finished.
    End,
    ToolCalls,
    /// The token limit of this response is reached.
    MaxTokens,
    /// The context window is full.
    ContextFull,
    StopSequence,
    Refusal,
    /// The provider paused a long turn; send the same conversation again to continue.
    Paused,
    Other(String),
}

/// Token counts, each token counted in one field, so that costs can be added.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Input that was neither read from a cache nor written to one.
    pub input: u64,
    /// Read from the provider's cache.
    pub cached_read: u64,
    /// Input that was written to the provider's cache.
    pub cached_write: u64,
    /// Everything the model wrote, including reasoning.
    pub output: u64,
    /// The part of `output` that was reasoning, if reported.
    pub reasoning: u64,
}

impl ModelReply {
    /// Returns the text of the response.
    pub fn text(&self) -> String {
        self.blocks.iter().filter_map(Block::as_text).collect()
    }

    /// Returns the tool calls, whatever the stop reason is.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(Block::as_call)
    }

    pub fn wants_tools(&self) -> bool {
        self.calls().next().is_some()
    }

    /// Returns the text of a refusal, which may be empty.
    pub fn refusal(&self) -> Option<&str> {
        self.blocks.iter().find_map(|block| match block {
            Block::Refusal { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns true if there is no text, call, reasoning or refusal, whatever the usage is.
    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(|block| match block {
            Block::Text { text, .. } => text.is_empty(),
            Block::Reasoning(reasoning) => reasoning.text.is_empty() && reasoning.payload.is_none(),
            _ => false,
        })
    }

    /// Returns the response as a message of the conversation.
    pub fn into_message(self) -> Message {
        Message { role: Role::Assistant, blocks: self.blocks }
    }
}

/// A part of a response as it arrives. It counts only if the call returns successfully.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Delta {
    Begin {
        response_id: String,
        model: String,
    },
    Text {
        text: String,
    },
    Reasoning {
        text: String,
    },
    Refusal {
        text: String,
    },
    /// `call` counts the calls of this response from 0.
    ToolCallBegin {
        call: u32,
        id: String,
        name: String,
    },
    ToolCallArguments {
        call: u32,
        text: String,
    },
    /// The usage so far; a later one replaces it. It is the known cost of a call that is given up.
    Usage(Usage),
}
