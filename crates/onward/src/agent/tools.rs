//! The tools that an agent has, and how a model's call of one is carried out.
//!
//! Invariants:
//! - TO1: whatever a model asks for has an outcome that the model is told: a tool that is unknown, fails, times out, or is refused by a
//!   person is an outcome too. Only the end of the run itself is a failure.
//! - TO2: a person who agrees to a call has seen the exact bytes of its arguments, and agrees to this one call of a tool as it was described
//!   then. Arguments of which readers could make different things are refused before anybody is asked.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::task::EffectClass;
use onward_core::{Failure, Hash, Payload};
use onward_llm::{Block, ToolCall, ToolResult, ToolSchema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::AgentCtx;
use super::ready::{AgentOutcome, Stop};
use super::tool::{Asked, Brief, Child, Output, TIMEOUT, Tool, ToolMistake, Work, arguments_of};
use crate::Result;
use crate::registry::TaskHandler;

/// The kind of the tasks that do a tool's work.
fn tool_kind(scope: Option<&str>, name: &str) -> String {
    match scope {
        Some(scope) => format!("tool.{scope}.{name}"),
        None => format!("tool.{name}"),
    }
}

/// How many runs may be above one that a tool starts, where nobody has said otherwise.
const DEPTH_MAX: u32 = 8;

/// A set of tools. Cheap to clone.
#[derive(Clone)]
pub struct Tools {
    tools: Arc<BTreeMap<String, Tool>>,
    depth_max: u32,
    /// The first that was made; told when they are registered.
    mistake: Option<ToolMistake>,
    /// Whose tools they are, where several agents may have tools of the same name.
    scope: Option<Arc<str>>,
}

/// What came of a call: the content of a `tool` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// One result, which names its call.
    pub blocks: Vec<Block>,
}

/// The future of [`AgentCtx::tool`].
pub type ToolFuture = Pin<Box<dyn Future<Output = Result<ToolOutcome>> + Send>>;

impl Default for Tools {
    fn default() -> Tools {
        Tools { tools: Arc::default(), depth_max: DEPTH_MAX, mistake: None, scope: None }
    }
}

impl ToolOutcome {
    fn new(call_id: String, output: Output) -> ToolOutcome {
        let Output { blocks, is_error } = output;
        ToolOutcome { blocks: vec![Block::ToolResult(ToolResult { call_id, blocks, is_error })] }
    }

    pub fn is_error(&self) -> bool {
        self.blocks.iter().any(|block| matches!(block, Block::ToolResult(result) if result.is_error))
    }

    /// The text of the result.
    pub fn text(&self) -> String {
        let results = self.blocks.iter().filter_map(|block| match block {
            Block::ToolResult(result) => Some(super::prompt::text_of(&result.blocks)),
            _ => None,
        });
        results.collect::<Vec<_>>().join("\n")
    }
}

impl Tools {
    pub fn new() -> Tools {
        Tools::default()
    }

    /// Adds a tool. A name or arguments that no provider would take, a name that is there already, and options that mean nothing for this
    /// tool are refused when the tools are registered.
    pub fn with(mut self, tool: Tool) -> Tools {
        let (name, mistake) = (tool.name().to_owned(), tool.mistake());
        let replaced = Arc::make_mut(&mut self.tools).insert(name.clone(), tool);
        let mistake = mistake.or(replaced.map(|_| ToolMistake::Twice { name }));
        self.mistake = self.mistake.or(mistake);
        self
    }

    /// Takes over the mistake that was made with others.
    pub(super) fn with_mistake_of(self, others: &Tools) -> Tools {
        Tools { mistake: self.mistake.or_else(|| others.mistake.clone()), ..self }
    }

    pub(crate) fn mistake(&self) -> Option<&ToolMistake> {
        self.mistake.as_ref()
    }

    /// How deep agents and workflows that are tools may start each other; eight levels otherwise. A call beyond that starts nothing, and the
    /// model is told `nested_too_deep`: an agent that is its own tool ends.
    pub fn max_depth(self, max: u32) -> Tools {
        Tools { depth_max: max, ..self }
    }

    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Tool> {
        self.tools.values()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.tools.keys().map(String::as_str)
    }

    pub(super) fn scoped(mut self, scope: &str) -> Tools {
        self.scope = Some(scope.into());
        self
    }

    /// As models get to know them, always in the same order.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = ToolSchema> {
        self.tools.values().map(|tool| tool.schema.clone())
    }

    /// What a worker needs to do their work.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (String, TaskHandler)> {
        self.tools.iter().filter_map(|(name, tool)| match &tool.work {
            Work::Task(handler) => Some((tool_kind(self.scope.as_deref(), name), tool.guarded(handler))),
            Work::Inline(_) | Work::Child(_) | Work::Handoff(_) => None,
        })
    }

    /// Who is to take the conversation over, if the call asks for that.
    pub(super) fn takes_over(&self, call: &ToolCall) -> Option<&str> {
        match &self.tools.get(&call.name)?.work {
            Work::Handoff(kind) => Some(kind),
            _ => None,
        }
    }

    /// What a call comes to that is not carried out.
    pub(super) fn refuse(call: &ToolCall, failure: &Failure) -> ToolOutcome {
        ToolOutcome::new(call.id.clone(), told(failure))
    }

    /// Does what a model asked for.
    pub fn call(&self, ctx: &AgentCtx, call: &ToolCall) -> ToolFuture {
        let (tool, scope, depth_max) = (self.tools.get(&call.name).cloned(), self.scope.clone(), self.depth_max);
        let known: Vec<&str> = self.names().collect();
        let unknown = format!("there is no tool `{}`; there are: {}", call.name, known.join(", "));
        let (ctx, call) = (ctx.clone(), call.clone());
        Box::pin(async move {
            let output = match tool {
                None => Err(Failure::fatal(unknown).with_code("unknown_tool")),
                Some(tool) => carry_out(&ctx, tool, scope.as_deref(), depth_max, &call).await,
            };
            match output {
                Ok(output) => Ok(ToolOutcome::new(call.id, output)),
                Err(failure) if failure.is_canceled() => Err(failure),
                Err(failure) => Ok(ToolOutcome::new(call.id, told(&failure))), // TO1
            }
        })
    }
}

