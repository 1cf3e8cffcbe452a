//! Responses in the Chat Completions format: chunks, or one completion from a server that does not stream.
//!
//! Invariant LO1: calls are distinguished by their index. Ids and names may come late, be repeated in every chunk or be
//! missing.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::classify;
use crate::error::{CallError, Cause};
use crate::formats::response::{CallDraft, ReplyDraft};
use crate::message::{Block, ProviderPayload, Reasoning};
use crate::reply::{StopReason, Usage};
use crate::transport::json::{JsonText, Object};

#[derive(Debug, Default)]
pub(crate) struct OpenAiReader {
    /// In the order in which they began.
    parts: Vec<OpenAiPart>,
}

#[derive(Debug)]
enum OpenAiPart {
    Text(String),
    Refusal(String),
    Reasoning(Thought),
    Call { index: u64, call: CallDraft },
}

/// Reasoning as servers send it: a text under one of two names, details, or both.
#[derive(Debug, Default)]
struct Thought {
    text: String,
    field: Option<&'static str>,
    details: Vec<Object>,
}

#[derive(Deserialize)]
struct Chunk {
    id: Option<String>,
    model: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    choices: Vec<OpenAiChoice>,
    usage: Option<OpenAiUsage>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct OpenAiChoice {
    #[serde(default)]
    index: u64,
    /// `message` in a completion.
    #[serde(alias = "message")]
    delta: Option<Piece>,
    finish_reason: Option<String>,
    error: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct Piece {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    #[serde(default, deserialize_with = "or_empty")]
    reasoning_details: Vec<Object>,
    #[serde(default, deserialize_with = "or_empty")]
    tool_calls: Vec<CallPiece>,
}

#[derive(Deserialize)]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Deserialize)]
struct FunctionPiece {
    name: Option<String>,
    /// A text; some servers send the object itself.
    arguments: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct OpenAiUsage {
    #[serde(default, deserialize_with = "or_empty")]
    prompt_tokens: u64,
    #[serde(default, deserialize_with = "or_empty")]
    completion_tokens: u64,
    prompt_tokens_details: Option<PromptTokens>,
    completion_tokens_details: Option<CompletionTokens>,
}

#[derive(Deserialize)]
struct PromptTokens {
    #[serde(default, deserialize_with = "or_empty")]
    cached_tokens: u64,
    #[serde(default, deserialize_with = "or_empty")]
    cache_write_tokens: u64,
}

#[derive(Deserialize)]
struct CompletionTokens {
    #[serde(default, deserialize_with = "or_empty")]
    reasoning_tokens: u64,
}

/// Accepts `null`, which servers write for missing values.
fn or_empty<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl OpenAiReader {
    pub fn event(&mut self, data: &[u8], draft: &mut ReplyDraft) -> Result<(), CallError> {
        if data.trim_ascii() == b"[DONE]" {
            draft.done = true;
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_slice(data)
            .map_err(|error| CallError::new(Cause::Malformed, "a chunk is malformed").with_provider_message(error.to_string()))?;
        if let Some(usage) = &chunk.usage {
            draft.usage(usage.neutral());
        }
        if let Some(error) = &chunk.error {
            return Err(classify::inside_success(error));
        }
        draft.begin(chunk.id.as_deref(), chunk.model.as_deref());
        // One response was requested; others would be mixed into it.
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            if let Some(piece) = choice.delta {
                self.piece(piece, draft);
            }
            if let Some(error) = &choice.error {
                return Err(classify::inside_success(error));
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                draft.stop = Some(stop_reason(reason));
            }
        }
        Ok(())
    }

    fn piece(&mut self, piece: Piece, draft: &mut ReplyDraft) {
        let named = [("reasoning_content", piece.reasoning_content), ("reasoning", piece.reasoning)];
        let reasoning_text = named.into_iter().find_map(|(field, text)| Some((field, text.filter(|text| !text.is_empty())?)));
        if reasoning_text.is_some() || !piece.reasoning_details.is_empty() {
            let thought = self.thought();
            if let Some((field, text)) = &reasoning_text {
                thought.field.get_or_insert(field);
                thought.text.push_str(text);
                draft.reasoning(text);
            }
            piece.reasoning_details.into_iter().for_each(|detail| thought.add(detail));
        }
        if let Some(text) = piece.content.filter(|text| !text.is_empty()) {
            self.text().push_str(&text);
            draft.text(&text);
        }
        if let Some(text) = piece.refusal.filter(|text| !text.is_empty()) {
            self.refusal().push_str(&text);
            draft.refusal(&text);
        }
        for piece in piece.tool_calls {
            let CallPiece { index, id, function } = piece;
            let (name, arguments) = function.map_or((None, None), |function| (function.name, function.arguments));
            let arguments = arguments.map(|raw| text_or_json(&raw)).unwrap_or_default();
            let call = self.call(index, id.as_deref(), name.as_deref());
            call.add(draft, id.as_deref(), name.as_deref(), &arguments);
        }
    }

    /// Returns the call that a fragment belongs to (LO1).
    fn call(&mut self, index: Option<u64>, id: Option<&str>, name: Option<&str>) -> &mut CallDraft {
        let mut calls = self.parts.iter().enumerate().filter_map(|(at, part)| match part {
            OpenAiPart::Call { index, call } => Some((at, *index, call)),
            _ => None,
        });
        let last = calls.clone().next_back();
        let named = name.is_some_and(|name| !name.is_empty());
        let found = match index {
            Some(index) => calls.rfind(|(_, other, _)| *other == index),
            // Without an index, a name begins a call, and the rest follows it.
            None => last.filter(|_| !named),
        };
        let found = found.filter(|(_, _, call)| !call.is_followed_by(id, name)).map(|(at, ..)| at);
        let index = index.unwrap_or_else(|| last.map_or(0, |(_, index, _)| index + 1));
        let at = found.unwrap_or_else(|| {
            self.parts.push(OpenAiPart::Call { index, call: CallDraft::default() });
            self.parts.len() - 1
        });
        match &mut self.parts[at] {
            OpenAiPart::Call { call, .. } => call,
            _ => unreachable!("only calls were looked at"),
        }
    }

    fn text(&mut self) -> &mut String {
        let at = self.find(|part| matches!(part, OpenAiPart::Text(_)), || OpenAiPart::Text(String::new()));
        let OpenAiPart::Text(text) = &mut self.parts[at] else { unreachable!("it was looked for") };
        text
    }

    fn refusal(&mut self) -> &mut String {
        let at = self.find(|part| matches!(part, OpenAiPart::Refusal(_)), || OpenAiPart::Refusal(String::new()));
        let OpenAiPart::Refusal(text) = &mut self.parts[at] else { unreachable!("it was looked for") };
        text
    }

    fn thought(&mut self) -> &mut Thought {
        let at = self.find(|part| matches!(part, OpenAiPart::Reasoning(_)), || OpenAiPart::Reasoning(Thought::default()));
        let OpenAiPart::Reasoning(thought) = &mut self.parts[at] else { unreachable!("it was looked for") };
        thought
    }

    fn find(&mut self, wanted: impl Fn(&OpenAiPart) -> bool, new: impl Fn() -> OpenAiPart) -> usize {
        self.parts.iter().position(wanted).unwrap_or_else(|| {
            self.parts.push(new());
            self.parts.len() - 1
        })
    }

    pub fn blocks(&self, provider: &str) -> Vec<Block> {
        let block = |part: &OpenAiPart| match part {
            OpenAiPart::Text(text) => Block::text(text),
            OpenAiPart::Refusal(text) => Block::Refusal { text: text.clone() },
            OpenAiPart::Reasoning(thought) => Block::Reasoning(thought.block(provider)),
            OpenAiPart::Call { call, .. } => call.block(),
        };
        self.parts.iter().map(block).collect()
    }
}

impl Thought {
    /// Adds a detail. Details with the same type and index are fragments of one; all others are separate.
    fn add(&mut self, detail: Object) {
        let same = |name: &str, last: &Object| last.get(name).map(RawValue::get) == detail.get(name).map(RawValue::get);
        let streamed = matches!(detail.text("type").as_deref(), Some("reasoning.text" | "reasoning.summary"));
        let last = self.details.last_mut().filter(|last| streamed && same("type", last) && same("index", last));
        let Some(last) = last else { return self.details.push(detail) };
        for (name, value) in detail.into_entries().filter(|(_, value)| value.get() != "null") {
            let more: Option<String> = serde_json::from_str(value.get()).ok();
            match (name.as_str(), last.text(&name), more) {
                ("text" | "summary", Some(before), Some(more)) => last.set(&name, before + &more),
                _ => last.set(&name, value),
            }
        }
    }

    /// Returns the block; its payload has the fields of the message in which it goes back.
    fn block(&self, provider: &str) -> Reasoning {
        let mut fields = Object::default().with_some(self.field.unwrap_or_default(), self.field.map(|_| &self.text));
        if !self.details.is_empty() {
            fields.set("reasoning_details", &self.details);
        }
        let json = JsonText::of(&fields).expect("texts and what was JSON before");
        let payload = (!fields.is_empty()).then(|| ProviderPayload { provider: provider.to_owned(), json });
        Reasoning { text: self.text.clone(), payload }
    }
}

impl OpenAiUsage {
    /// Converts the counts. In this format the prompt includes cached tokens.
    fn neutral(&self) -> Usage {
        let cached =
            self.prompt_tokens_details.as_ref().map_or((0, 0), |details| (details.cached_tokens, details.cache_write_tokens));
        Usage {
            input: self.prompt_tokens.saturating_sub(cached.0).saturating_sub(cached.1),
            cached_read: cached.0,
            cached_write: cached.1,
            output: self.completion_tokens,
            reasoning: self.completion_tokens_details.as_ref().map_or(0, |details| details.reasoning_tokens),
        }
    }
}

fn text_or_json(raw: &RawValue) -> String {
    match raw.get() {
        "null" => String::new(),
        json => serde_json::from_str(json).unwrap_or_else(|_| json.to_owned()),
    }
}

fn stop_reason(reason: String) -> StopReason {
    match reason.as_str() {
        "stop" => StopReason::End,
        "tool_calls" | "function_call" => StopReason::ToolCalls,
        "length" => StopReason::MaxTokens,
        "content_filter" => StopReason::Refusal,
        _ => StopReason::Other(reason),
    }
}
