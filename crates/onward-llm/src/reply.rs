//! What a model answers: at the end, and piece by piece on the way.

use serde::{Deserialize, Serialize};

use crate::message::{Block, Message, Role, ToolCall};

/// An answer, or what has arrived of one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelReply {
    pub blocks: Vec<Block>,
    /// `None` while the model has not said that it is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopReason>,
    /// `None` when the provider has not told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// The provider's name for this answer; empty when it gives none.
    #[serde(default)]
    pub response_id: String,
    /// The model that answered, which may be another than was asked.
    #[serde(default)]
    pub model: String,
    /// What was attached and not shown to the model, because its provider did not take it. Whoever calls a model says so, in names of its
    /// own; no provider does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It has said what it wanted to say.
    End,
    ToolCalls,
    /// The limit of this answer is reached.
    MaxTokens,
    /// The limit of the conversation is reached.
    ContextFull,
    StopSequence,
    Refusal,
    /// Its provider paused a long turn; the same conversation sent again goes on.
    Paused,
    Other(String),
}

/// Tokens, each counted in one place: a ledger multiplies and adds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Read anew, neither from a cache nor into one.
    pub input: u64,
    /// Read from the provider's cache.
    pub cached_read: u64,
    /// Read anew and put into the provider's cache.
    pub cached_write: u64,
    /// Everything the model wrote, its reasoning included.
    pub output: u64,
    /// How much of `output` was reasoning, where that is told.
    pub reasoning: u64,
}

impl ModelReply {
    /// The text of the answer.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The tools it wants to be called, whatever it gives as its reason to stop.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.blocks.iter().filter_map(|block| match block {
            Block::ToolCall(call) => Some(call),
            _ => None,
        })
    }

    pub fn wants_tools(&self) -> bool {
        self.calls().next().is_some()
    }

    /// The text of a refusal, which may be empty.
    pub fn refusal(&self) -> Option<&str> {
        self.blocks.iter().find_map(|block| match block {
            Block::Refusal { text } => Some(text.as_str()),
            _ => None,
        })
    }

    /// Neither text nor call nor reasoning nor refusal, whatever the tokens say.
    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(|block| match block {
            Block::Text { text, .. } => text.is_empty(),
            Block::Reasoning(reasoning) => reasoning.text.is_empty() && reasoning.payload.is_none(),
            _ => false,
        })
    }

    /// The answer as a part of the conversation.
    pub fn into_message(self) -> Message {
        Message { role: Role::Assistant, blocks: self.blocks }
    }
}

/// A piece of an answer, as it arrives. Nothing of it counts until the call has returned.
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
    /// `call` counts the calls of this answer from 0.
    ToolCallBegin {
        call: u32,
        id: String,
        name: String,
    },
    ToolCallArguments {
        call: u32,
        text: String,
    },
    /// What the provider has counted so far; a later one replaces it. Who gives up a call knows its cost from here.
    Usage(Usage),
}
