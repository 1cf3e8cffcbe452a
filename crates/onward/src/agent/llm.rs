//! Calls of models: tasks whose input names the conversation instead of repeating it.
//!
//! Owns what is recorded of a call: the hash of the conversation's last entry, and the id under which everything else about the call is
//! kept beside the conversation once. Whoever works on the task puts the prompt together ([`super::answer`]).

use std::future::IntoFuture;

use onward_core::event::Kept;
use onward_core::task::{MODEL_CALL, RetryPolicy};
use onward_core::{Hash, Name};
use onward_llm::{JsonText, ModelReply, ModelRequest, ToolChoice};
use serde::{Deserialize, Serialize};

use super::tools::Tools;
use super::{AgentCtx, EntryId};
use crate::ctx::{TaskCall, name_or_misuse, payload_or_misuse};

/// The role under which settings are kept beside the conversation.
const SETTINGS: &str = "settings";

/// How many characters of what was said at once are told where all of it would be too long.
pub(super) const PART: usize = 4_000;

/// Which failure is worth another attempt, and from when, the worker says, cause by cause; so there is no number of attempts in all. The
/// engine's own pauses are the shortest.
const RETRY: RetryPolicy = RetryPolicy { growth_percent: 100, ..RetryPolicy::forever() };

/// The kind of the tasks that call this model.
pub(crate) fn model_kind(model: &str) -> String {
    format!("{MODEL_CALL}{model}")
}

/// The input of such a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Prompt {
    /// The last entry of the conversation; `None` while there is none.
    pub leaf: Option<Hash>,
    pub settings: Kept,
}

/// Everything about a call but the conversation.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// Without messages; whoever makes the attempt puts them in.
    pub request: ModelRequest,
    /// Said to the model behind the conversation, and no part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask: Option<String>,
    /// The last entry that is told of the conversation, which is read from its leaf: the last summary stands behind what it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Hash>,
    /// How much the model is told at most of what was said at once, in characters; of what was said before the model last spoke, and of
    /// what it said then and others since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut_last_at: Option<usize>,
}

impl AgentCtx {
    /// Asks a model to go on with the conversation as of here. Awaited it is the answer, which is no entry before it is appended.
    ///
    /// `model` is a name that the worker's builder knows ([`crate::Builder::model`]); while no worker does, the call waits.
    pub fn llm(&self, model: &str) -> ModelCall {
        let settings = Settings { request: ModelRequest::new(model, Vec::new()), ..Settings::default() };
        ModelCall { ctx: self.clone(), at: None, settings }
    }
}

/// A call of a model that is being put together; it begins when it is awaited or [started](ModelCall::start).
#[must_use = "await it, or start it"]
pub struct ModelCall {
    ctx: AgentCtx,
    at: Option<EntryId>,
    settings: Settings,
}

impl ModelCall {
    /// What the model is told before the conversation; system entries of the conversation come after it.
    pub fn system(mut self, system: impl Into<String>) -> ModelCall {
        self.settings.request.system = Some(system.into());
        self
    }

    /// The tools that the model may ask for.
    pub fn tools(mut self, tools: &Tools) -> ModelCall {
        self.settings.request.tools.extend(tools.schemas());
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

    /// In thousandths: 700 is 0.7.
    pub fn temperature_milli(mut self, milli: u32) -> ModelCall {
        self.settings.request.temperature_milli = Some(milli);
        self
    }

    /// A field of the provider's own request.
    pub fn extra(mut self, name: impl Into<String>, value: JsonText) -> ModelCall {
        self.settings.request.extras.insert(name.into(), value);
        self
    }

    /// Tells the model the conversation up to this entry, and nothing behind it.
    pub fn at(mut self, entry: EntryId) -> ModelCall {
        self.at = Some(entry);
        self
    }

    /// Says something to the model behind the conversation that is no part of it.
    pub fn ask(mut self, question: impl Into<String>) -> ModelCall {
        self.settings.ask = Some(question.into());
        self
    }

    /// As [`ModelCall::at`], with the last summary in the place of what it covers.
    pub(super) fn until(mut self, entry: EntryId) -> ModelCall {
        self.settings.until = Some(entry.0);
        self
    }

    /// Tells the model at most so many characters of what was said at once before the model last spoke: how it begins and ends, and how much
    /// there is between. Texts that are attached are told so, too, and arguments of calls; what a provider has signed is not touched.
    pub fn cut_at(mut self, chars: usize) -> ModelCall {
        self.settings.cut_at = Some(chars);
        self
    }

    /// The same for what the model said last, and others since.
    pub fn cut_last_at(mut self, chars: usize) -> ModelCall {
        self.settings.cut_last_at = Some(chars);
        self
    }

    /// Begins the call; several run at the same time.
    pub fn start(self) -> TaskCall<ModelReply> {
        let ModelCall { ctx, at, settings } = self;
        let kind = model_kind(&settings.request.model);
        let settings = payload_or_misuse(&ctx.cell, "llm", &settings);
        let role: Name = name_or_misuse(&ctx.cell, "llm", SETTINGS);
        let settings = ctx.cell.call("llm").engine.keep_aside(role, settings);
        let prompt = Prompt { leaf: at.or(ctx.leaf()).map(|entry| entry.0), settings };
        ctx.task::<ModelReply>(kind.as_str(), &prompt).pure().retry(RETRY)
    }
}

impl IntoFuture for ModelCall {
    type Output = crate::Result<ModelReply>;
    type IntoFuture = TaskCall<ModelReply>;

    fn into_future(self) -> Self::IntoFuture {
        self.start()
    }
}
