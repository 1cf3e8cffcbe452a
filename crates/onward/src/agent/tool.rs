//! One tool: its description, its effect class and its implementation.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::task::{EffectClass, RetryPolicy};
use onward_core::{ErrorCode, Failure, Hash, Payload};
use onward_llm::{Block, JsonText, ToolSchema};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::AgentCtx;
use crate::Result;
use crate::TaskCtx;
use crate::registry::{TaskFunction, TaskHandler};

/// The longest name that every provider accepts.
const NAME_BYTES_MAX: usize = 64;

/// Default size limit of a result, which a model reads.
const RESULT_BYTES_MAX: usize = 1024 * 1024;

pub(super) type InlineFuture = Pin<Box<dyn Future<Output = Result<Output>> + Send>>;
pub(super) type Inline = Arc<dyn Fn(AgentCtx, Payload) -> InlineFuture + Send + Sync>;
type NeedsApproval = Arc<dyn Fn(&RawValue) -> bool + Send + Sync>;

/// A tool that a model may call.
#[derive(Clone)]
pub struct Tool {
    pub(super) schema: ToolSchema,
    pub(super) class: Option<EffectClass>,
    pub(super) retry: Option<RetryPolicy>,
    pub(super) timeout: Option<Duration>,
    pub(super) result_bytes_max: usize,
    pub(super) needs_approval: Option<NeedsApproval>,
    pub(super) not_by_requester: bool,
    /// The effect class from the MCP server's hints, used only with [`Tool::trust_hints`].
    #[cfg(feature = "mcp")]
    pub(super) hinted: Option<EffectClass>,
    pub(super) work: Work,
}

#[derive(Clone)]
pub(super) enum Work {
    /// A task, executed by any worker that has it.
    Task(TaskHandler),
    /// Code of the agent itself, which may wait for people for weeks.
    Inline(Inline),
    /// A child run, whose result is the tool's.
    Child(Child),
    /// A handoff of the conversation to another kind of agent.
    Handoff(String),
}

/// The child run that executes a tool.
#[derive(Clone)]
pub(super) struct Child {
    pub kind: String,
    /// The input is the model's task as one text, instead of the arguments.
    pub is_agent: bool,
}

/// The arguments of a model that hands a conversation over.
#[derive(Deserialize, JsonSchema)]
#[expect(dead_code, reason = "it stays in the conversation, where the next agent reads it")]
struct Reason {
    /// Why, in a sentence.
    reason: Option<String>,
}

/// The arguments of a model that calls an agent as a tool.
#[derive(Deserialize, JsonSchema)]
pub(super) struct AgentTask {
    /// What to do, with everything that is needed to do it: nothing else of this conversation is known there.
    pub task: String,
}

/// The output of a tool, as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Output {
    pub blocks: Vec<Block>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Output {
    /// Converts a result: a text stays as it is, anything else becomes JSON.
    pub fn of(value: &impl Serialize, bytes_max: usize) -> Result<Output> {
        let json = Payload::json(value)?;
        let text = json.read::<String>().unwrap_or_else(|_| String::from_utf8_lossy(json.data()).into_owned());
        Output { blocks: vec![Block::text(text)], is_error: false }.bounded(bytes_max)
    }

    pub fn bounded(self, bytes_max: usize) -> Result<Output> {
        let bytes = Payload::json(&self)?.data().len();
        if bytes > bytes_max {
            let message = format!("the result has {bytes} bytes, over the limit of {bytes_max}; request less at a time");
            return Err(Failure::fatal(message).with_code(ErrorCode::ToolResultTooLarge));
        }
        Ok(self)
    }
}

impl Tool {
    /// Creates a tool from a function that any worker may run. It takes the arguments, or a [`crate::TaskCtx`] and the arguments;
    /// the context has attempt number, idempotency key, heartbeat and dependencies. The model receives the JSON schema of the
    /// argument type.
    pub fn new<Arguments, F>(name: &str, description: &str, function: F) -> Tool
    where
        F: TaskFunction<Arguments, Input: JsonSchema>,
    {
        let function = Arc::new(function);
        let handler: TaskHandler = Arc::new(move |ctx, input| {
            let function = function.clone();
            Box::pin(async move {
                let ToolTaskInput { arguments, result_bytes_max, .. } = input.read()?;
                let called = function.call(ctx, arguments_of(&arguments)?).await;
                let value = called.map_err(|error| Failure::from_box(error.into()))?;
                Ok(Payload::json(&Output::of(&value, result_bytes_max)?)?)
            })
        });
        Tool::made(schema::<F::Input>(name, description), Work::Task(handler))
    }

