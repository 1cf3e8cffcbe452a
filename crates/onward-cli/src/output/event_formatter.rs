//! Formats events and stop reasons of agents as text, for all commands.
//!
//! The result of a call has only its call id in the log; the formatter remembers the names of calls.

use std::collections::BTreeMap;

use onward_core::event::{
    ApprovalDecided, AttributeSet, MemoAnswered, RunPaused, RunStarted, SignalReceived, StepCompleted, StepFailed,
};
use onward_core::external::ExternalAppended;
use onward_core::{CallId, Event, Failure, Name, Payload, Timestamp};

use super::{clip, escape, time};

/// Maximum length of a payload in a line.
const PREVIEW_MAX: usize = 60;

#[derive(Debug, Default)]
pub struct EventFormatter {
    calls: BTreeMap<CallId, String>,
}

impl EventFormatter {
    /// Formats an event that was recorded at `at`, without its name.
    pub fn format(&mut self, at: Timestamp, event: &Event) -> String {
        self.remember(event);
        if event.is_input() { self.format_input(event) } else { self.format_commit(at, event) }
    }

    fn remember(&mut self, event: &Event) {
        let (call_id, name) = match event {
            Event::TaskScheduled(event) => (&event.call_id, event.kind.as_str()),
            Event::MemoRequested(event) => (&event.call_id, event.name.as_str()),
            Event::ChildStarted(event) => (&event.call_id, event.child.as_str()),
            Event::ChildAwaited(event) => (&event.call_id, event.child.as_str()),
            Event::ApprovalRequested(event) => (&event.call_id, event.name.as_str()),
            Event::PromiseCreated(event) => (&event.call_id, event.name.as_str()),
            Event::SignalAwaited(event) => (&event.call_id, event.name.as_str()),
            Event::TimerStarted(event) => (&event.call_id, "timer"),
            Event::StepFailed(event) => (&event.call_id, event.name.as_str()),
            _ => return,
        };
        self.calls.insert(call_id.clone(), name.to_owned());
    }

    /// Returns the name of a call, or its call id if it is unknown.
    fn call(&self, call_id: &CallId) -> String {
        self.calls.get(call_id).map_or_else(|| format!("call {call_id}"), |name| shown(name))
    }

    fn format_input(&self, event: &Event) -> String {
        match event {
            Event::RunStarted(event) => format_start(event),
            Event::SignalReceived(event) => format_signal(event),
            Event::ApprovalDecided(event) => format_decision(&self.call(&event.call_id), event),
            Event::PromiseResolved(event) => format_result(&self.call(&event.call_id), &event.result),
            Event::UpdateReceived(event) => format!("{} {}", shown(event.name.as_str()), preview(&event.payload)),
            Event::TaskCompleted(event) => {
                format!("{} -> {}{}", self.call(&event.call_id), preview(&event.output), attempts(event.attempts))
            }
            Event::TaskFailed(event) => {
                format!("{}: {}{}", self.call(&event.call_id), format_failure(&event.failure), attempts(event.attempts))
            }
            Event::TimerFired(event) => self.call(&event.call_id),
            Event::ChildCompleted(event) => format!("{} -> {}", self.call(&event.call_id), preview(&event.output)),
            Event::ChildFailed(event) => format!("{}: {}", self.call(&event.call_id), format_failure(&event.failure)),
            Event::BranchRequested(event) => {
                event.from.map_or_else(|| "from the beginning".to_owned(), |from| format!("from {from}"))
            }
            Event::CancelRequested(event) => shown(&event.reason),
            Event::TerminateRequested(event) => shown(&event.reason),
            Event::RunPaused(event) => format_pause(event),
            Event::MemoAnswered(event) => format_memo(&self.call(&event.call_id), event),
            Event::RunResumed(event) => event.budget.map(|budget| format!("with {budget}")).unwrap_or_default(),
            Event::ExternalAppended(event) => format_external(event),
            _ => String::new(),
        }
    }

    fn format_commit(&self, at: Timestamp, event: &Event) -> String {
        match event {
            Event::StepCompleted(event) => format_step(event),
            Event::StepFailed(event) => format_failed_step(at, event),
            Event::TaskScheduled(event) => format!("{} {}", shown(event.kind.as_str()), preview(&event.input)),
            Event::TaskCanceled(event) => self.call(&event.call_id),
            Event::TimerStarted(event) => format!("due {}", time::until(event.due_at, at)),
            Event::SignalAwaited(event) => format!("{}{}", shown(event.name.as_str()), deadline(event.deadline, at)),
            Event::SignalConsumed(event) => format!("{} of event {}", shown(event.name.as_str()), event.index),
            Event::ApprovalRequested(event) => {
                format!("{}: {}{}", shown(event.name.as_str()), shown(&event.title), deadline(event.deadline, at))
            }
            Event::PromiseCreated(event) => {
                let key = event.key.as_ref().map(|key| format!(" {}", shown(key))).unwrap_or_default();
                format!("{}{key}{}", shown(event.name.as_str()), deadline(event.deadline, at))
            }
            Event::WaitCanceled(event) => self.call(&event.call_id),
            Event::MemoRequested(event) => format!("{} {}", shown(event.name.as_str()), shown(&event.key)),
            Event::MemoStored(event) => self.call(&event.call_id),
            Event::MemoReleased(event) => self.call(&event.call_id),
            Event::StateSet(event) => format!("{} = {}", shown(event.key.as_str()), preview(&event.value)),
            Event::AttributeSet(event) => format_attribute(event),
            Event::BudgetSet(event) => event.budget.to_string(),
            Event::StateCleared(event) => shown(event.key.as_str()),
            Event::ChildStarted(event) => {
                format!("{} of kind {} {}", shown(event.child.as_str()), shown(event.kind.as_str()), preview(&event.input))
            }
            Event::ChildCanceled(event) => shown(event.child.as_str()),
            Event::ChildAwaited(event) => shown(event.child.as_str()),
            Event::SignalSent(event) => {
                format!("{} to {} {}", shown(event.name.as_str()), shown(event.to.as_str()), preview(&event.payload))
            }
            Event::VersionChosen(event) => format!("{} = {}", shown(event.change.as_str()), event.version),
            Event::UpdateAnswered(event) => format_result(&shown(&event.update_id), &event.result),
            Event::RunSuspended(event) => format!("{:?}", event.reason).to_lowercase(),
            Event::RunCompleted(event) => preview(&event.output),
            Event::RunFailed(event) => format_failure(&event.failure),
            Event::RunCanceled(event) => format_failure(&event.failure),
            Event::RunContinued(event) => preview(&event.input),
            _ => String::new(),
        }
    }
}

