//! The ready-made agent loop: a model, its tools and its messages.
//!
//! It uses only the public API ([`AgentCtx::turns`], [`AgentCtx::llm`], [`Tools::call`]). A turn is one answer of the model with
//! the tool calls in it. For anything else, write an agent function.

use onward_core::budget::Budget;
use onward_core::conversation::{AGENT_STOP, DONE, MESSAGE, SUMMARY, is_callers_role, is_empty_message as is_empty, reported};
use onward_core::event::Tally;
use onward_core::{ErrorCode, Failure, Name, Payload};
use onward_llm::{Block, ModelReply, StopReason, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::prompt::{blocks, text_of};
use super::tool::Tool;
use super::tools::{ToolFuture, Tools};
use super::{AgentCtx, EntryId, ReceivedSignal, Turn};
use crate::{Result, join_all};

/// Default limit of turns per message.
const TURNS_MAX: u32 = 50;

/// Default limit of tool calls per message.
const TOOL_CALLS_MAX: u32 = 250;

/// How often in a row a model may make the same tool calls before it counts as stuck.
const SAME_CALLS_MAX: u32 = 5;

/// Default limit of handoffs per message.
const HANDOFFS_MAX: u32 = 8;

/// Number of latest entries that a summary does not cover.
const KEEP: usize = 8;

/// Characters to which long texts are truncated.
const TRUNCATED_CHARS: usize = 4_000;

/// The role of messages in the input with another role than `user`. A model receives them as user text.
const BROUGHT_ALONG: &str = "developer";

/// The name of the emitted value when a conversation waits for another reason than `done`.
const STOPPED: &str = "agent_stopped";

const SUMMARIZE: &str = "Summarize the conversation so far for yourself: what was asked, what is known, what was decided and done, and \
    what is still open. Keep names, numbers and exact wordings that may be needed later. Answer with the summary alone.";

/// An agent made of a model, instructions and tools.
///
/// ```no_run
/// # use onward::agent::Agent;
/// let agent = Agent::new("support").model("gpt-4o").system("You help customers of a bicycle shop.");
/// ```
#[derive(Clone)]
pub struct Agent {
    name: String,
    model: String,
    system: Option<String>,
    tools: Tools,
    turns_max: u32,
    tool_calls_max: u32,
    handoffs_max: u32,
    converses: bool,
    context_tokens: Option<u64>,
    budget: Budget,
    stops_at_budget: bool,
}

/// The reason why an agent stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The model finished its answer.
    Done,
    /// The model refused to answer.
    Refused,
    /// The turn limit was reached.
    MaxTurns,
    /// The answer was cut off by a token limit.
    MaxTokens,
    /// The model kept making the same tool calls.
    RepeatedCall,
    /// The model produced only reasoning, twice.
    NoAnswer,
    /// The handoff limit was reached.
    MaxHandoffs,
    /// The budget is exhausted ([`Agent::stop_at_budget`]), or the limit of tool calls is reached ([`Agent::max_tool_calls`]).
    BudgetExhausted,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// The result of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentOutcome {
    pub stop: Stop,
    /// The model's last answer.
    pub text: String,
    pub turns: u32,
}

#[derive(Serialize)]
struct Stopped {
    stop: Stop,
}

/// The state that is passed from turn to turn, and to another agent on a handoff.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Progress {
    /// Turns since the last message.
    turns: u32,
    turns_in_all: u32,
    /// Tool calls of the model since the last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_calls: Option<u32>,
    /// The model's last tool calls, and how often in a row it has made them. Reset by a message, which may ask for them again.
    same_calls: Option<(String, u32)>,
    /// Handoffs since the last message.
    #[serde(default)]
    handoffs: u32,
    /// Tokens of the context in the last model call.
    context_tokens: u64,
    /// Number of entries from which the next summary is made. An earlier one would repeat the last.
    #[serde(default)]
    summary_from: u64,
    /// Long texts are truncated, until the next summary.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_truncated: bool,
    /// The last reported reason for waiting; `None` while it was always `done`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stop: Option<Stop>,
}

