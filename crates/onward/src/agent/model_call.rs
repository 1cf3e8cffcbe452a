//! Model calls: tasks whose input refers to the conversation instead of repeating it.
//!
//! A call records the hash of the conversation's last entry and the id of its settings, which are stored once beside the
//! conversation. A call without a conversation has its settings with it. The worker that executes the task assembles the prompt
//! ([`super::model_attempt`]).

use onward_core::event::EntryLocation;
use onward_core::memo::derived_key;
use onward_core::task::{MODEL_CALL, RetryPolicy};
use onward_core::{Hash, Name};
use onward_llm::{JsonText, ModelReply, ModelRequest, ToolChoice, ToolSchema};
use serde::{Deserialize, Serialize};

use super::tools::Tools;
use super::{AgentCtx, EntryId};
use crate::ctx::{Memo, TaskCall, name_or_misuse, payload_or_misuse};

/// The role under which settings are stored beside the conversation.
const SETTINGS: &str = "settings";

/// The retry policy of model calls. The worker decides by cause whether and when to retry, so the number of attempts is not
/// limited. The engine's own delay is the shortest possible.
const RETRY: RetryPolicy = RetryPolicy { growth_percent: 100, ..RetryPolicy::forever() };

/// Returns the task kind of calls to this model.
pub(crate) fn model_kind(model: &str) -> String {
    format!("{MODEL_CALL}{model}")
}

/// The input of a model call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Prompt {
    /// The last entry of the conversation; `None` if it is empty.
    pub leaf: Option<Hash>,
    pub settings: SettingsSource,
}

/// Where the settings of a call are.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum SettingsSource {
    /// Beside the conversation.
    Kept(EntryLocation),
    /// Here, for a call without a conversation.
    Here(Box<Settings>),
}

/// The settings of a call: everything but the conversation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The request without messages, which the attempt adds.
    pub request: ModelRequest,
    /// A question after the conversation that is not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The last entry to send. The conversation is still read from its leaf, because the last summary comes after the entries it
    /// covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Hash>,
    /// Maximum characters of a text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncate_at: Option<usize>,
}

impl AgentCtx {
    /// Calls a model with the conversation up to here. Awaiting it returns the answer, which becomes an entry only when it is
    /// appended.
    ///
    /// `model` is a name registered on a worker's builder ([`crate::Builder::model`]). While no worker serves it, the call waits.
    pub fn llm(&self, model: &str) -> ModelCall {
        let settings = Settings { request: ModelRequest::new(model, Vec::new()), ..Settings::default() };
        ModelCall { ctx: self.clone(), at: None, memo: None, settings }
    }
}

/// A configured model call. It starts when it is awaited or [started](ModelCall::start).
#[must_use = "await it, or start it"]
pub struct ModelCall {
    ctx: AgentCtx,
    at: Option<EntryId>,
    memo: Option<Memo>,
    settings: Settings,
}

impl ModelCall {
    /// Sets the system prompt; system entries of the conversation follow it.
    pub fn system(mut self, system: impl Into<String>) -> ModelCall {
        self.settings.request.system = Some(system.into());
        self
    }

    /// Adds tools that the model may call.
    pub fn tools(mut self, tools: &Tools) -> ModelCall {
        self.settings.request.tools.extend(tools.schemas());
        self
    }

    /// Adds tools by their schemas, for tools that are not in a [`Tools`].
    pub fn schemas(mut self, schemas: impl IntoIterator<Item = ToolSchema>) -> ModelCall {
        self.settings.request.tools.extend(schemas);
        self
    }

    pub fn tool_choice(mut self, choice: ToolChoice) -> ModelCall {
        self.settings.request.tool_choice = Some(choice);
        self
    }

    pub fn max_tokens(mut self, max: u32) -> ModelCall {
        self.settings.request.max_tokens = Some(max);
        self
    }

    /// Sets the temperature in thousandths: 700 is 0.7.
    pub fn temperature_milli(mut self, milli: u32) -> ModelCall {
        self.settings.request.temperature_milli = Some(milli);
        self
    }

    /// Sets a field of the provider's native request.
    pub fn extra(mut self, name: impl Into<String>, value: JsonText) -> ModelCall {
        self.settings.request.extras.insert(name.into(), value);
        self
    }

    /// Sends the conversation only up to this entry.
    pub fn at(mut self, entry: EntryId) -> ModelCall {
        self.at = Some(entry);
        self
    }

    /// Adds a question after the conversation that is not part of it.
    pub fn ask(mut self, question: impl Into<String>) -> ModelCall {
        self.settings.ask = Some(question.into());
        self
    }

    /// Sends the conversation up to this entry, with the last summary in place of the entries that it covers.
    pub(super) fn until(mut self, entry: EntryId) -> ModelCall {
        self.settings.until = Some(entry.0);
        self
    }

    /// Truncates long texts of the conversation to this many characters, by removing their middle: messages, tool results,
    /// attached texts and arguments of tool calls, but nothing that a provider has signed.
    pub fn truncate_at(mut self, chars: usize) -> ModelCall {
        self.settings.truncate_at = Some(chars);
        self
    }

    /// Uses the answer of an equal call of another run, recorded within this time: same model, settings and conversation. See
    /// [`Memo`].
    pub fn memo(mut self, memo: impl Into<Memo>) -> ModelCall {
        self.memo = Some(memo.into());
        self
    }

    /// Starts the call. Several calls run in parallel.
    pub fn start(self) -> TaskCall<ModelReply> {
        let ModelCall { ctx, at, memo, settings } = self;
        let kind = model_kind(&settings.request.model);
        let settings = payload_or_misuse(&ctx.cell, "llm", &settings);
        let content = Hash::of(&settings);
        let role: Name = name_or_misuse(&ctx.cell, "llm", SETTINGS);
        let settings = ctx.cell.call("llm").engine.keep_aside(role, settings);
        let prompt = Prompt { leaf: at.or(ctx.leaf()).map(|entry| entry.0), settings: SettingsSource::Kept(settings) };
        let call = ctx.task::<ModelReply>(kind.as_str(), &prompt).pure().retry(RETRY);
        // The location of the settings differs between runs.
        let hash = Hash::of_parts(&[b"model", &prompt.leaf.unwrap_or_default().0, &content.0]);
        memo.into_iter().fold(call, |call, memo| call.memo_of(memo, derived_key(&kind, hash)))
    }

    /// Starts the call without the conversation. Its worker then reads no log, so calls of a long run stay as fast as its first.
    #[cfg(feature = "flows")]
    pub(crate) fn start_alone(self) -> TaskCall<ModelReply> {
        let ModelCall { ctx, at: _, memo, settings } = self;
        let kind = model_kind(&settings.request.model);
        let prompt = Prompt { leaf: None, settings: SettingsSource::Here(Box::new(settings)) };
        let call = ctx.task::<ModelReply>(kind.as_str(), &prompt).pure().retry(RETRY);
        memo.into_iter().fold(call, |call, memo| call.memo(memo))
    }
}

impl IntoFuture for ModelCall {
    type Output = crate::Result<ModelReply>;
    type IntoFuture = TaskCall<ModelReply>;

    fn into_future(self) -> Self::IntoFuture {
        self.start()
    }
}
