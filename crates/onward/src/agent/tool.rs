//! One tool: what a model is told about it, what doing it twice would do, and who does it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::task::{EffectClass, RetryPolicy};
use onward_core::{BoxError, Failure, Hash, Payload};
use onward_llm::{Block, JsonText, ToolSchema};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::AgentCtx;
use crate::Result;
use crate::registry::TaskHandler;
use crate::task::TaskCtx;

/// How long an attempt may take that nobody has said anything about.
pub(super) const TIMEOUT: Duration = Duration::from_secs(600);

/// The longest name that every provider takes.
const NAME_BYTES_MAX: usize = 64;

/// How large a result may be that nobody has said anything about: a model reads it.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

pub(super) type InlineFuture = Pin<Box<dyn Future<Output = Result<Output>> + Send>>;
pub(super) type Inline = Arc<dyn Fn(AgentCtx, Payload) -> InlineFuture + Send + Sync>;
type NeedsApproval = Arc<dyn Fn(&RawValue) -> bool + Send + Sync>;

/// What a model may ask for.
#[derive(Clone)]
pub struct Tool {
    pub(super) schema: ToolSchema,
    pub(super) class: Option<EffectClass>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) timeout: Option<Duration>,
    pub(super) result_bytes_max: usize,
    pub(super) needs_approval: Option<NeedsApproval>,
    pub(super) not_by_requester: bool,
    /// The class that a server's own words come to, which nobody has to believe.
    #[cfg(feature = "mcp")]
    pub(super) hinted: Option<EffectClass>,
    pub(super) work: Work,
}

#[derive(Clone)]
pub(super) enum Work {
    /// A task, done by any worker that has it.
    Task(TaskHandler),
    /// Code of the agent itself, which may wait for people, for weeks.
    Inline(Inline),
    /// A run of its own, whose result is the tool's.
    Child(Child),
    /// Another kind of agent takes the conversation over.
    Handoff(String),
}

/// The run that does a tool's work.
#[derive(Clone)]
pub(super) struct Child {
    pub kind: String,
    /// It is given what the model wants done, as one text, and not the arguments.
    pub is_agent: bool,
}

/// What a model says when it hands a conversation over.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it stays in the conversation, where whoever takes over reads it")]
struct Reason {
    /// Why, in a sentence.
    reason: Option<String>,
}

/// What a model tells an agent that it calls as a tool.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Brief {
    /// What to do, with everything that is needed to do it: nothing else of this conversation is known there.
    pub task: String,
}

/// What a tool brings, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Output {
    pub blocks: Vec<Block>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Output {
    /// A text is told as it is, and everything else as JSON.
    pub fn of(value: &impl Serialize, bytes_max: usize) -> Result<Output> {
        let json = Payload::json(value)?;
        let text = json.read::<String>().unwrap_or_else(|_| String::from_utf8_lossy(json.data()).into_owned());
        Output { blocks: vec![Block::text(text)], is_error: false }.bounded(bytes_max)
    }

    pub fn bounded(self, bytes_max: usize) -> Result<Output> {
        let bytes = Payload::json(&self)?.data().len();
        if bytes > bytes_max {
            let message = format!("the result has {bytes} bytes, and {bytes_max} are allowed: ask for less at a time");
            return Err(Failure::fatal(message).with_code("tool_result_too_large"));
        }
        Ok(self)
    }
}

