//! The tools of an agent, and the execution of a model's tool calls.
//!
//! Invariants:
//! - TO1: every tool call of a model has an outcome that the model receives, also if the tool is unknown, fails, times out or is
//!   declined by a person. Only the end of the run is a failure.
//! - TO2: a person who approves a call has seen the exact bytes of its arguments, and approves this one call of the tool as it
//!   was described then. Ambiguous arguments are rejected before an approval is requested.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::task::EffectClass;
use onward_core::{Failure, Hash, Payload};
use onward_llm::{Block, ToolCall, ToolResult, ToolSchema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::AgentCtx;
use super::agent_loop::{AgentOutcome, Stop};
use super::tool::{AgentTask, Child, Output, Tool, ToolMistake, ToolTaskInput, Work, arguments_of};
use crate::Result;
use crate::ctx::TaskCall;
use crate::registry::TaskHandler;

/// Returns the task kind of a tool.
fn tool_kind(scope: Option<&str>, name: &str) -> String {
    match scope {
        Some(scope) => format!("tool.{scope}.{name}"),
        None => format!("tool.{name}"),
    }
}

/// Default limit of runs above one that a tool starts.
const DEPTH_MAX: u32 = 8;

/// A set of tools. Cheap to clone.
#[derive(Clone)]
pub struct Tools {
    tools: Arc<BTreeMap<String, Tool>>,
    depth_max: u32,
    /// The first mistake, reported when the tools are registered.
    mistake: Option<ToolMistake>,
    /// The agent that has the tools; several agents may have tools of the same name.
    scope: Option<Arc<str>>,
}

/// The outcome of a call: the content of a `tool` entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutcome {
    /// One result, with the id of its call.
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

    /// Returns the text of the result.
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

    /// Adds a tool. `Builder::start` fails for a name or arguments that providers reject, for a duplicate name, and for options
    /// that do not apply to the tool.
    pub fn with(mut self, tool: Tool) -> Tools {
        let (name, mistake) = (tool.name().to_owned(), tool.mistake());
        let replaced = Arc::make_mut(&mut self.tools).insert(name.clone(), tool);
        let mistake = mistake.or(replaced.map(|_| ToolMistake::Twice { name }));
        self.mistake = self.mistake.or(mistake);
        self
    }

    /// Takes over the first mistake of another set.
    pub(super) fn with_mistake_of(self, others: &Tools) -> Tools {
        Tools { mistake: self.mistake.or_else(|| others.mistake.clone()), ..self }
    }

    pub(crate) fn mistake(&self) -> Option<&ToolMistake> {
        self.mistake.as_ref()
    }

    /// Limits how deep agents and workflows may start each other as tools; default eight levels. A call beyond that starts
    /// nothing, and the model receives `nested_too_deep`, so an agent that is its own tool ends.
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

    /// Returns the schemas for models, always in the same order.
    pub(crate) fn schemas(&self) -> impl Iterator<Item = ToolSchema> {
        self.tools.values().map(|tool| tool.schema.clone())
    }

    /// Returns the task handlers for a worker.
    pub(crate) fn handlers(&self) -> impl Iterator<Item = (String, TaskHandler)> {
        self.tools.iter().filter_map(|(name, tool)| match &tool.work {
            Work::Task(handler) => Some((tool_kind(self.scope.as_deref(), name), tool.guarded(handler))),
            Work::Inline(_) | Work::Child(_) | Work::Handoff(_) => None,
        })
    }

    /// Returns the kind of agent that the call hands over to, if it is a handoff.
    pub(super) fn takes_over(&self, call: &ToolCall) -> Option<&str> {
        match &self.tools.get(&call.name)?.work {
            Work::Handoff(kind) => Some(kind),
            _ => None,
        }
    }

    /// Returns the outcome of a call that is refused.
    pub(super) fn refuse(call: &ToolCall, failure: &Failure) -> ToolOutcome {
        ToolOutcome::new(call.id.clone(), failure_output(failure))
    }

    /// Executes a tool call of a model.
    pub fn call(&self, ctx: &AgentCtx, call: &ToolCall) -> ToolFuture {
        let (tool, scope, depth_max) = (self.tools.get(&call.name).cloned(), self.scope.clone(), self.depth_max);
        let known: Vec<&str> = self.names().collect();
        let unknown = format!("unknown tool `{}` (available: {})", call.name, known.join(", "));
        let (ctx, call) = (ctx.clone(), call.clone());
        Box::pin(async move {
            let output = match tool {
                None => Err(Failure::fatal(unknown).with_code("unknown_tool")),
                Some(tool) => carry_out(&ctx, tool, scope.as_deref(), depth_max, &call).await,
            };
            match output {
                Ok(output) => Ok(ToolOutcome::new(call.id, output)),
                Err(failure) if failure.is_canceled() => Err(failure),
                Err(failure) => Ok(ToolOutcome::new(call.id, failure_output(&failure))), // TO1
            }
        })
    }
}