impl Agent {
    pub fn new(name: &str) -> Agent {
        Agent {
            name: name.to_owned(),
            model: String::new(),
            system: None,
            tools: Tools::new().scoped(name),
            turns_max: TURNS_MAX,
            tool_calls_max: TOOL_CALLS_MAX,
            handoffs_max: HANDOFFS_MAX,
            converses: false,
            context_tokens: None,
            budget: Budget::default(),
            stops_at_budget: false,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the model, by the name registered on the builder.
    pub fn model(self, model: &str) -> Agent {
        Agent { model: model.to_owned(), ..self }
    }

    pub fn system(self, system: impl Into<String>) -> Agent {
        Agent { system: Some(system.into()), ..self }
    }

    pub fn tool(self, tool: Tool) -> Agent {
        Agent { tools: self.tools.with(tool), ..self }
    }

    pub fn tools(self, tools: &Tools) -> Agent {
        let tools = tools.iter().cloned().fold(self.tools.clone(), Tools::with).with_mistake_of(tools);
        Agent { tools, ..self }
    }

    /// Allows the model to hand the conversation over to another kind of agent, which continues the same run. Adds a tool named
    /// `handoff_to_<kind>`.
    pub fn handoff_to(self, kind: &str) -> Agent {
        self.tool(Tool::handoff(kind))
    }

    /// Limits the handoffs between agents per message; default eight. Turns are counted across handoffs, too.
    pub fn max_handoffs(self, max: u32) -> Agent {
        Agent { handoffs_max: max, ..self }
    }

    /// Limits how deep agents and workflows may start each other as tools ([`Tools::max_depth`]); default eight levels.
    pub fn max_depth(self, max: u32) -> Agent {
        Agent { tools: self.tools.max_depth(max), ..self }
    }

    /// Limits the turns per message, counted across handoffs; default 50.
    pub fn max_turns(self, max: u32) -> Agent {
        Agent { turns_max: max.max(1), ..self }
    }

    /// Limits the tool calls per message, counted across handoffs; default 250. Calls beyond the limit fail with
    /// `budget_exhausted` as their result, and the agent stops with [`Stop::BudgetExhausted`]. A conversation continues with the
    /// next message; other agents end.
    pub fn max_tool_calls(self, max: u32) -> Agent {
        Agent { tool_calls_max: max, ..self }
    }

    /// Waits for the next message after an answer instead of ending. An agent that is called as a tool, or as a child that
    /// another run awaits, still ends.
    pub fn converse(self) -> Agent {
        Agent { converses: true, ..self }
    }

    /// Summarizes old entries once the model has read this many tokens. Longer texts among the latest entries, which a summary
    /// does not cover, are truncated after they were answered.
    pub fn compact_at(self, tokens: u64) -> Agent {
        Agent { context_tokens: Some(tokens), ..self }
    }

    /// Limits what a run of this agent and its children may spend, unless the run has another budget.
    pub fn budget(self, budget: Budget) -> Agent {
        Agent { budget, ..self }
    }

    /// Stops as `budget_exhausted` before a turn if the budget is exhausted, instead of pausing.
    pub fn stop_at_budget(self) -> Agent {
        Agent { stops_at_budget: true, ..self }
    }

    pub(crate) fn own_tools(&self) -> &Tools {
        &self.tools
    }

    pub(crate) fn has_model(&self) -> bool {
        !self.model.is_empty()
    }

    pub(crate) async fn run(self, ctx: AgentCtx, input: Box<RawValue>) -> Result<AgentOutcome> {
        if !self.budget.is_unlimited() {
            ctx.set_budget(self.budget);
        }
        begin(&ctx, input).await?;
        let first = ctx.handed_over().unwrap_or_else(|| Progress::behind(ctx.tally()));
        ctx.turns(first, |progress: Progress| self.turn(ctx.clone(), progress)).await
    }

    async fn turn(self, ctx: AgentCtx, mut progress: Progress) -> Result<Turn<Progress, AgentOutcome>> {
        let (mut has_woken, mut has_message) = (false, false);
        for message in ctx.signal(MESSAGE).drain_payloads() {
            has_woken = true;
            // Every API rejects an empty message; one that arrives as a plain signal is ignored.
            if message.from.is_none() && is_empty(&message.value) {
                continue;
            }
            append_message(&ctx, message)?;
            has_message = true;
            progress.begin_to_count();
        }
        let is_for_nothing = has_woken && !has_message && has_waited(&ctx) && is_answered(&ctx).await?;
        if ctx.entry_count() == 0 || is_for_nothing {
            return Ok(Turn::Await(progress, MESSAGE));
        }
        if self.stops_at_budget && ctx.budget_left().nothing_of().is_some() {
            let text = last_answer(&ctx).await?;
            return self.stop(&ctx, progress, Stop::BudgetExhausted, text);
        }
        // An agent before a handoff may have used up the turns.
        if progress.turns >= self.turns_max {
            let text = last_answer(&ctx).await?;
            return self.stop(&ctx, progress, Stop::MaxTurns, text);
        }
        if self.context_tokens.is_some_and(|tokens_max| progress.context_tokens > tokens_max) {
            self.shorten(&ctx, &mut progress).await?;
        }
        let mut reply = self.answer(&ctx, &mut progress).await?;
        progress.turns += 1;
        progress.turns_in_all += 1;
        if is_empty_message(&reply) {
            reply = self.answer(&ctx, &mut progress).await?;
        }
        if is_empty_message(&reply) {
            return self.stop(&ctx, progress, Stop::NoAnswer, String::new());
        }
        progress.context_tokens = reply.usage.map_or(0, |usage| usage.input + usage.cached_read + usage.cached_write);
        ctx.append("assistant", &reply).await?;
        let stop = match reply.stop {
            _ if reply.refusal().is_some() => Stop::Refused,
            Some(StopReason::Refusal) => Stop::Refused,
            // The provider wants to continue its answer.
            Some(StopReason::Paused) if progress.turns < self.turns_max => return Ok(Turn::Next(progress)),
            // Its tool calls may be cut off, too, so none is executed.
            Some(StopReason::MaxTokens | StopReason::ContextFull) => Stop::MaxTokens,
            _ if reply.wants_tools() => {
                if progress.count_repeats(&reply) > SAME_CALLS_MAX {
                    Stop::RepeatedCall
                } else {
                    // Code of other agents may hand over as well; only the run's tally counts that.
                    let is_last = progress.handoffs.max(ctx.tally().handoffs) >= self.handoffs_max;
                    let made = progress.tool_calls.unwrap_or(0);
                    let wanted = made.saturating_add(reply.calls().count() as u32);
                    progress.tool_calls = Some(wanted);
                    let is_allowed = |number: u32| number < self.tool_calls_max;
                    let calls = (made..).zip(reply.calls()).map(|(number, call)| match is_allowed(number) {
                        true => self.carry_out(&ctx, call, is_last),
                        false => self.refuse_call(call),
                    });
                    let (mut takes_over, mut wants_to) = (None, false);
                    for (call, outcome) in reply.calls().zip(join_all(calls).await?) {
                        ctx.append("tool", &outcome).await?;
                        wants_to |= self.tools.takes_over(call).is_some();
                        takes_over = takes_over.or(self.tools.takes_over(call).filter(|_| !outcome.is_error()));
                    }
                    if let Some(kind) = takes_over {
                        progress.handoffs += 1;
                        return ctx.handoff_with(kind, &(), Payload::json(&progress)?, Some(progress.turns)).await;
                    }
                    match wants_to && is_last {
                        _ if wanted > self.tool_calls_max => Stop::BudgetExhausted,
                        true => Stop::MaxHandoffs,
                        false if progress.turns < self.turns_max => return Ok(Turn::Next(progress)),
                        false => Stop::MaxTurns,
                    }
                }
            }
            Some(StopReason::Paused) => Stop::MaxTurns,
            _ => Stop::Done,
        };
        self.stop(&ctx, progress, stop, reply.text())
    }

    /// Executes a tool call, except for a handoff over the limit.
    fn carry_out(&self, ctx: &AgentCtx, call: &ToolCall, is_last: bool) -> ToolFuture {
        if is_last && self.tools.takes_over(call).is_some() {
            let message = format!("the conversation was handed over {} times since the last message", self.handoffs_max);
            let refused = Tools::refuse(call, &Failure::fatal(message).with_code(Stop::MaxHandoffs.name()));
            return Box::pin(std::future::ready(Ok(refused)));
        }
        self.tools.call(ctx, call)
    }

    /// Refuses a tool call over the limit.
    fn refuse_call(&self, call: &ToolCall) -> ToolFuture {
        let message = format!("the limit of {} tool calls per message is reached", self.tool_calls_max);
        let refused = Tools::refuse(call, &Failure::fatal(message).with_code(Stop::BudgetExhausted.name()));
        Box::pin(std::future::ready(Ok(refused)))
    }

    /// Ends, or waits for the next message. Messages that arrived meanwhile are answered first.
    fn stop(&self, ctx: &AgentCtx, mut progress: Progress, stop: Stop, text: String) -> Result<Turn<Progress, AgentOutcome>> {
        if ctx.signal(MESSAGE).has() {
            return Ok(Turn::Next(progress));
        }
        if self.converses && !ctx.is_called() {
            progress.report_stop(ctx, stop)?;
            return Ok(Turn::Await(progress, MESSAGE));
        }
        Ok(Turn::Done(AgentOutcome { stop, text, turns: progress.turns_in_all }))
    }

    /// Shortens a context over the token limit: summarizes or, if there is nothing to summarize, truncates long texts.
    async fn shorten(&self, ctx: &AgentCtx, progress: &mut Progress) -> Result<()> {
        if ctx.entry_count() < progress.summary_from || !self.sum_up(ctx, progress).await? {
            progress.is_truncated = true;
        }
        Ok(())
    }

    /// Calls the model. If the context is too long, summarizes; if that is not enough, truncates long texts. An early summary,
    /// with fewer than [`KEEP`] entries since the last, is the last resort.
    async fn answer(&self, ctx: &AgentCtx, progress: &mut Progress) -> Result<ModelReply> {
        let mut reply = self.ask(ctx, progress).await;
        let is_due = ctx.entry_count() >= progress.summary_from;
        if is_too_long(&reply) && is_due && self.sum_up(ctx, progress).await? {
            reply = self.ask(ctx, progress).await;
        }
        if is_too_long(&reply) && !progress.is_truncated {
            progress.is_truncated = true;
            reply = self.ask(ctx, progress).await;
        }
        if is_too_long(&reply) && !is_due && self.sum_up(ctx, progress).await? {
            progress.is_truncated = true;
            reply = self.ask(ctx, progress).await;
        }
        reply
    }

    async fn ask(&self, ctx: &AgentCtx, progress: &Progress) -> Result<ModelReply> {
        let call = ctx.llm(&self.model).tools(&self.tools);
        let call = if progress.is_truncated { call.truncate_at(TRUNCATED_CHARS) } else { call };
        self.system.iter().fold(call, |call, system| call.system(system)).await
    }

    /// Replaces everything but the latest entries by a summary. Returns false, and changes nothing, if the conversation is too
    /// short or the model does not write a complete summary.
    async fn sum_up(&self, ctx: &AgentCtx, progress: &mut Progress) -> Result<bool> {
        let is_summed_up = self.compact(ctx).await?;
        progress.summary_from = ctx.entry_count() + KEEP as u64;
        progress.is_truncated &= !is_summed_up;
        Ok(is_summed_up)
    }

    async fn compact(&self, ctx: &AgentCtx) -> Result<bool> {
        let entries = ctx.messages().await?;
        let mut kept_from = entries.len().saturating_sub(KEEP);
        // Results stay with their calls.
        while entries.get(kept_from).is_some_and(|entry| entry.role.as_str() == "tool") {
            kept_from += 1;
        }
        let covered = &entries[..kept_from];
        // A summary of only a summary would be no shorter.
        let Some(last) = covered.last().filter(|_| covered.iter().any(|entry| entry.role.as_str() != SUMMARY)) else {
            return Ok(false);
        };
        let covers = EntryId::from(last);
        let summary = match ctx.llm(&self.model).until(covers).truncate_at(TRUNCATED_CHARS).ask(SUMMARIZE).await {
            Err(failure) if !failure.is_canceled() => return Ok(false),
            summary => summary?,
        };
        let is_whole = !matches!(summary.stop, Some(StopReason::MaxTokens | StopReason::ContextFull | StopReason::Refusal));
        let is_good = is_whole && summary.refusal().is_none() && !summary.text().trim().is_empty();
        if is_good {
            ctx.compact(&summary.text(), covers).await?;
        }
        Ok(is_good)
    }
}

impl Stop {
    /// Returns the name in outcomes and attributes.
    pub fn name(self) -> &'static str {
        match self {
            Stop::Done => DONE,
            Stop::Refused => "refused",
            Stop::MaxTurns => "max_turns",
            Stop::MaxTokens => "max_tokens",
            Stop::RepeatedCall => "repeated_call",
            Stop::NoAnswer => "no_answer",
            Stop::MaxHandoffs => "max_handoffs",
            Stop::BudgetExhausted => "budget_exhausted",
        }
    }
}

impl Progress {
    /// Returns the progress after a handoff from code that does not pass it on.
    fn behind(tally: Tally) -> Progress {
        Progress { turns: tally.turns, turns_in_all: tally.turns, ..Progress::default() }
    }

