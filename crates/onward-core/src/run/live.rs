//! The live view of a run: its log, and what is under way and not in the log.
//!
//! A [`LiveFrame`] is either a record of the log, or derived from one, or a notice of a worker or a server. Must never be needed
//! to know what a run did: a reader that misses notices learns the outcome of every call from the log.
//!
//! Invariants:
//! - LV1: no frame but [`LiveContent::Log`] has a position; a reader continues after the last record that it got.
//! - LV2: `step_attempt_failed` and `state_changed` derive from one event each, and follow its record.
//! - LV3: a table of active calls never has an attempt that the log has ended.

use std::collections::BTreeMap;

use crate::api::{Blocker, Emitted};
use crate::run::view::Awaited;
use crate::task::Task;
use crate::{CallId, Event, Failure, Index, Name, Payload, Record, RunKey, Status, Timestamp, WorkerId};
use crate::{choice, message, numbered};

/// Number of ended calls that a table remembers, to ignore late notices about them.
const ENDED_MAX: usize = 10_000;

numbered! {
    /// The readers of an emitted value.
    #[derive(Default)]
    pub enum Audience {
        /// Everyone who may read the run.
        #[default]
        0 => Public / "public",
        /// Operators only.
        1 => Internal / "internal",
    }
}

impl Audience {
    pub fn is_public(&self) -> bool {
        *self == Audience::Public
    }
}

numbered! {
    pub enum ActiveType {
        0 => Step / "step",
        1 => Task / "task",
    }
}

message! {
    /// A call that a worker executes now.
    pub struct ActiveCall {
        1 => generation: u32,
        2 => call_id: CallId,
        #[serde(rename = "type")]
        3 => of_type: ActiveType,
        /// The name of the step or the kind of the task.
        4 => name: Name,
        5 => attempt: u32,
        6 => started_at: Timestamp,
        /// The input of a step, if it is recorded.
        7 => input: Option<Payload>,
        8 => worker: Option<WorkerId>,
        /// The latest progress of a task.
        9 => progress: Option<Payload>,
    }

    /// A report of a worker about the steps of a run that it holds.
    pub struct StepsReport {
        1 => run: RunKey,
        2 => generation: u32,
        /// The report lists all steps under way; otherwise only steps that have just started.
        3 => is_complete: bool,
        4 => steps: Vec<RunningStep>,
    }

    /// An attempt of a step that is under way.
    pub struct RunningStep {
        1 => call_id: CallId,
        2 => name: Name,
        3 => attempt: u32,
        4 => started_at: Timestamp,
        /// The input, if it is recorded.
        5 => input: Option<Payload>,
    }

    /// One frame of the live view of a run.
    pub struct LiveFrame { 1 => at: Timestamp, 2 => content: LiveContent }
}

choice! {
    /// The content of a live frame.
    pub enum LiveContent {
        /// What is under way; always the first frame.
        1 => Snapshot / "snapshot": RunUnderWay,
        /// A record of the log.
        2 => Log / "log": LiveRecord,
        3 => StepStarted / "step_started": StepStarted,
        4 => StepAttemptFailed / "step_attempt_failed": StepAttemptFailed,
        5 => StateChanged / "state_changed": StateChanged,
        6 => TaskStarted / "task_started": TaskStarted,
        7 => TaskProgress / "task_progress": TaskProgress,
        8 => Emitted / "emitted": Emitted,
        /// The status of the run, or what it waits for, has changed.
        9 => Blocked / "blocked": RunBlocked,
        /// The run is closed; the last frame.
        10 => End / "end": RunEnd,
        /// The reader was too slow and missed frames; the last frame.
        11 => Dropped / "dropped": ReaderDropped,
    }
}

