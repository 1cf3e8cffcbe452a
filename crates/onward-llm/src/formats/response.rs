//! Parses one response from bytes: the part that both API formats share. Knows nothing of sockets and clocks.
//!
//! Invariants:
//! - LA1: the result does not depend on how the bytes were split on the way.
//! - LA2: a response counts only if the provider reported that it is complete; otherwise the error has the part that arrived.
//! - LA3: a response without text, call, reasoning or refusal is an error, and so is an error inside a success.

use crate::error::{CallError, Cause};
use crate::reply::{Delta, ModelReply, StopReason, Usage};
use crate::transport::sse::{Events, TooLong};
use crate::{ApiFormat, Block, ToolCall, formats::anthropic, formats::openai};

/// Number of bytes of an invalid response that an error shows.
const SHOWN_BYTES_MAX: usize = 500;

/// Receiver of the parts of a response as they arrive.
pub type Sink<'a> = &'a mut (dyn FnMut(Delta) + Send);

pub(crate) struct ResponseReader {
    provider: String,
    reader: FormatReader,
    events: Events,
    draft: ReplyDraft,
    /// The first bytes, to show why a response is invalid.
    beginning: Vec<u8>,
    bytes: usize,
    bytes_max: usize,
}

enum FormatReader {
    OpenAi(openai::OpenAiReader),
    Anthropic(anthropic::AnthropicReader),
}

impl ResponseReader {
    pub fn new(api_format: ApiFormat, provider: &str, bytes_max: usize) -> ResponseReader {
        let reader = match api_format {
            ApiFormat::OpenAi => FormatReader::OpenAi(openai::OpenAiReader::default()),
            ApiFormat::Anthropic => FormatReader::Anthropic(anthropic::AnthropicReader::default()),
        };
        let (events, draft) = (Events::new(bytes_max), ReplyDraft::default());
        ResponseReader { provider: provider.to_owned(), reader, events, draft, beginning: Vec::new(), bytes: 0, bytes_max }
    }

    /// Adds the next bytes of an event stream.
    pub fn feed(&mut self, bytes: &[u8], sink: Sink<'_>) -> Result<(), CallError> {
        self.count(bytes)?;
        let events = self.events.feed(bytes).map_err(|TooLong| self.too_large());
        self.events(events?, sink)
    }

    /// Adds a response that came in one piece, from a server that does not stream.
    pub fn whole(&mut self, body: &[u8], sink: Sink<'_>) -> Result<(), CallError> {
        self.count(body)?;
        self.events(vec![body.to_owned()], sink)?;
        self.draft.done = true;
        Ok(())
    }

    /// Handles the end of the stream.
    pub fn end(&mut self, sink: Sink<'_>) -> Result<(), CallError> {
        let last = self.events.finish();
        self.events(last.into_iter().collect(), sink)
    }

    /// Returns true if the provider has reported that nothing follows.
    pub fn is_done(&self) -> bool {
        self.draft.done
    }

    /// Returns the response, or the error if it is incomplete or empty.
    pub fn finish(&self) -> Result<ModelReply, CallError> {
        let mut reply = self.arrived();
        if !self.is_complete() {
            if self.bytes == 0 {
                return Err(self.fail(CallError::new(Cause::Empty, "a success response without a body")));
            }
            return Err(self.fail(
                CallError::new(Cause::Malformed, "the response ended before the model had finished")
                    .with_provider_message(self.shown()),
            ));
        }
        if reply.calls().any(|call| call.name.is_empty()) {
            return Err(self.fail(CallError::new(Cause::Malformed, "a tool call has no name")));
        }
        if reply.stop == Some(StopReason::Refusal) && reply.refusal().is_none() {
            reply.blocks.push(Block::Refusal { text: String::new() });
        }
        if reply.is_empty() {
            return Err(self.fail(CallError::new(Cause::Empty, "no content").with_provider_message(self.shown()))); // LA3
        }
        Ok(reply)
    }

    /// Returns true if the whole response arrived, even if the connection broke afterwards (LA2).
    pub fn is_complete(&self) -> bool {
        self.draft.done || self.draft.stop.is_some()
    }

    /// Adds the part that had arrived to an error.
    pub fn fail(&self, error: CallError) -> CallError {
        CallError { arrived: Box::new(self.arrived()), ..error }
    }

    fn arrived(&self) -> ModelReply {
        let blocks = match &self.reader {
            FormatReader::OpenAi(reader) => reader.blocks(&self.provider),
            FormatReader::Anthropic(reader) => reader.blocks(&self.provider),
        };
        let ReplyDraft { stop, usage, response_id, model, .. } = &self.draft;
        ModelReply {
            blocks,
            stop: stop.clone(),
            usage: *usage,
            response_id: response_id.clone(),
            model: model.clone(),
            left_out: Vec::new(),
        }
    }

    fn events(&mut self, events: Vec<Vec<u8>>, sink: Sink<'_>) -> Result<(), CallError> {
        for event in events {
            let outcome = match &mut self.reader {
                FormatReader::OpenAi(reader) => reader.event(&event, &mut self.draft),
                FormatReader::Anthropic(reader) => reader.event(&event, &mut self.draft),
            };
            self.draft.take_deltas().into_iter().for_each(&mut *sink);
            outcome.map_err(|error| self.fail(self.interrupted(error)))?;
            if self.draft.done {
                break;
            }
        }
        Ok(())
    }

