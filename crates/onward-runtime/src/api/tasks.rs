//! Standalone tasks: tasks that a caller queues without a workflow.
//!
//! Each is a run of a reserved kind that waits for its one task (R9), so ids, namespaces, retention and results are those of
//! runs. `onward-core` decides what a start, a result and a cancellation do, in one write each.

use onward_core::event::{RunCanceled, RunStarted, StandaloneTask};
use onward_core::run::{Input, NewRun, Refusal};
use onward_core::task::{Task, TaskOptions, TaskState};
use onward_core::trace::TraceContext;
use onward_core::{Event, Failure, Index, Name, Payload, Record, RunHead, RunKey, Status, TASK_KIND_PREFIX, view};
use onward_store::{Appended, Started, StoreError, TaskQuery};

use crate::api::runs::{check_id, check_text};
use crate::api::watch::OutcomeWatch;
use crate::schemas::depth::check_payload;
use crate::{Runtime, RuntimeError};

/// A request to queue a standalone task.
#[derive(Debug, Clone, PartialEq)]
pub struct StartTask {
    /// A repeat with the same key, kind and input is the same task.
    pub key: RunKey,
    pub kind: Name,
    pub input: Payload,
    pub options: TaskOptions,
    /// Trace context of the caller, as a `traceparent`; an invalid value is ignored.
    pub trace: Option<String>,
}

/// The current view of a standalone task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskView {
    pub head: RunHead,
    pub kind: Name,
    pub input: Payload,
    pub options: TaskOptions,
    pub state: TaskWord,
    /// Number of attempts that were started.
    pub attempts: u32,
    /// Failure of the attempt before the current one.
    pub last_failure: Option<Failure>,
    /// The latest progress that the worker reported.
    pub progress: Option<Payload>,
    pub outcome: Option<Result<Payload, Failure>>,
}

/// The state of a standalone task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskWord {
    /// Waits for a worker or for its next attempt.
    Queued,
    Running,
    /// Off its queue because it lost too many workers; an operator decides.
    Quarantined,
    Completed,
    Failed,
    Canceled,
    Terminated,
}

impl TaskWord {
    pub const ALL: [TaskWord; 7] = [
        TaskWord::Queued,
        TaskWord::Running,
        TaskWord::Quarantined,
        TaskWord::Completed,
        TaskWord::Failed,
        TaskWord::Canceled,
        TaskWord::Terminated,
    ];

    /// Returns the stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            TaskWord::Queued => "queued",
            TaskWord::Running => "running",
            TaskWord::Quarantined => "quarantined",
            TaskWord::Completed => "completed",
            TaskWord::Failed => "failed",
            TaskWord::Canceled => "canceled",
            TaskWord::Terminated => "terminated",
        }
    }

    pub fn from_word(word: &str) -> Option<TaskWord> {
        TaskWord::ALL.into_iter().find(|known| known.as_str() == word)
    }

    fn of(status: Status, task: Option<&Task>) -> TaskWord {
        match (status, task.map(|task| task.state)) {
            (Status::Completed, _) => TaskWord::Completed,
            (Status::Failed, _) => TaskWord::Failed,
            (Status::Canceled, _) => TaskWord::Canceled,
            (Status::Terminated, _) => TaskWord::Terminated,
            (_, Some(TaskState::Leased)) => TaskWord::Running,
            (_, Some(TaskState::Quarantined)) => TaskWord::Quarantined,
            _ => TaskWord::Queued,
        }
    }
}

impl Runtime {
    /// Queues a standalone task, or returns the existing one. Durable when it returns; cancel-safe.
    pub async fn start_task(&self, start: StartTask) -> Result<Started, RuntimeError> {
        let StartTask { key, kind, input, options, trace } = start;
        if let Some(key) = &options.idempotency_key {
            check_id("idempotency key", key)?;
        }
        if kind.as_str().starts_with(TASK_KIND_PREFIX) {
            return Err(RuntimeError::KindReserved { kind });
        }
        check_payload(&input)?;
        let run_kind = Name::new(format!("{TASK_KIND_PREFIX}{kind}"))?;
        let trace = trace.filter(|trace| TraceContext::parse(trace).is_some());
        let task = Some(StandaloneTask { kind: kind.clone(), options });
        let started = RunStarted { task, trace, ..RunStarted::new(run_kind, input, 0) };
        if let Some(kind) = started.internal_task() {
            return Err(RuntimeError::KindInternal { kind: kind.clone() }); // IK1
        }
        self.check_input(&key, (true, kind, None), &started.input).await?;
        Ok(self.store().start_run(NewRun { key, started, signal: None }, None).await?)
    }