message! {
    pub struct RunUnderWay {
        1 => generation: u32,
        /// The end of the log.
        2 => next_index: Index,
        3 => status: Status,
        /// A sentence: what the run does or waits for.
        4 => doing: String,
        5 => blocked_on: Vec<Blocker>,
        6 => awaiting: Vec<Awaited>,
        7 => active: Vec<ActiveCall>,
    }

    pub struct LiveRecord {
        1 => generation: u32,
        /// Begins at the first event that the reader has not got.
        2 => record: Record,
    }

    pub struct StepStarted { 1 => generation: u32, 2 => step: RunningStep }

    pub struct StepAttemptFailed {
        1 => generation: u32,
        2 => call_id: CallId,
        3 => name: Name,
        4 => attempt: u32,
        5 => failure: Failure,
        /// The time of the next attempt; absent if the failure is final.
        6 => next_attempt_at: Option<Timestamp>,
    }

    pub struct StateChanged {
        1 => generation: u32,
        2 => name: Name,
        /// Absent if the value was cleared.
        3 => value: Option<Payload>,
    }

    pub struct TaskStarted {
        1 => generation: u32,
        2 => call_id: CallId,
        3 => name: Name,
        4 => attempt: u32,
        5 => worker: Option<WorkerId>,
    }

    pub struct TaskProgress { 1 => generation: u32, 2 => call_id: CallId, 3 => name: Name, 4 => attempt: u32, 5 => progress: Payload }

    pub struct RunBlocked { 1 => status: Status, 2 => doing: String, 3 => blocked_on: Vec<Blocker>, 4 => awaiting: Vec<Awaited> }

    pub struct RunEnd {
        1 => status: Status,
        /// Absent for an external run.
        2 => outcome: Option<Result<Payload, Failure>>,
    }

    pub struct ReaderDropped {
        /// The last event that the reader got, to continue after it; absent if it got none.
        1 => cursor: Option<LogCursor>,
    }

    /// An event of a run.
    #[derive(Copy, Eq, PartialOrd, Ord)]
    pub struct LogCursor { 1 => generation: u32, 2 => index: Index }
}

impl std::fmt::Display for LogCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.generation, self.index.0)
    }
}

impl LiveFrame {
    /// Returns the last event of the log that the frame has.
    pub fn cursor(&self) -> Option<LogCursor> {
        match &self.content {
            LiveContent::Log(log) => Some(LogCursor { generation: log.generation, index: log.record.last_index() }),
            _ => None,
        }
    }

    /// Returns true if no frame follows.
    pub fn is_last(&self) -> bool {
        matches!(self.content, LiveContent::End(_) | LiveContent::Dropped(_))
    }

    /// Returns the failures in the frame.
    pub fn failures_mut(&mut self) -> Vec<&mut Failure> {
        match &mut self.content {
            LiveContent::Log(log) => log.record.events.iter_mut().filter_map(Event::failure_mut).collect(),
            LiveContent::StepAttemptFailed(failed) => vec![&mut failed.failure],
            LiveContent::End(RunEnd { outcome: Some(Err(failure)), .. }) => vec![failure],
            _ => Vec::new(),
        }
    }

