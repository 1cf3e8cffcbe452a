//! One sentence about what a run is doing or waiting for, and since when.
//!
//! Owns the words. Must never contain data of users: only names, ids, times, codes and reasons of operators, which are readable in
//! an encrypted run, too.

use crate::api::{BlockReason, Blocker};
use crate::log::event::PauseReason;
use crate::run::live::{ActiveCall, ActiveType};
use crate::run::view::{Awaited, AwaitedKind, RunView};
use crate::task::MODEL_CALL;
use crate::{Name, Status, Timestamp};

/// The current activity of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doing {
    pub sentence: String,
    pub since: Timestamp,
}

/// Describes what the run is doing or waiting for. Of several waits, the sentence has the most important one and the number of
/// the others.
pub fn doing(view: &RunView, blocked_on: &[Blocker], active: &[ActiveCall]) -> Doing {
    let head = &view.head;
    let Doing { mut sentence, since } = match head.status {
        Status::Pending => pending(view, blocked_on),
        Status::Running if head.external.is_some() => {
            of(format!("Is executed by an external engine since {}", head.created_at), head.created_at)
        }
        Status::Running => running(view, active),
        Status::Waiting => waiting(view, blocked_on),
        Status::Paused => paused(view),
        _ => closed(view),
    };
    if let Some(reason) = view.cancel_reason.as_ref().filter(|_| !head.status.is_closed()) {
        sentence.push_str("; cancellation was requested");
        push_reason(&mut sentence, reason);
    }
    Doing { sentence, since }
}

/// The end of a sentence about a missing worker.
const NONE: &str = "; none is connected";

fn of(sentence: String, since: Timestamp) -> Doing {
    Doing { sentence, since }
}

/// Adds the reason that a person gave, if any.
fn push_reason(sentence: &mut String, reason: &str) {
    if !reason.is_empty() {
        sentence.push_str(": ");
        sentence.push_str(reason);
    }
}

fn running(view: &RunView, active: &[ActiveCall]) -> Doing {
    let Some(call) = active.iter().min_by_key(|call| call.started_at) else {
        return of(format!("Executes its code since {}", view.head.updated_at), view.head.updated_at);
    };
    let what = match call.of_type {
        ActiveType::Step => format!("step {}", call.name),
        ActiveType::Task => task(call.name.as_str()),
    };
    let attempt = if call.attempt > 1 { format!(" (attempt {})", call.attempt) } else { String::new() };
    let others = if active.len() > 1 { format!(" and {} more", active.len() - 1) } else { String::new() };
    of(format!("Executes {what}{attempt}{others} since {}", call.started_at), call.started_at)
}

fn pending(view: &RunView, blocked_on: &[Blocker]) -> Doing {
    let (kind, since) = (&view.head.kind, view.head.updated_at);
    let version = view.head.version.as_ref().map(|version| format!(" in version {version}")).unwrap_or_default();
    let (free, none) = match blocked_on.iter().find(|blocker| blocker.task.is_none()).map(|blocker| blocker.why) {
        Some(BlockReason::NoWorker) => ("", NONE),
        Some(BlockReason::Queued) => ("free ", ""),
        _ => ("", ""),
    };
    of(format!("Waits for a {free}worker with the kind {kind}{version} since {since}{none}"), since)
}

/// Returns the importance of a wait: what needs a person comes first, what ends by itself comes last.
fn rank(awaited: &Awaited, blocker: Option<&Blocker>) -> u8 {
    match (awaited.kind, blocker.map(|blocker| blocker.why)) {
        (_, Some(BlockReason::Quarantined | BlockReason::WorkerCrashed)) => 0,
        (_, Some(BlockReason::NoWorker)) => 1,
        (AwaitedKind::Approval, _) => 2,
        (_, Some(_)) => 3,
        (AwaitedKind::Signal, _) => 4,
        (AwaitedKind::Promise, _) => 5,
        (AwaitedKind::Child, _) => 6,
        (AwaitedKind::Task, _) => 7,
        (AwaitedKind::Memo, _) => 7,
        (AwaitedKind::Timer, _) => 8,
        (AwaitedKind::Update, _) => 9,
    }
}

fn waiting(view: &RunView, blocked_on: &[Blocker]) -> Doing {
    let blocker_of = |awaited: &Awaited| {
        let is_its =
            |blocker: &&Blocker| blocker.task.as_ref().is_some_and(|task| Some(&task.call_id) == awaited.call_id.as_ref());
        blocked_on.iter().find(is_its)
    };
    let first = view.awaiting.iter().min_by_key(|awaited| (rank(awaited, blocker_of(awaited)), awaited.since));
    let Some(first) = first else {
        return of(format!("Waits since {}", view.head.updated_at), view.head.updated_at);
    };
    let mut sentence = match (view.agent_stop(), blocker_of(first)) {
        (Some(stop), _) => format!("Waits for the next message after it stopped with {stop}"),
        (None, Some(blocker)) => blocked(first, blocker),
        (None, None) => unblocked(first),
    };
    match view.awaiting.len() - 1 {
        0 => {}
        others => sentence.push_str(&format!(" and {others} more")),
    }
    sentence.push_str(&format!(" since {}", first.since));
    if let Some(deadline) = first.deadline {
        sentence.push_str(&format!(", until {deadline}"));
    }
    if blocker_of(first).is_some_and(|blocker| blocker.why == BlockReason::NoWorker) {
        sentence.push_str(NONE);
    }
    of(sentence, first.since)
}