    /// Queues a task like [`Runtime::start_task`] and returns a watch that cannot miss its end.
    pub async fn start_task_and_watch(&self, start: StartTask) -> Result<(Started, OutcomeWatch), RuntimeError> {
        let watch = self.watch_outcome(&start.key);
        let started = self.start_task(start).await?;
        Ok((started, watch))
    }

    /// Reads a standalone task. Fails with `task_not_found` if the run is none.
    pub async fn read_task(&self, key: &RunKey) -> Result<TaskView, RuntimeError> {
        loop {
            let head = self.task_head(key).await?;
            let first = self.store().read_log(key.clone(), None, Index(0), 1).await?;
            let last = self.store().read_log(key.clone(), None, Index(head.next_index.0 - 1), 2).await?;
            let query = TaskQuery { namespace: key.namespace.clone(), run: Some(key.clone()), ..TaskQuery::default() };
            let task = self.store().list_tasks(query).await?.into_iter().next();
            // The task ended, or was deleted and started again, during the read.
            let ends_there = last.last().is_some_and(|record| record.next_index() == head.next_index);
            let whole = ends_there && task.is_some() != head.status.is_closed();
            let (first, last) = (first.first(), last.last().filter(|record| record.ends_log()));
            if let Some(view) = first.filter(|_| whole).and_then(|first| TaskView::fold(head, first, last, task)) {
                return Ok(view);
            }
        }
    }

    /// Cancels a standalone task: it ends at once, and a worker that executes it is notified.
    pub async fn cancel_task(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        check_text("reason", reason)?;
        self.task_head(key).await?;
        self.end_task(key, reason).await
    }

    pub(crate) async fn end_task(&self, key: &RunKey, reason: &str) -> Result<Appended, RuntimeError> {
        let colon = if reason.is_empty() { "" } else { ": " };
        let failure = Failure { retryable: false, ..Failure::new("canceled", format!("the task was canceled{colon}{reason}")) };
        self.append(key, Input::new(Event::RunCanceled(RunCanceled { failure }))).await
    }

    async fn task_head(&self, key: &RunKey) -> Result<RunHead, RuntimeError> {
        let not_found = || RuntimeError::TaskNotFound { key: key.clone() };
        match self.read_head(key).await {
            Ok(head) if head.is_task => Ok(head),
            Ok(_) | Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => Err(not_found()),
            Err(error) => Err(error),
        }
    }
}

/// Fails for a standalone task, which has no workflow code.
pub(crate) fn refuse_task(head: &RunHead) -> Result<(), RuntimeError> {
    match head.is_task {
        true => Err(StoreError::from(Refusal::IsTask { key: head.key.clone() }).into()),
        false => Ok(()),
    }
}

impl TaskView {
    fn fold(head: RunHead, first: &Record, end: Option<&Record>, task: Option<Task>) -> Option<TaskView> {
        let RunStarted { input, task: Some(started), .. } = first.started()? else { return None };
        let attempts = match (end.and_then(|record| record.events.last()), &task) {
            (Some(Event::RunCompleted(end)), _) => end.attempts.unwrap_or_default(),
            (Some(Event::RunFailed(end)), _) => end.attempts.unwrap_or_default(),
            // While the task waits, `attempt` is the number of the next attempt.
            (_, Some(task)) if task.state != TaskState::Leased => task.attempt - 1,
            (_, task) => task.as_ref().map_or(0, |task| task.attempt),
        };
        Some(TaskView {
            state: TaskWord::of(head.status, task.as_ref()),
            kind: started.kind.clone(),
            input: input.clone(),
            options: started.options.clone(),
            attempts,
            last_failure: task.as_ref().and_then(|task| task.last_failure.clone()),
            progress: task.and_then(|task| task.progress),
            outcome: end.and_then(view::outcome),
            head,
        })
    }
}
