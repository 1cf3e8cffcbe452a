//! The calls of a run with their times and attempts, for people: a waterfall can be drawn from them.
//!
//! Owns the fold from records to [`TimelineCall`]s. Must never contain more than the log does, except what a store knows about
//! open tasks ([`Calls::show_task`]) and what workers report about steps under way ([`Calls::show_step`]). Times are those of the log: a step ended with its commit and began `took_ms` before, a task
//! was queued with its commit. Only the last attempt of a task is in the log, unless its attempts are recorded (K7).
//!
//! Invariants:
//! - TI1: every call has one line, in order of its first event; a call that takes over an abandoned one continues its line.
//! - TI2: in a closed log no call is open, except spawned children.

mod fold;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::run::live::ActiveCall;
use crate::task::{MODEL_CALL, Task, TaskState};
use crate::{CallId, Failure, Index, Name, Payload, Record, RunId, RunKey, Status, TOOL_KIND_PREFIX, Timestamp, WorkerId};
use crate::{message, numbered};

/// The maximum number of attempts of a line; the latest ones are kept.
const ATTEMPTS_MAX: usize = 100;

/// The largest input of a line; the event of the call has a larger one.
const INPUT_BYTES_MAX: usize = 16 * 1024;

/// The size of inputs and failures after which a page ends.
const PAGE_BYTES: usize = 2 * 1024 * 1024;

numbered! {
    pub enum CallType {
        0 => Step / "step",
        1 => Task / "task",
        /// A task that calls a model.
        2 => Model / "model",
        /// A task that executes a tool.
        3 => Tool / "tool",
        4 => Timer / "timer",
        5 => Signal / "signal",
        6 => Approval / "approval",
        7 => Promise / "promise",
        8 => Child / "child",
        9 => Update / "update",
    }
}

numbered! {
    pub enum CallStatus {
        /// Waits for a worker.
        0 => Queued / "queued",
        1 => Running / "running",
        /// An attempt failed, and another one follows.
        2 => Retrying / "retrying",
        /// Waits for something outside, or for an operator.
        3 => Waiting / "waiting",
        4 => Completed / "completed",
        /// Also a wait whose deadline passed.
        5 => Failed / "failed",
        6 => Canceled / "canceled",
        /// An agent's code no longer makes the call.
        7 => Abandoned / "abandoned",
    }
}

impl CallStatus {
    pub fn is_open(self) -> bool {
        matches!(self, CallStatus::Queued | CallStatus::Running | CallStatus::Retrying | CallStatus::Waiting)
    }
}

message! {
    /// The calls of one generation of a run.
    pub struct Timeline {
        1 => run: RunId,
        2 => kind: Name,
        3 => generation: u32,
        /// The number of generations of the run.
        4 => generations: u32,
        5 => status: Status,
        6 => started_at: Timestamp,
        7 => ended_at: Option<Timestamp>,
        /// The time of the reply, by the server's clock.
        8 => now: Timestamp,
        9 => calls: Vec<TimelineCall>,
        /// The cursor of the next page.
        10 => next: Option<String>,
    }

    /// A call of the code, or an update to it.
    pub struct TimelineCall {
        /// The call id, or the id of the update.
        1 => call_id: String,
        2 => r#type: CallType,
        3 => name: Option<Name>,
        4 => status: CallStatus,
        /// When a task was scheduled.
        5 => queued_at: Option<Timestamp>,
        6 => started_at: Option<Timestamp>,
        7 => ended_at: Option<Timestamp>,
        8 => attempts: Vec<CallAttempt>,
        /// The first and the last event of the call. A step under way may have none yet.
        9 => first_index: Option<Index>,
        10 => last_index: Option<Index>,
        /// The child run.
        11 => child: Option<RunId>,
        /// The deadline of a wait, or the time of the next attempt.
        12 => deadline: Option<Timestamp>,
        /// The input of a task or child, and the recorded input of a step, unless it is large.
        13 => input: Option<Payload>,
        /// An agent's code no longer makes the call.
        14 => abandoned: bool,
        /// The run whose recorded result the call has, if it did not compute one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        15 => memo_from: Option<RunId>,
    }

    /// An attempt of a call.
    pub struct CallAttempt {
        /// 1, 2, …
        1 => attempt: u32,
        2 => started_at: Option<Timestamp>,
        3 => ended_at: Option<Timestamp>,
        4 => failure: Option<Failure>,
        5 => worker: Option<WorkerId>,
    }
}

impl CallType {
    /// Returns the type of a task of this kind.
    fn of_task(kind: &Name) -> CallType {
        match kind.as_str() {
            kind if kind.starts_with(MODEL_CALL) => CallType::Model,
            kind if kind.starts_with(TOOL_KIND_PREFIX) => CallType::Tool,
            _ => CallType::Task,
        }
    }
}

