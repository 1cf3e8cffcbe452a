//! A response while it arrives: the part that both API formats share.

use crate::reply::{Delta, StopReason, Usage};
use crate::{Block, ToolCall};

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
        for (known, told) in [(&mut self.response_id, response_id), (&mut self.model, model)] {
            if known.is_empty() {
                known.push_str(told.unwrap_or_default());
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
            for (known, told) in [(&mut self.id, id), (&mut self.name, name)] {
                if known.is_empty() {
                    known.push_str(told.unwrap_or_default());
                }
            }
        }
        self.arguments.push_str(arguments);
        let (number, news) = match self.number {
            Some(number) => (number, arguments.to_owned()),
            None if self.name.is_empty() => return,
            None => (self.announce(draft), self.arguments.clone()),
        };
        if !news.is_empty() {
            draft.deltas.push(Delta::ToolCallArguments { call: number, text: news });
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
        let other =
            |known: &str, told: Option<&str>| told.is_some_and(|told| !told.is_empty() && !known.is_empty() && told != known);
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