    /// Returns the error for an error inside a success: an empty response, or a broken one if a part had arrived.
    fn interrupted(&self, error: CallError) -> CallError {
        let begun = !self.arrived().is_empty();
        let cause = if begun && matches!(error.cause, Cause::Empty) { Cause::Malformed } else { error.cause };
        CallError { cause, ..error }
    }

    /// Returns the beginning of a response of which nothing was understood.
    fn shown(&self) -> String {
        if self.arrived().is_empty() {
            let text = String::from_utf8_lossy(&self.beginning);
            format!("the response begins with: {}", text.trim())
        } else {
            String::new()
        }
    }

    fn count(&mut self, bytes: &[u8]) -> Result<(), CallError> {
        self.bytes += bytes.len();
        let room = SHOWN_BYTES_MAX - self.beginning.len();
        self.beginning.extend_from_slice(&bytes[..room.min(bytes.len())]);
        if self.bytes > self.bytes_max { Err(self.too_large()) } else { Ok(()) }
    }

    fn too_large(&self) -> CallError {
        self.fail(CallError::new(Cause::TooLarge, format!("more than {} bytes", self.bytes_max)))
    }
}

/// Everything about a response except its blocks, and the deltas that were not passed on yet.
#[derive(Debug, Default)]
pub(crate) struct ReplyDraft {
    pub response_id: String,
    pub model: String,
    pub stop: Option<StopReason>,
    pub usage: Option<Usage>,
    /// The provider has reported that nothing follows.
    pub done: bool,
    begun: bool,
    deltas: Vec<Delta>,
    call_ids: Vec<String>,
}

impl ReplyDraft {
    /// Sets the id and the model. Many servers repeat both in every chunk; the first ones count.
    pub fn begin(&mut self, response_id: Option<&str>, model: Option<&str>) {
        for (known, value) in [(&mut self.response_id, response_id), (&mut self.model, model)] {
            if known.is_empty() {
                known.push_str(value.unwrap_or_default());
            }
        }
        if !std::mem::replace(&mut self.begun, true) {
            self.deltas.push(Delta::Begin { response_id: self.response_id.clone(), model: self.model.clone() });
        }
    }

    pub fn text(&mut self, text: &str) {
        if !text.is_empty() {
            self.deltas.push(Delta::Text { text: text.to_owned() });
        }
    }

    pub fn reasoning(&mut self, text: &str) {
        if !text.is_empty() {
            self.deltas.push(Delta::Reasoning { text: text.to_owned() });
        }
    }

    pub fn refusal(&mut self, text: &str) {
        if !text.is_empty() {
            self.deltas.push(Delta::Refusal { text: text.to_owned() });
        }
    }

    pub fn usage(&mut self, usage: Usage) {
        if self.usage != Some(usage) {
            self.usage = Some(usage);
            self.deltas.push(Delta::Usage(usage));
        }
    }

    pub fn take_deltas(&mut self) -> Vec<Delta> {
        std::mem::take(&mut self.deltas)
    }
}

/// A call whose fragments are arriving, possibly mixed with those of other calls.
#[derive(Debug, Default)]
pub(crate) struct CallDraft {
    id: String,
    name: String,
    arguments: String,
    /// Its number among the calls of the response, once its name is known and it was announced.
    number: Option<u32>,
}

impl CallDraft {
    /// Adds a fragment. Ids and names that are repeated in every fragment belong to the same call.
    pub fn add(&mut self, draft: &mut ReplyDraft, id: Option<&str>, name: Option<&str>, arguments: &str) {
        if self.number.is_none() {
            for (known, value) in [(&mut self.id, id), (&mut self.name, name)] {
                if known.is_empty() {
                    known.push_str(value.unwrap_or_default());
                }
            }
        }
        self.arguments.push_str(arguments);
        let (number, added) = match self.number {
            Some(number) => (number, arguments.to_owned()),
            None if self.name.is_empty() => return,
            None => (self.announce(draft), self.arguments.clone()),
        };
        if !added.is_empty() {
            draft.deltas.push(Delta::ToolCallArguments { call: number, text: added });
        }
    }

    fn announce(&mut self, draft: &mut ReplyDraft) -> u32 {
        let number = u32::try_from(draft.call_ids.len()).unwrap_or(u32::MAX);
        // A tool result refers to its call by id, so every call needs a unique one.
        if self.id.is_empty() || draft.call_ids.contains(&self.id) {
            self.id = format!("call_{}_{number}", draft.response_id);
        }
        draft.call_ids.push(self.id.clone());
        draft.deltas.push(Delta::ToolCallBegin { call: number, id: self.id.clone(), name: self.name.clone() });
        self.number = Some(number);
        number
    }

    /// Returns true if a fragment with this id and name begins another call: some servers give all calls the same index.
    pub fn is_followed_by(&self, id: Option<&str>, name: Option<&str>) -> bool {
        let other = |known: &str, value: Option<&str>| {
            value.is_some_and(|value| !value.is_empty() && !known.is_empty() && value != known)
        };
        let named = name.is_some_and(|name| !name.is_empty());
        let whole = serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok();
        named && whole && other(&self.id, id)
    }

    pub fn has_arguments(&self) -> bool {
        !self.arguments.is_empty()
    }

    pub fn block(&self) -> Block {
        Block::ToolCall(ToolCall { id: self.id.clone(), name: self.name.clone(), arguments: self.arguments.clone() })
    }
}