impl Tool {
    /// A function that any worker may run; its arguments are described to the model by their type.
    pub fn new<A, O, E, F, Fut>(name: &str, description: &str, f: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + 'static,
        E: Into<BoxError> + 'static,
        F: Fn(A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        Tool::with(name, description, move |_, arguments| f(arguments))
    }

    /// Like [`Tool::new`], and the function also gets the attempt: its number, key, heartbeat and dependencies.
    pub fn with<A, O, E, F, Fut>(name: &str, description: &str, f: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + 'static,
        E: Into<BoxError> + 'static,
        F: Fn(TaskCtx, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
    {
        let f = Arc::new(f);
        let handler: TaskHandler = Arc::new(move |ctx, input| {
            let f = f.clone();
            Box::pin(async move {
                let Asked { arguments, result_bytes_max, .. } = input.read()?;
                let value = f(ctx, arguments_of(&arguments)?).await.map_err(|error| Failure::from_box(error.into()))?;
                Ok(Payload::json(&Output::of(&value, result_bytes_max)?)?)
            })
        });
        Tool::made(schema::<A>(name, description), Work::Task(handler))
    }

    /// A tool that is code of the agent: it gets the agent's context, and may ask people, wait for signals, or start other runs.
    pub fn inline<A, O, F, Fut>(name: &str, description: &str, f: F) -> Tool
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + 'static,
        F: Fn(AgentCtx, A) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
    {
        let f = Arc::new(f);
        let inline: Inline = Arc::new(move |ctx, input| {
            let f = f.clone();
            Box::pin(async move {
                let Asked { arguments, result_bytes_max, .. } = input.read()?;
                let value = f(ctx, arguments_of(&arguments)?).await?;
                Output::of(&value, result_bytes_max)
            })
        });
        Tool::made(schema::<A>(name, description), Work::Inline(inline))
    }

    /// Another agent: a call starts a run of this kind with what the model wants done, and what that ends with is told to the model.
    /// The run is a child, with a conversation of its own; it ends with this one.
    pub fn agent(name: &str, description: &str, kind: &str) -> Tool {
        let child = Child { kind: kind.to_owned(), is_agent: true };
        Tool::made(schema::<Brief>(name, description), Work::Child(child))
    }

    /// A workflow, or an agent with an input of its own: a call starts a run of this kind with the arguments.
    pub fn workflow<A: JsonSchema>(name: &str, description: &str, kind: &str) -> Tool {
        let child = Child { kind: kind.to_owned(), is_agent: false };
        Tool::made(schema::<A>(name, description), Work::Child(child))
    }

    /// Another kind of agent takes the conversation over; the one that calls this says nothing more.
    pub(super) fn handoff(kind: &str) -> Tool {
        let plain = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
        let name: String = "handoff_to_".chars().chain(kind.chars().map(plain)).collect();
        let description = format!("Hands this conversation over to `{kind}`, who answers from here on");
        Tool::made(schema::<Reason>(&name, &description), Work::Handoff(kind.to_owned()))
    }

    pub(super) fn made(schema: ToolSchema, work: Work) -> Tool {
        Tool {
            schema,
            class: None,
            retry: None,
            timeout: None,
            result_bytes_max: RESULT_BYTES_MAX,
            needs_approval: None,
            not_by_requester: false,
            #[cfg(feature = "mcp")]
            hinted: None,
            work,
        }
    }

    pub fn name(&self) -> &str {
        &self.schema.name
    }

    /// Doing it twice does nothing: it only looks or computes.
    pub fn pure(self) -> Tool {
        Tool { class: Some(EffectClass::Pure), ..self }
    }

    /// Doing it twice does nothing, because whoever does it knows [`TaskCtx::idempotency_key`].
    pub fn keyed(self) -> Tool {
        Tool { class: Some(EffectClass::Keyed), ..self }
    }

    /// An attempt whose outcome nobody knows is not followed by another: the model is told that the outcome is unknown.
    pub fn at_most_once(self) -> Tool {
        Tool { class: Some(EffectClass::AtMostOnce), ..self }
    }

    /// What doing it twice would do, where that is known as a value: see [`Tool::pure`] and its neighbors.
    pub fn class(self, class: EffectClass) -> Tool {
        Tool { class: Some(class), ..self }
    }

    /// Believes the server that offers it: what it calls read-only is pure, and what it calls idempotent is keyed. What it says nothing of
    /// keeps its class. Only for servers that you trust as you trust your own code: a lie lets an effect happen twice, or be left behind.
    #[cfg(feature = "mcp")]
    pub fn trust_hints(self) -> Tool {
        Tool { class: self.hinted.or(self.class), ..self }
    }

    /// How often and when to try again; once otherwise. Only for functions that any worker runs.
    pub fn retry(self, policy: impl Into<RetryPolicy>) -> Tool {
        Tool { retry: Some(policy.into()), ..self }
    }

    /// How long one attempt may take; ten minutes otherwise. A tool that is code of the agent, or a run of its own, takes as long as it takes
    /// unless this is said; the run is canceled then.
    pub fn timeout(self, timeout: Duration) -> Tool {
        Tool { timeout: Some(timeout), ..self }
    }

    /// How large a result may be; 1 MiB otherwise. A larger one is told to the model as a failure.
    pub fn result_bytes_max(self, bytes_max: usize) -> Tool {
        Tool { result_bytes_max: bytes_max, ..self }
    }

    /// A person has to agree to every call, and is shown its exact arguments.
    pub fn needs_approval(self) -> Tool {
        self.needs_approval_if(|_| true)
    }

    /// A person has to agree to the calls for which `dangerous` says so. It must decide by the arguments alone.
    pub fn needs_approval_if(self, dangerous: impl Fn(&RawValue) -> bool + Send + Sync + 'static) -> Tool {
        Tool { needs_approval: Some(Arc::new(dangerous)), ..self }
    }

    /// Whoever has started the agent may not decide about calls that need an approval, as with `Approval::not_by_requester`.
    pub fn not_by_requester(self) -> Tool {
        Tool { not_by_requester: true, ..self }
    }
}

impl Tool {
    /// Returns the hash of what models and people know about the tool.
    pub(super) fn definition(&self) -> Hash {
        let ToolSchema { name, description, input } = &self.schema;
        Hash::of_parts(&[name.as_bytes(), description.as_bytes(), input.as_str().as_bytes()])
    }

    /// Returns the handler of the tool's tasks. It refuses calls that a person agreed to for another definition of the tool.
    pub(super) fn guarded(&self, handler: &TaskHandler) -> TaskHandler {
        let (definition, handler) = (self.definition().to_string(), handler.clone());
        let name = self.schema.name.clone();
        Arc::new(move |ctx, input| match input.read::<Asked>() {
            Ok(Asked { agreed: Some(agreed), .. }) if agreed != definition => {
                let failure = changed(&format!("the tool `{name}` is defined otherwise here than where the call was approved"));
                Box::pin(async { Err(failure) })
            }
            _ => handler(ctx, input),
        })
    }
}

/// Returns the failure of a call whose tool is not the one that was meant.
pub(super) fn changed(message: &str) -> Failure {
    Failure::fatal(message).with_code("tool_changed")
}

/// A mistake in a tool, or in how tools are put together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolMistake {
    #[error("`{name}` is no name of a tool")]
    Name { name: String },
    #[error("there are two tools `{name}`")]
    Twice { name: String },
    #[error("the arguments of the tool `{name}` are no object")]
    Arguments { name: String },
    #[error("`.{option}(..)` means nothing for the tool `{name}`: {what}")]
    Option { name: String, option: &'static str, what: &'static str },
}

impl ToolMistake {
    /// What to do instead.
    pub fn hint(&self) -> &'static str {
        match self {
            ToolMistake::Name { .. } => "1 to 64 letters of ASCII, digits, `_` and `-`: no provider takes more",
            ToolMistake::Twice { .. } => "give one of them another name; handoffs are called `handoff_to_<kind>`",
            ToolMistake::Arguments { .. } => "a model gives arguments by name: take a struct with fields",
            ToolMistake::Option { .. } => "leave it out, or make it a function that any worker runs: `Tool::new` or `Tool::with`",
        }
    }
}

impl Tool {
    /// What no provider would take, and what would be passed over without a word.
    pub(super) fn mistake(&self) -> Option<ToolMistake> {
        let name = self.schema.name.clone();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            return Some(ToolMistake::Name { name });
        }
        #[derive(Deserialize)]
        struct Root {
            r#type: String,
        }
        if !serde_json::from_str::<Root>(self.schema.input.as_str()).is_ok_and(|root| root.r#type == "object") {
            return Some(ToolMistake::Arguments { name });
        }
        let (what, takes_timeout) = match &self.work {
            Work::Task(_) => return None,
            Work::Inline(_) => ("it is code of the agent, which is done once", true),
            Work::Child(_) => ("it is a run of its own, which begins once and has its own retries", true),
            Work::Handoff(_) => ("it does nothing but hand over", false),
        };
        let option = match () {
            () if self.class.is_some() => Some("pure`, `.keyed` or `.at_most_once"),
            () if self.retry.is_some() => Some("retry"),
            () if self.timeout.is_some() && !takes_timeout => Some("timeout"),
            () => None,
        };
        option.map(|option| ToolMistake::Option { name, option, what })
    }
}