/// Formats a payload in one truncated line.
pub fn preview(payload: &Payload) -> String {
    clip(&shown(&format!("{payload:?}")), PREVIEW_MAX)
}

/// Escapes a text for a terminal.
pub fn shown(text: &str) -> String {
    escape::text(text).into_owned()
}

fn deadline(deadline: Option<Timestamp>, at: Timestamp) -> String {
    deadline.map(|deadline| format!(" (deadline {})", time::until(deadline, at))).unwrap_or_default()
}

fn attempts(count: u32) -> String {
    if count > 1 { format!(" (attempt {count})") } else { String::new() }
}

fn format_start(event: &RunStarted) -> String {
    let version = event.version.as_ref().map(|version| format!(" {}", shown(version.as_str()))).unwrap_or_default();
    let carried = |count: usize, what: &str| if count == 0 { String::new() } else { format!(", {count} {what} carried over") };
    let (signals, updates) = (carried(event.mailbox.len(), "signals"), carried(event.updates.len(), "updates"));
    format!("{}{version} {}{signals}{updates}", shown(event.kind.as_str()), preview(&event.input))
}

fn format_signal(event: &SignalReceived) -> String {
    let sender = event.sender.as_ref().map(|key| format!(" from {}", shown(&key.to_string()))).unwrap_or_default();
    format!("{} {}{sender}", shown(event.name.as_str()), preview(&event.payload))
}

fn format_decision(call: &str, event: &ApprovalDecided) -> String {
    let verdict = if event.approved { "approved" } else { "rejected" };
    let by = event.decided_by.as_ref().map(|by| format!(" by {}", shown(by))).unwrap_or_default();
    let feedback = event.feedback.as_ref().map(|text| format!(": {}", shown(text))).unwrap_or_default();
    format!("{call} {verdict}{by}{feedback}")
}

fn format_result(call: &str, result: &Result<Payload, Failure>) -> String {
    match result {
        Ok(payload) => format!("{call} -> {}", preview(payload)),
        Err(failure) => format!("{call}: {}", format_failure(failure)),
    }
}

/// Formats the answer of a memo: a result with its origin, or who computes it.
fn format_memo(call: &str, event: &MemoAnswered) -> String {
    match &event.hit {
        Some(hit) => format!("{call} -> {} from run {}", preview(&hit.output), shown(hit.from.as_str())),
        None => format!("{call} is to be computed"),
    }
}

fn format_pause(event: &RunPaused) -> String {
    let reason = format!("{:?}", event.reason).to_lowercase();
    if event.message.is_empty() { reason } else { format!("{reason}: {}", shown(&event.message)) }
}

/// Formats the events of an external run with their indexes, and its state.
fn format_external(event: &ExternalAppended) -> String {
    let events = event.indexed().map(|(index, event)| format!("{index} {}", preview(event)));
    let state = event.state.iter().map(|state| format!("{} is {}", name(&state.kind), state.status));
    events.chain(state).collect::<Vec<_>>().join(", ")
}

/// Formats an attribute like the option `--attr`.
fn format_attribute(event: &AttributeSet) -> String {
    match &event.value {
        Some(value) => format!("{} = {}", name(&event.name), clip(&shown(&value.to_string()), PREVIEW_MAX)),
        None => format!("{} removed", name(&event.name)),
    }
}

fn format_step(event: &StepCompleted) -> String {
    format!("{} -> {}{}", name(&event.name), preview(&event.output), attempts(event.attempt))
}

fn format_failed_step(at: Timestamp, event: &StepFailed) -> String {
    let next = event.retry_at.map_or(", no retry".to_owned(), |due| format!(", next attempt {}", time::until(due, at)));
    format!("{} attempt {}: {}{next}", name(&event.name), event.attempt, format_failure(&event.failure))
}

/// Formats a failure with its code.
pub fn format_failure(failure: &Failure) -> String {
    format!("[{}] {}", shown(&failure.code), shown(&failure.to_string()))
}

fn name(name: &Name) -> String {
    shown(name.as_str())
}

/// Returns the stop reason of an agent with its description. An unknown reason is shown as it is.
pub fn stop_text(stop: &str) -> String {
    let meaning = match stop {
        "refused" => "the model refused to answer",
        "max_turns" => "the turn limit was reached",
        "max_tokens" => "the answer was cut off by a token limit",
        "repeated_call" => "the model repeated the same tool call",
        "no_answer" => "the model produced only reasoning",
        "max_handoffs" => "the handoff limit was reached",
        "budget_exhausted" => "the budget or the limit of tool calls was reached",
        other => return other.to_owned(),
    };
    format!("{stop} ({meaning})")
}

#[cfg(test)]
mod tests;