    /// Returns the ids of workers in the frame.
    pub fn workers_mut(&mut self) -> Vec<&mut WorkerId> {
        match &mut self.content {
            LiveContent::Snapshot(snapshot) => snapshot.active.iter_mut().filter_map(|call| call.worker.as_mut()).collect(),
            LiveContent::TaskStarted(started) => started.worker.as_mut().into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

/// Returns the frames that derive from a record (LV2).
pub fn derived(generation: u32, record: &Record) -> Vec<LiveFrame> {
    let content = |event: &Event| match event {
        Event::StepFailed(event) => Some(LiveContent::StepAttemptFailed(StepAttemptFailed {
            generation,
            call_id: event.call_id.clone(),
            name: event.name.clone(),
            attempt: event.attempt,
            failure: event.failure.clone(),
            next_attempt_at: event.retry_at,
        })),
        Event::StateSet(event) => {
            let (name, value) = (event.key.clone(), Some(event.value.clone()));
            Some(LiveContent::StateChanged(StateChanged { generation, name, value }))
        }
        Event::StateCleared(event) => {
            Some(LiveContent::StateChanged(StateChanged { generation, name: event.key.clone(), value: None }))
        }
        _ => None,
    };
    let frame = |content| LiveFrame { at: record.at, content };
    record.events.iter().filter_map(content).map(frame).collect()
}

/// Returns the call that an event ends, and the attempt up to which no attempt of it is under way.
fn ended_by(event: &Event) -> Option<(&CallId, u32)> {
    match event {
        Event::StepCompleted(event) => Some((&event.call_id, u32::MAX)),
        Event::StepFailed(event) => Some((&event.call_id, event.retry_at.map_or(u32::MAX, |_| event.attempt))),
        Event::TaskCompleted(event) => Some((&event.call_id, u32::MAX)),
        Event::TaskFailed(event) => Some((&event.call_id, u32::MAX)),
        Event::TaskCanceled(event) => Some((&event.call_id, u32::MAX)),
        _ => None,
    }
}

impl ActiveCall {
    pub fn of_step(generation: u32, step: RunningStep) -> ActiveCall {
        let RunningStep { call_id, name, attempt, started_at, input } = step;
        let (of_type, worker, progress) = (ActiveType::Step, None, None);
        ActiveCall { generation, call_id, of_type, name, attempt, started_at, input, worker, progress }
    }

    pub fn of_task(task: Task) -> ActiveCall {
        let started_at = task.started_at.unwrap_or(task.scheduled_at);
        ActiveCall {
            generation: task.id.generation,
            call_id: task.id.call_id,
            of_type: ActiveType::Task,
            name: task.kind,
            attempt: task.attempt,
            started_at,
            input: None,
            worker: task.worker,
            progress: task.progress,
        }
    }
}

/// The calls of one generation that are under way, as one reader knows them.
#[derive(Debug, Default)]
pub struct ActiveTable {
    generation: u32,
    calls: BTreeMap<CallId, ActiveCall>,
    /// The attempts that the log has ended: the highest of each call.
    ended: BTreeMap<CallId, u32>,
}

impl ActiveTable {
    /// Adds a call. Returns false if the attempt is known already, or has ended (LV3).
    pub fn start(&mut self, call: ActiveCall) -> bool {
        self.turn_to(call.generation);
        let has_ended = self.ended.get(&call.call_id).is_some_and(|ended| call.attempt <= *ended);
        let is_known = self.calls.get(&call.call_id).is_some_and(|known| call.attempt <= known.attempt);
        if call.generation < self.generation || has_ended || is_known {
            return false;
        }
        self.calls.insert(call.call_id.clone(), call);
        true
    }

    /// Removes the steps that a complete report does not list: the code has dropped them.
    pub fn retain_steps(&mut self, report: &StepsReport) {
        let is_listed = |call: &ActiveCall| report.steps.iter().any(|step| step.call_id == call.call_id);
        if report.is_complete && report.generation == self.generation {
            self.calls.retain(|_, call| call.of_type != ActiveType::Step || is_listed(call));
        }
    }

    pub fn progress(&mut self, progress: &TaskProgress) {
        if let Some(call) = self.calls.get_mut(&progress.call_id).filter(|call| call.attempt == progress.attempt) {
            call.progress = Some(progress.progress.clone());
        }
    }

    /// Removes the calls that a record of the log ends.
    pub fn appended(&mut self, generation: u32, record: &Record) {
        self.turn_to(generation);
        if generation < self.generation {
            return;
        }
        for (call_id, attempt) in record.events.iter().filter_map(ended_by) {
            if self.ended.len() >= ENDED_MAX {
                self.ended.clear();
            }
            let ended = self.ended.entry(call_id.clone()).or_default();
            *ended = attempt.max(*ended);
            if self.calls.get(call_id).is_some_and(|call| call.attempt <= attempt) {
                self.calls.remove(call_id);
            }
        }
        if record.ends_log() {
            self.calls.clear();
        }
    }

    /// Returns true if the record ends an attempt of the call.
    pub fn is_ended_by(record: &Record, call: &CallId) -> bool {
        record.events.iter().filter_map(ended_by).any(|(call_id, _)| call_id == call)
    }

    /// Returns the calls, in the order of their call ids.
    pub fn calls(&self) -> Vec<ActiveCall> {
        self.calls.values().cloned().collect()
    }

    fn turn_to(&mut self, generation: u32) {
        if generation > self.generation {
            *self = ActiveTable { generation, ..ActiveTable::default() };
        }
    }
}

#[cfg(test)]
mod tests;