impl AgentCtx {
    /// Calls one of the tools that the builder was given ([`crate::Builder::tools`]), as the model asked for it. What goes wrong is an
    /// outcome too, for the model to read.
    ///
    /// # Errors
    /// Only when the run is canceled.
    pub fn tool(&self, call: &ToolCall) -> ToolFuture {
        self.dep::<Tools>().call(self, call)
    }
}

async fn carry_out(ctx: &AgentCtx, tool: Tool, scope: Option<&str>, depth_max: u32, call: &ToolCall) -> Result<Output> {
    let arguments = call.json().map_err(|error| {
        let message = format!("the arguments are no JSON: {error}");
        Failure::fatal(message).with_code("tool_arguments_invalid")
    })?;
    if let Some(name) = call.repeated_name() {
        let message = format!("the arguments have the name `{name}` twice in one object: nobody could say which counts");
        return Err(Failure::fatal(message).with_code("tool_arguments_invalid")); // TO2
    }
    if matches!(tool.work, Work::Child(_)) && ctx.nesting() >= depth_max {
        let message =
            format!("{} runs are above this one already, and no tool starts another one below it: do it here", ctx.nesting());
        return Err(Failure::fatal(message).with_code("nested_too_deep"));
    }
    let needs_approval = tool.needs_approval.as_ref().is_some_and(|needs| needs(arguments));
    if needs_approval {
        agreed(ctx, &tool, call, arguments).await?;
    }
    let asked = Asked {
        arguments: arguments.to_owned(),
        result_bytes_max: tool.result_bytes_max,
        is_once: tool.class == Some(EffectClass::AtMostOnce),
        agreed: needs_approval.then(|| tool.definition().to_string()),
    };
    match tool.work {
        Work::Task(_) => {
            let task = ctx.task::<Output>(tool_kind(scope, &call.name).as_str(), &asked);
            let task = task.class(tool.class.unwrap_or(EffectClass::AtLeastOnce)).retry(tool.retry.unwrap_or_default());
            task.timeout(tool.timeout.unwrap_or(TIMEOUT)).await
        }
        Work::Inline(inline) => within(ctx, tool.timeout, inline(ctx.clone(), Payload::json(&asked)?)).await,
        Work::Child(child) => within(ctx, tool.timeout, call_child(ctx, &child, &asked)).await,
        Work::Handoff(kind) => Output::of(&format!("{kind} takes over"), asked.result_bytes_max),
    }
}

/// Gives up what takes too long, if anybody has said how long that is.
async fn within(ctx: &AgentCtx, timeout: Option<Duration>, work: impl Future<Output = Result<Output>>) -> Result<Output> {
    match timeout {
        Some(timeout) => ctx.timeout(work, timeout).await,
        None => work.await,
    }
}

/// Lets a run of its own do the work. How long that takes is the run's business.
async fn call_child(ctx: &AgentCtx, child: &Child, asked: &Asked) -> Result<Output> {
    let kind = child.kind.as_str();
    let result: Box<RawValue> = if child.is_agent {
        let Brief { task } = arguments_of(&asked.arguments)?;
        ctx.child(kind, &task).await?
    } else {
        ctx.child(kind, &asked.arguments).await?
    };
    match serde_json::from_str::<AgentOutcome>(result.get()) {
        Ok(AgentOutcome { stop: Stop::Done, text, .. }) => Output::of(&text, asked.result_bytes_max),
        Ok(AgentOutcome { stop, text, .. }) => Output::of(&format!("{text}\n(stopped: {stop})"), asked.result_bytes_max),
        Err(_) => Output::of(&result, asked.result_bytes_max),
    }
}

/// Asks a person (TO2). The decision is bound to the definition of the tool and to the text of the arguments, neither of which the hash of
/// what is shown covers: that hash is of the values.
async fn agreed(ctx: &AgentCtx, tool: &Tool, call: &ToolCall, arguments: &RawValue) -> Result<()> {
    #[derive(Serialize)]
    struct Shown<'a> {
        tool: &'a str,
        arguments: &'a RawValue,
    }
    let shown = Shown { tool: &call.name, arguments };
    let bound_to = Hash::of_parts(&[&tool.definition().0, arguments.get().as_bytes()]);
    let question = ctx.approval(&format!("tool.{}", call.name), format!("Call the tool `{}`?", call.name));
    let question = question.show(&shown).bound_to(bound_to);
    let question = if tool.not_by_requester { question.not_by_requester() } else { question };
    let decision = question.await?;
    if decision.approved {
        return Ok(());
    }
    let words = decision.feedback.map(|feedback| format!(": {feedback}")).unwrap_or_default();
    Err(Failure::fatal(format!("a person has declined this call{words}")).with_code("tool_declined"))
}

/// A failure in words for the model.
fn told(failure: &Failure) -> Output {
    Output { blocks: vec![Block::text(format!("{} ({})", failure.message, failure.code))], is_error: true }
}
