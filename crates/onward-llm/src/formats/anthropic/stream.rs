//! Responses in the Messages format: events, or one message from a server that does not stream.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::classify;
use crate::error::{CallError, Cause};
use crate::formats::response::{CallDraft, ReplyDraft};
use crate::message::{Block, ProviderPayload, Reasoning};
use crate::reply::{StopReason, Usage};
use crate::transport::json::{JsonText, Object};

#[derive(Debug, Default)]
pub(crate) struct AnthropicReader {
    /// By the index in the events.
    parts: BTreeMap<u64, AnthropicBlock>,
    tokens: AnthropicUsage,
}

#[derive(Debug)]
enum AnthropicBlock {
    Text {
        text: String,
        citations: Vec<JsonText>,
    },
    Thinking {
        text: String,
        signature: String,
    },
    /// `input` comes with the start of a block and is empty there, except from servers that do not send fragments.
    Call {
        call: CallDraft,
        input: Option<String>,
    },
    /// Reasoning that the provider hides.
    Redacted(JsonText),
    /// A block of an unknown type; `input` collects its fragments.
    Opaque {
        block: Object,
        input: String,
    },
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type", default)]
    sort: String,
    #[serde(default)]
    index: u64,
    message: Option<Head>,
    content_block: Option<Box<RawValue>>,
    delta: Option<Piece>,
    usage: Option<AnthropicUsage>,
    error: Option<Box<RawValue>>,
}

/// A message: whole, or the start of a stream.
#[derive(Deserialize)]
struct Head {
    id: Option<String>,
    model: Option<String>,
    #[serde(default)]
    content: Vec<Box<RawValue>>,
    stop_reason: Option<String>,
    usage: Option<AnthropicUsage>,
}

#[derive(Deserialize)]
struct Piece {
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    citation: Option<Box<RawValue>>,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct Start {
    #[serde(rename = "type")]
    sort: String,
    id: Option<String>,
    name: Option<String>,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    citations: Option<Vec<Box<RawValue>>>,
    input: Option<Box<RawValue>>,
}

/// Token counts as far as an event has them; later ones replace earlier ones.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
struct AnthropicUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

/// A thinking block in the form in which it goes back.
#[derive(Serialize)]
struct Thinking<'a> {
    r#type: &'static str,
    thinking: &'a str,
    signature: &'a str,
}