    /// Creates a tool like [`Tool::new`], with the JSON schema of its arguments, for functions whose types are not known here.
    pub fn with_schema<F, Fut>(name: &str, description: &str, schema: JsonText, function: F) -> Tool
    where
        F: Fn(TaskCtx, Box<RawValue>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Box<RawValue>>> + Send + 'static,
    {
        let function = Arc::new(function);
        let handler: TaskHandler = Arc::new(move |ctx, input| {
            let function = function.clone();
            Box::pin(async move {
                let ToolTaskInput { arguments, result_bytes_max, .. } = input.read()?;
                let value = function(ctx, arguments).await?;
                Ok(Payload::json(&Output::of(&value, result_bytes_max)?)?)
            })
        });
        let (name, description) = (name.to_owned(), description.to_owned());
        Tool::made(ToolSchema { name, description, input: schema }, Work::Task(handler))
    }

    /// Creates a tool that is code of the agent. It receives the agent's context, and may request approvals, wait for signals or
    /// start other runs.
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
                let ToolTaskInput { arguments, result_bytes_max, .. } = input.read()?;
                let value = f(ctx, arguments_of(&arguments)?).await?;
                Output::of(&value, result_bytes_max)
            })
        });
        Tool::made(schema::<A>(name, description), Work::Inline(inline))
    }

    /// Creates a tool that calls another agent: a call starts a child run of this kind with the model's task as a text, and the
    /// model receives its result. The child has its own conversation and is canceled with its parent.
    pub fn agent(name: &str, description: &str, kind: &str) -> Tool {
        let child = Child { kind: kind.to_owned(), is_agent: true };
        Tool::made(schema::<AgentTask>(name, description), Work::Child(child))
    }

    /// Creates a tool that starts a child run of this kind, a workflow or an agent, with the arguments as input.
    pub fn workflow<A: JsonSchema>(name: &str, description: &str, kind: &str) -> Tool {
        let child = Child { kind: kind.to_owned(), is_agent: false };
        Tool::made(schema::<A>(name, description), Work::Child(child))
    }

    /// Creates a tool that hands the conversation over to another kind of agent.
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

    /// Declares the tool as `pure`: it has no side effects and may run twice.
    pub fn pure(self) -> Tool {
        Tool { class: Some(EffectClass::Pure), ..self }
    }

    /// Declares the tool as `keyed`: its receiver discards repeats by [`crate::TaskCtx::idempotency_key`].
    pub fn keyed(self) -> Tool {
        Tool { class: Some(EffectClass::Keyed), ..self }
    }

    /// Declares the tool as `at_most_once`: after an attempt with an unknown outcome it does not run again, and the model
    /// receives `outcome_unknown`.
    pub fn at_most_once(self) -> Tool {
        Tool { class: Some(EffectClass::AtMostOnce), ..self }
    }

    /// Sets the effect class as a value; see [`Tool::pure`] and the others.
    pub fn class(self, class: EffectClass) -> Tool {
        Tool { class: Some(class), ..self }
    }

    /// Trusts the hints of the MCP server: a read-only tool becomes `pure`, an idempotent one `keyed`. Without a hint, the class
    /// stays. Only for servers that you trust like your own code: a wrong hint lets an effect happen twice or be abandoned.
    #[cfg(feature = "mcp")]
    pub fn trust_hints(self) -> Tool {
        Tool { class: self.hinted.or(self.class), ..self }
    }

    /// Sets the retry policy; default one attempt. Only for tools that run as tasks.
    pub fn retry(self, policy: impl Into<RetryPolicy>) -> Tool {
        Tool { retry: Some(policy.into()), ..self }
    }

    /// Sets the timeout of one attempt; default ten minutes. Inline tools and child runs have no default timeout; on timeout a
    /// child run is canceled.
    pub fn timeout(self, timeout: Duration) -> Tool {
        Tool { timeout: Some(timeout), ..self }
    }

    /// Limits the size of a result; default 1 MiB. For a larger one the model receives a failure.
    pub fn result_bytes_max(self, bytes_max: usize) -> Tool {
        Tool { result_bytes_max: bytes_max, ..self }
    }

    /// Requires a person's approval for every call. The person sees the exact arguments.
    pub fn needs_approval(self) -> Tool {
        self.needs_approval_if(|_| true)
    }

    /// Requires a person's approval for calls that `dangerous` selects. It must depend on the arguments alone.
    pub fn needs_approval_if(self, dangerous: impl Fn(&RawValue) -> bool + Send + Sync + 'static) -> Tool {
        Tool { needs_approval: Some(Arc::new(dangerous)), ..self }
    }

    /// Excludes the identity that started the agent from deciding approvals of this tool, as with `Approval::not_by_requester`.
    pub fn not_by_requester(self) -> Tool {
        Tool { not_by_requester: true, ..self }
    }
}