fn unblocked(awaited: &Awaited) -> String {
    let name = awaited.name.as_ref().map_or("", Name::as_str);
    match (awaited.kind, &awaited.child) {
        (AwaitedKind::Signal, _) => format!("Waits for the signal {name}"),
        (AwaitedKind::Approval, _) => format!("Waits for approval of {name}"),
        (AwaitedKind::Promise, _) => format!("Waits for the promise {name}"),
        (AwaitedKind::Timer, _) if awaited.name.is_some() => format!("Waits for the next attempt of step {name}"),
        (AwaitedKind::Timer, _) => "Sleeps".to_owned(),
        (AwaitedKind::Child, Some(child)) => format!("Waits for the child {child}"),
        (AwaitedKind::Child, None) => format!("Waits for a child of the kind {name}"),
        (AwaitedKind::Task, _) => format!("Waits for {}", task(name)),
        (AwaitedKind::Memo, _) => format!("Waits for the memo of {name}"),
        (AwaitedKind::Update, _) => format!("Has not answered the update {name}"),
    }
}

/// Returns the words for a task of this kind.
fn task(kind: &str) -> String {
    match kind.strip_prefix(MODEL_CALL) {
        Some(model) => format!("the model {model}"),
        None => format!("task {kind}"),
    }
}

fn blocked(awaited: &Awaited, blocker: &Blocker) -> String {
    let task = task(awaited.name.as_ref().map_or("", Name::as_str));
    let until = blocker.until.map(|until| format!(" at {until}")).unwrap_or_default();
    let failed = blocker.failure_code.as_ref().map(|code| format!(" (the last one failed with {code})")).unwrap_or_default();
    match blocker.why {
        BlockReason::Quarantined => {
            format!("Waits for an operator: {task} lost {} workers in a row and is in quarantine", blocker.lost_workers)
        }
        BlockReason::NoWorker => format!("Waits for a worker that executes {task}"),
        BlockReason::RateLimited => format!("Waits for the end of a rate limit{until} to execute {task}"),
        BlockReason::Retries => format!("Waits for the next attempt of {task}{until}{failed}"),
        BlockReason::Queued => format!("Waits for a free worker that executes {task}"),
        BlockReason::SpendQuota => {
            format!("Waits{until} to execute {task}, because the namespace has spent its quota of the day")
        }
        BlockReason::TaskQuota => {
            format!("Waits to execute {task}, because the namespace runs as many tasks as its quota permits")
        }
        BlockReason::WorkerCrashed => format!("Is paused: it lost {} workers in a row", blocker.lost_workers),
    }
}

fn paused(view: &RunView) -> Doing {
    let since = view.head.paused_at.unwrap_or(view.head.updated_at);
    let mut sentence = format!("Is paused since {since}");
    let Some(pause) = &view.pause else { return of(sentence, since) };
    let why = match pause.reason {
        PauseReason::Requested => "on request",
        PauseReason::Diverged => "because its code diverged from the log",
        PauseReason::ActivationFailed => "because its code could not run",
        PauseReason::VersionTooOld => "because its code no longer supports the recorded version",
        PauseReason::UnstableSegment => "because its code abandoned its calls too often",
        PauseReason::EffectAbandoned => "because its code abandoned a call that may have had an effect",
        PauseReason::BudgetExhausted => "because its budget is exhausted",
        PauseReason::SegmentTooLong => "because it recorded too many events without a checkpoint",
        PauseReason::ApprovalNeeded => "because its approvals must be given again",
        PauseReason::WorkerCrashed => "because its workers were lost one after the other",
    };
    sentence.push_str(&format!(" {why}"));
    // Other messages quote the code and may be encrypted.
    if pause.reason == PauseReason::Requested {
        push_reason(&mut sentence, &pause.message);
    }
    of(sentence, since)
}

fn closed(view: &RunView) -> Doing {
    let since = view.head.ended_at.unwrap_or(view.head.updated_at);
    let with = match &view.outcome {
        Some(Err(failure)) => format!(" with {}", failure.code),
        _ => String::new(),
    };
    let mut sentence = match (view.head.status, &view.reset_to) {
        (Status::Completed, _) if view.outcome.is_none() => format!("Continued as its next generation at {since}"),
        (Status::Completed, _) => format!("Completed at {since}"),
        (Status::Failed, _) => format!("Failed at {since}{with}"),
        (Status::Canceled, _) => format!("Was canceled at {since}"),
        (_, Some(run)) => format!("Was ended at {since} by a reset to {run}"),
        _ => format!("Was terminated at {since}"),
    };
    if let Some(reason) = view.cancel_reason.as_ref().filter(|_| view.head.status == Status::Canceled) {
        push_reason(&mut sentence, reason);
    }
    of(sentence, since)
}

#[cfg(test)]
mod tests;