/// What a tool is asked for; the name is that of its task.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Asked {
    /// The exact text that the model wrote, if it is JSON.
    pub arguments: Box<RawValue>,
    pub result_bytes_max: usize,
    /// Nobody may try again after an attempt that may have had its effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_once: bool,
    /// The definition of the tool that a person agreed to; a worker that has another one does not carry the call out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<String>,
}

pub(super) fn arguments_of<A: DeserializeOwned>(arguments: &RawValue) -> Result<A> {
    serde_json::from_str(arguments.get())
        .map_err(|error| Failure::fatal(format!("the arguments do not fit: {error}")).with_code("tool_arguments_invalid"))
}

fn schema<A: JsonSchema>(name: &str, description: &str) -> ToolSchema {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_deserialize();
    let mut input = settings.into_generator().into_root_schema_for::<A>();
    // A model needs neither, and some providers refuse what they do not know.
    input.remove("$schema");
    input.remove("title");
    // Whoever takes anything is given an object nevertheless: a model gives arguments by name.
    if ["type", "$ref", "oneOf", "anyOf", "allOf"].iter().all(|word| input.get(*word).is_none()) {
        input.insert("type".to_owned(), "object".into());
    }
    let input = JsonText::of(&input).expect("a schema is JSON");
    ToolSchema { name: name.to_owned(), description: description.to_owned(), input }
}