impl TimelineCall {
    /// Returns the line of a step that has no event yet.
    fn running(step: &ActiveCall) -> TimelineCall {
        TimelineCall {
            call_id: step.call_id.to_string(),
            r#type: CallType::Step,
            name: Some(step.name.clone()),
            status: CallStatus::Running,
            queued_at: None,
            started_at: Some(step.started_at),
            ended_at: None,
            attempts: Vec::new(),
            first_index: None,
            last_index: None,
            child: None,
            deadline: None,
            input: step.input.clone().filter(|input| input.data().len() <= INPUT_BYTES_MAX),
            abandoned: false,
            memo_from: None,
        }
    }

    /// Returns the last attempt of this number, which is added if it is new.
    fn attempt(&mut self, attempt: u32) -> &mut CallAttempt {
        match self.attempts.iter().rposition(|known| known.attempt == attempt) {
            Some(position) => &mut self.attempts[position],
            None => self.add_attempt(attempt),
        }
    }

    /// Adds an attempt. A step that is executed again by a retry of its run has attempts with equal numbers.
    fn add_attempt(&mut self, attempt: u32) -> &mut CallAttempt {
        if self.attempts.len() == ATTEMPTS_MAX {
            self.attempts.remove(0);
        }
        self.attempts.push(CallAttempt { attempt, started_at: None, ended_at: None, failure: None, worker: None });
        self.attempts.last_mut().expect("it was just added")
    }

    fn end(&mut self, status: CallStatus, at: Timestamp) {
        self.status = status;
        self.ended_at = Some(at);
    }

    /// Moves the deadline of an open call, after a pause or a gap in the log.
    fn shift(&mut self, by: Duration) {
        self.deadline = self.deadline.filter(|_| self.status.is_open()).map(|deadline| deadline.after(by)).or(self.deadline);
    }

    fn bytes(&self) -> usize {
        let failures = self.attempts.iter().filter_map(|attempt| attempt.failure.as_ref());
        let of_failure = |failure: &Failure| failure.message.len() + failure.details.as_ref().map_or(0, |text| text.data().len());
        self.input.as_ref().map_or(0, |input| input.data().len()) + failures.map(of_failure).sum::<usize>()
    }
}

/// The calls of a log, before they are cut into pages.
pub struct Calls {
    calls: Vec<TimelineCall>,
    /// The line of each call id; an adopted call has two ids.
    lines: BTreeMap<CallId, usize>,
}

impl Calls {
    /// Collects the calls of a log; `records` begin with its start.
    pub fn fold(key: &RunKey, records: &[Record]) -> Calls {
        fold::fold(key, records)
    }

    /// Adds the attempts of an open task that only its row has.
    pub fn show_task(&mut self, task: &Task) {
        let Some(line) = self.lines.get(&task.id.call_id).map(|line| &mut self.calls[*line]) else { return };
        if !line.status.is_open() {
            return;
        }
        line.started_at = line.started_at.or(task.first_started_at);
        if let Some(failure) = task.last_failure.clone().filter(|_| task.attempt > 1) {
            line.attempt(task.attempt - 1).failure.get_or_insert(failure);
        }
        line.status = match task.state {
            TaskState::Leased => {
                let attempt = line.attempt(task.attempt);
                (attempt.started_at, attempt.worker) = (task.started_at, task.worker.clone());
                CallStatus::Running
            }
            TaskState::Queued if task.attempt == 1 => CallStatus::Queued,
            TaskState::Queued => {
                line.deadline = Some(task.visible_at);
                CallStatus::Retrying
            }
            TaskState::Quarantined => CallStatus::Waiting,
        };
    }

    /// Adds the attempt of a step that a worker executes now, unless the log has its end.
    pub fn show_step(&mut self, step: ActiveCall) {
        let known = self.lines.get(&step.call_id).copied().filter(|line| !self.calls[*line].abandoned);
        let line = known.unwrap_or_else(|| {
            self.calls.push(TimelineCall::running(&step));
            self.calls.len() - 1
        });
        let line = &mut self.calls[line];
        if line.status.is_open() {
            (line.status, line.deadline) = (CallStatus::Running, None);
            let attempt = line.attempt(step.attempt);
            (attempt.started_at, attempt.worker) = (Some(step.started_at), step.worker);
        }
    }

    /// Returns up to `limit` calls after the cursor, and the cursor of the next page; `None` if the cursor is invalid.
    pub fn page(mut self, cursor: Option<&str>, limit: usize) -> Option<(Vec<TimelineCall>, Option<String>)> {
        let from: usize = cursor.map_or(Some(0), |cursor| cursor.parse().ok()).filter(|from| *from <= self.calls.len())?;
        let (mut bytes, mut count) = (0, 0);
        for call in self.calls.iter().skip(from).take(limit) {
            bytes += call.bytes();
            if bytes > PAGE_BYTES && count > 0 {
                break;
            }
            count += 1;
        }
        let next = (from + count < self.calls.len()).then(|| (from + count).to_string());
        Some((self.calls.drain(from..from + count).collect(), next))
    }
}

#[cfg(test)]
mod tests;