    /// Resets the counts at a new message.
    fn begin_to_count(&mut self) {
        (self.turns, self.same_calls, self.handoffs, self.tool_calls) = (0, None, 0, None);
    }

    /// Reports the reason for waiting, if it is not `done`, as attribute and emitted value.
    fn report_stop(&mut self, ctx: &AgentCtx, stop: Stop) -> Result<()> {
        if stop != self.stop.unwrap_or(Stop::Done) {
            ctx.attributes().set(AGENT_STOP, stop.name());
            self.stop = Some(stop);
        }
        if stop == Stop::Done { Ok(()) } else { ctx.emit(STOPPED, &Stopped { stop }) }
    }

    /// Counts how often in a row the model has made these tool calls.
    fn count_repeats(&mut self, reply: &ModelReply) -> u32 {
        let calls: Vec<String> = reply.calls().map(|call| format!("{} {}", call.name, call.arguments)).collect();
        let calls = calls.join("\n");
        let times = self.same_calls.take().filter(|(before, _)| *before == calls).map_or(1, |(_, times)| times + 1);
        self.same_calls = Some((calls, times));
        times
    }
}

/// Returns whether the model ended its answer without text, tool calls or a refusal.
fn is_empty_message(reply: &ModelReply) -> bool {
    let ended = matches!(reply.stop, None | Some(StopReason::End));
    let is_thought = |block: &Block| match block {
        Block::Text { text, .. } => text.trim().is_empty(),
        block => matches!(block, Block::Reasoning(_)),
    };
    ended && reply.blocks.iter().all(is_thought)
}

fn is_too_long(reply: &Result<ModelReply>) -> bool {
    reply.as_ref().is_err_and(|failure| failure.code == ErrorCode::ContextTooLong)
}

/// Returns whether the turn began with a signal that it waited for.
fn has_waited(ctx: &AgentCtx) -> bool {
    ctx.cell.lock().engine.checkpoint().is_some_and(|checkpoint| checkpoint.awaits.is_some())
}

/// Returns whether the last entry is the model's; entries may have been appended from outside.
async fn is_answered(ctx: &AgentCtx) -> Result<bool> {
    Ok(ctx.messages().last(1).await?.iter().all(|entry| entry.role.as_str() == "assistant"))
}

/// Returns the model's last answer; empty if there is none.
async fn last_answer(ctx: &AgentCtx) -> Result<String> {
    let entries = ctx.messages().await?;
    let last = entries.iter().rev().find(|entry| entry.role.as_str() == "assistant");
    Ok(last.map_or(String::new(), |entry| text_of(&blocks(&entry.content))))
}

/// Appends a message as an entry; one of another run has the sender's name.
fn append_message(ctx: &AgentCtx, message: ReceivedSignal<Payload>) -> Result<EntryId> {
    #[derive(Serialize)]
    struct SenderMessage {
        from: String,
        text: String,
    }
    let ReceivedSignal { from: Some(from), value } = message else { return ctx.append_payload("user", message.value) };
    let text = format!("Message from {from}:\n{}", text_of(&blocks(&value)));
    ctx.append_payload("user", Payload::json(&SenderMessage { text, from: from.to_string() })?)
}

/// Appends the run's input: one user message, or a conversation so far. A front end may repeat the last message of the
/// conversation beside it, in the form of later messages; then that form is appended, with its id.
async fn begin(ctx: &AgentCtx, input: Box<RawValue>) -> Result<()> {
    #[derive(Deserialize)]
    struct ConversationInput {
        messages: Vec<InputMessage>,
    }
    #[derive(Deserialize)]
    struct InputMessage {
        id: Option<String>,
        role: String,
        content: Option<Box<RawValue>>,
    }
    #[derive(Serialize)]
    struct Reported<'a> {
        text: String,
        role: &'a str,
    }
    #[derive(Serialize, Deserialize)]
    struct Last {
        id: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        blocks: Option<serde_json::Value>,
    }
    if let Ok(ConversationInput { messages }) = serde_json::from_str(input.get()) {
        let last = serde_json::from_str::<Last>(input.get()).ok().filter(|last| last.text.is_some() || last.blocks.is_some());
        for InputMessage { id, role, content } in messages {
            // A caller may only append as a user: instructions, summaries, answers and results belong to the agent, its model and
            // its tools. An invalid role does not end the conversation.
            let is_theirs = Name::new(&*role).is_ok_and(|role| is_callers_role(&role));
            let Some(content) = content else { continue };
            match last.as_ref().filter(|last| is_theirs && id.as_ref() == Some(&last.id)) {
                Some(last) => ctx.append("user", last).await?,
                None if is_theirs => ctx.append("user", &content).await?,
                None if ["assistant", "tool"].contains(&role.as_str()) => {
                    let text = text_of(&blocks(&Payload::json(&content)?));
                    if text.trim().is_empty() {
                        continue;
                    }
                    ctx.append(BROUGHT_ALONG, &Reported { text: reported(&role, &text), role: &role }).await?
                }
                None => ctx.append(BROUGHT_ALONG, &content).await?,
            };
        }
    } else if !is_empty(&Payload::json(&input)?) {
        ctx.append("user", &input).await?;
    }
    Ok(())
}