impl AgentCtx {
    /// Executes a model's call of a tool that was given to the builder ([`crate::Builder::tools`]). Failures are outcomes, too,
    /// which the model reads.
    ///
    /// # Errors
    /// Fails only if the run is canceled.
    pub fn tool(&self, call: &ToolCall) -> ToolFuture {
        self.dep::<Tools>().call(self, call)
    }
}

async fn carry_out(ctx: &AgentCtx, tool: Tool, scope: Option<&str>, depth_max: u32, call: &ToolCall) -> Result<Output> {
    let arguments = call.json().map_err(|error| {
        let message = format!("the arguments are not valid JSON: {error}");
        Failure::fatal(message).with_code("tool_arguments_invalid")
    })?;
    if let Some(name) = call.repeated_name() {
        let message = format!("the arguments have the name `{name}` twice in one object");
        return Err(Failure::fatal(message).with_code("tool_arguments_invalid")); // TO2
    }
    if matches!(tool.work, Work::Child(_)) && ctx.nesting() >= depth_max {
        let message = format!(
            "this run is nested {} levels deep, and its tools may not start another run: do the work here",
            ctx.nesting()
        );
        return Err(Failure::fatal(message).with_code("nested_too_deep"));
    }
    let needs_approval = tool.needs_approval.as_ref().is_some_and(|needs| needs(arguments));
    if needs_approval {
        agreed(ctx, &tool, call, arguments).await?;
    }
    let input = ToolTaskInput {
        arguments: arguments.to_owned(),
        result_bytes_max: tool.result_bytes_max,
        is_once: tool.class == Some(EffectClass::AtMostOnce),
        agreed: needs_approval.then(|| tool.definition().to_string()),
    };
    match tool.work {
        Work::Task(_) => {
            let task = ctx.task::<Output>(tool_kind(scope, &call.name).as_str(), &input);
            let task = task.class(tool.class.unwrap_or(EffectClass::AtLeastOnce));
            let task = tool.retry.into_iter().fold(task, TaskCall::retry);
            tool.timeout.into_iter().fold(task, TaskCall::timeout).await
        }
        Work::Inline(inline) => within(ctx, tool.timeout, inline(ctx.clone(), Payload::json(&input)?)).await,
        Work::Child(child) => within(ctx, tool.timeout, call_child(ctx, &child, &input)).await,
        Work::Handoff(kind) => Output::of(&format!("{kind} takes over"), input.result_bytes_max),
    }
}

/// Applies the timeout, if there is one.
async fn within(ctx: &AgentCtx, timeout: Option<Duration>, work: impl Future<Output = Result<Output>>) -> Result<Output> {
    match timeout {
        Some(timeout) => ctx.timeout(work, timeout).await,
        None => work.await,
    }
}

/// Executes the call as a child run, which has no time limit of its own.
async fn call_child(ctx: &AgentCtx, child: &Child, input: &ToolTaskInput) -> Result<Output> {
    let kind = child.kind.as_str();
    let result: Box<RawValue> = if child.is_agent {
        let AgentTask { task } = arguments_of(&input.arguments)?;
        ctx.child(kind, &task).await?
    } else {
        ctx.child(kind, &input.arguments).await?
    };
    match serde_json::from_str::<AgentOutcome>(result.get()) {
        Ok(AgentOutcome { stop: Stop::Done, text, .. }) => Output::of(&text, input.result_bytes_max),
        Ok(AgentOutcome { stop, text, .. }) => Output::of(&format!("{text}\n(stopped: {stop})"), input.result_bytes_max),
        Err(_) => Output::of(&result, input.result_bytes_max),
    }
}

/// Requests an approval (TO2). The decision is bound to the definition of the tool and to the text of the arguments. The hash of
/// the shown data covers neither: it is a hash of the values.
async fn agreed(ctx: &AgentCtx, tool: &Tool, call: &ToolCall, arguments: &RawValue) -> Result<()> {
    #[derive(Serialize)]
    struct ApprovalDetails<'a> {
        tool: &'a str,
        arguments: &'a RawValue,
    }
    let shown = ApprovalDetails { tool: &call.name, arguments };
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

/// Formats a failure for the model.
fn failure_output(failure: &Failure) -> Output {
    Output { blocks: vec![Block::text(format!("{} ({})", failure.message, failure.code))], is_error: true }
}