impl Tool {
    /// Returns the hash of the tool's name, description and schema.
    pub(super) fn definition(&self) -> Hash {
        let ToolSchema { name, description, input } = &self.schema;
        Hash::of_parts(&[name.as_bytes(), description.as_bytes(), input.as_str().as_bytes()])
    }

    /// Returns the handler of the tool's tasks. It rejects calls that were approved for another definition of the tool.
    pub(super) fn guarded(&self, handler: &TaskHandler) -> TaskHandler {
        let (definition, handler) = (self.definition().to_string(), handler.clone());
        let name = self.schema.name.clone();
        Arc::new(move |ctx, input| match input.read::<ToolTaskInput>() {
            Ok(ToolTaskInput { agreed: Some(agreed), .. }) if agreed != definition => {
                let failure = changed(&format!("the tool `{name}` has another definition here than the one that was approved"));
                Box::pin(async { Err(failure) })
            }
            _ => handler(ctx, input),
        })
    }
}

/// Returns the failure of a call whose tool has changed.
pub(super) fn changed(message: &str) -> Failure {
    Failure::fatal(message).with_code("tool_changed")
}

/// An invalid tool or set of tools.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolMistake {
    #[error("`{name}` is not a valid tool name")]
    Name { name: String },
    #[error("two tools have the name `{name}`")]
    Twice { name: String },
    #[error("the arguments of the tool `{name}` are not an object")]
    Arguments { name: String },
    #[error("`.{option}(..)` does not apply to the tool `{name}`: {what}")]
    Option { name: String, option: &'static str, what: &'static str },
}

impl ToolMistake {
    /// Returns a hint for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            ToolMistake::Name { .. } => "use 1 to 64 ASCII letters, digits, `_` or `-`; providers accept nothing else",
            ToolMistake::Twice { .. } => "rename one of them; handoffs are named `handoff_to_<kind>`",
            ToolMistake::Arguments { .. } => "use a struct with fields, because models pass arguments by name",
            ToolMistake::Option { .. } => "remove the option, or create the tool with `Tool::new`",
        }
    }
}

impl Tool {
    /// Returns a mistake that providers would reject, or an option that would be ignored.
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
            Work::Inline(_) => ("it is code of the agent, which runs once", true),
            Work::Child(_) => ("it is a child run, which has its own retries", true),
            Work::Handoff(_) => ("it is a handoff", false),
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

/// The input of a tool's task; the task kind has the tool's name.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ToolTaskInput {
    /// The exact text that the model wrote, if it is JSON.
    pub arguments: Box<RawValue>,
    pub result_bytes_max: usize,
    /// No retry after an attempt that may have had its effect.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_once: bool,
    /// The tool definition that a person approved; a worker with another definition rejects the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<String>,
}

pub(super) fn arguments_of<A: DeserializeOwned>(arguments: &RawValue) -> Result<A> {
    serde_json::from_str(arguments.get())
        .map_err(|error| Failure::fatal(format!("invalid arguments: {error}")).with_code("tool_arguments_invalid"))
}

fn schema<A: JsonSchema>(name: &str, description: &str) -> ToolSchema {
    let settings = schemars::generate::SchemaSettings::draft2020_12().for_deserialize();
    let mut input = settings.into_generator().into_root_schema_for::<A>();
    // Models do not need them, and some providers reject unknown fields.
    input.remove("$schema");
    input.remove("title");
    // A type that accepts anything still gets an object, because models pass arguments by name.
    if ["type", "$ref", "oneOf", "anyOf", "allOf"].iter().all(|word| input.get(*word).is_none()) {
        input.insert("type".to_owned(), "object".into());
    }
    let input = JsonText::of(&input).expect("a schema is JSON");
    ToolSchema { name: name.to_owned(), description: description.to_owned(), input }
}