impl AnthropicReader {
    pub fn event(&mut self, data: &[u8], draft: &mut ReplyDraft) -> Result<(), CallError> {
        let event: Event = serde_json::from_slice(data).map_err(broken)?;
        if let Some(error) = &event.error {
            return Err(classify::inside_success(error));
        }
        if let Some(tokens) = event.usage {
            self.count(tokens, draft);
        }
        match event.sort.as_str() {
            "message" => self.head(serde_json::from_slice(data).map_err(broken)?, draft)?,
            "message_start" => self.head(event.message.ok_or_else(|| incomplete("message_start"))?, draft)?,
            "content_block_start" => {
                let block = event.content_block.ok_or_else(|| incomplete("content_block_start"))?;
                self.start(event.index, &block, draft)?;
            }
            "content_block_delta" => {
                self.piece(event.index, event.delta.ok_or_else(|| incomplete("content_block_delta"))?, draft)?
            }
            "content_block_stop" => self.stop(event.index, draft),
            "message_delta" => {
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    draft.stop = Some(stop_reason(reason));
                }
            }
            "message_stop" => draft.done = true,
            _ => {} // `ping`, and future events
        }
        Ok(())
    }

    fn head(&mut self, head: Head, draft: &mut ReplyDraft) -> Result<(), CallError> {
        draft.begin(head.id.as_deref(), head.model.as_deref());
        self.count(head.usage.unwrap_or_default(), draft);
        for (index, block) in (0..).zip(&head.content) {
            self.start(index, block, draft)?;
            self.stop(index, draft);
        }
        if let Some(reason) = head.stop_reason {
            draft.stop = Some(stop_reason(reason));
        }
        Ok(())
    }

    fn start(&mut self, index: u64, block: &RawValue, draft: &mut ReplyDraft) -> Result<(), CallError> {
        let start: Start = serde_json::from_str(block.get()).map_err(broken)?;
        let part = match start.sort.as_str() {
            "text" => {
                let text = start.text.unwrap_or_default();
                draft.text(&text);
                AnthropicBlock::Text { text, citations: start.citations.into_iter().flatten().map(JsonText::from).collect() }
            }
            "thinking" => {
                let text = start.thinking.unwrap_or_default();
                draft.reasoning(&text);
                AnthropicBlock::Thinking { text, signature: start.signature.unwrap_or_default() }
            }
            "redacted_thinking" => AnthropicBlock::Redacted(JsonText::from(block.to_owned())),
            "tool_use" => {
                let mut call = CallDraft::default();
                call.add(draft, start.id.as_deref(), start.name.as_deref(), "");
                AnthropicBlock::Call { call, input: start.input.map(|raw| raw.get().to_owned()) }
            }
            _ => AnthropicBlock::Opaque { block: serde_json::from_str(block.get()).map_err(broken)?, input: String::new() },
        };
        self.parts.insert(index, part);
        Ok(())
    }

    fn piece(&mut self, index: u64, piece: Piece, draft: &mut ReplyDraft) -> Result<(), CallError> {
        let part = self.parts.get_mut(&index);
        match part.ok_or_else(|| CallError::new(Cause::Malformed, format!("a delta for block {index}, which was not started")))? {
            AnthropicBlock::Text { text, citations } => {
                let more = piece.text.unwrap_or_default();
                text.push_str(&more);
                draft.text(&more);
                citations.extend(piece.citation.map(JsonText::from));
            }
            AnthropicBlock::Thinking { text, signature } => {
                let more = piece.thinking.unwrap_or_default();
                text.push_str(&more);
                draft.reasoning(&more);
                signature.push_str(&piece.signature.unwrap_or_default());
            }
            AnthropicBlock::Call { call, .. } => call.add(draft, None, None, &piece.partial_json.unwrap_or_default()),
            AnthropicBlock::Opaque { input, .. } => input.push_str(&piece.partial_json.unwrap_or_default()),
            AnthropicBlock::Redacted(_) => {}
        }
        Ok(())
    }

    /// Ends a block. A call without fragments has the arguments of its start.
    fn stop(&mut self, index: u64, draft: &mut ReplyDraft) {
        if let Some(AnthropicBlock::Call { call, input }) = self.parts.get_mut(&index)
            && !call.has_arguments()
        {
            call.add(draft, None, None, &input.take().unwrap_or_default());
        }
    }

    fn count(&mut self, usage: AnthropicUsage, draft: &mut ReplyDraft) {
        let known = &mut self.tokens;
        for (known, usage) in [
            (&mut known.input_tokens, usage.input_tokens),
            (&mut known.cache_read_input_tokens, usage.cache_read_input_tokens),
            (&mut known.cache_creation_input_tokens, usage.cache_creation_input_tokens),
            (&mut known.output_tokens, usage.output_tokens),
        ] {
            *known = usage.or(*known);
        }
        if known.input_tokens.is_some() || known.output_tokens.is_some() {
            draft.usage(Usage {
                input: known.input_tokens.unwrap_or(0),
                cached_read: known.cache_read_input_tokens.unwrap_or(0),
                cached_write: known.cache_creation_input_tokens.unwrap_or(0),
                output: known.output_tokens.unwrap_or(0),
                reasoning: 0, // not reported separately
            });
        }
    }

    pub fn blocks(&self, provider: &str) -> Vec<Block> {
        self.parts.values().map(|part| part.block(provider)).collect()
    }
}

impl AnthropicBlock {
    fn block(&self, provider: &str) -> Block {
        let payload = |json| ProviderPayload { provider: provider.to_owned(), json };
        match self {
            AnthropicBlock::Text { text, citations } => Block::Text { text: text.clone(), citations: citations.clone() },
            AnthropicBlock::Thinking { text, signature } => {
                let json =
                    JsonText::of(&Thinking { r#type: "thinking", thinking: text, signature }).expect("texts are plain data");
                // Without its signature the provider would refuse it.
                Block::Reasoning(Reasoning { text: text.clone(), payload: (!signature.is_empty()).then(|| payload(json)) })
            }
            AnthropicBlock::Redacted(json) => {
                Block::Reasoning(Reasoning { text: String::new(), payload: Some(payload(json.clone())) })
            }
            AnthropicBlock::Call { call, .. } => call.block(),
            AnthropicBlock::Opaque { block, input } => {
                let mut block = block.clone();
                if let Ok(input) = serde_json::from_str::<&RawValue>(input) {
                    block.set("input", input);
                }
                Block::Opaque(payload(JsonText::of(&block).expect("it was JSON before")))
            }
        }
    }
}

fn broken(error: serde_json::Error) -> CallError {
    CallError::new(Cause::Malformed, "an event is malformed").with_provider_message(error.to_string())
}

fn incomplete(sort: &str) -> CallError {
    CallError::new(Cause::Malformed, format!("event `{sort}` is incomplete"))
}

fn stop_reason(reason: String) -> StopReason {
    match reason.as_str() {
        "end_turn" => StopReason::End,
        "tool_use" => StopReason::ToolCalls,
        "max_tokens" => StopReason::MaxTokens,
        "model_context_window_exceeded" => StopReason::ContextFull,
        "stop_sequence" => StopReason::StopSequence,
        "refusal" => StopReason::Refusal,
        "pause_turn" => StopReason::Paused,
        _ => StopReason::Other(reason),
    }
}
