//! Standalone tasks: tasks that a caller queues without a workflow.
//!
//! Each is a run of a reserved kind that waits for its one task (R9), so ids, namespaces, retention and results are those of
//! runs. `onward-core` decides what a start, a result and a cancellation do, in one write each.

use onward_core::api::{StartTaskRequest, TaskStatus};
use onward_core::event::{RunCanceled, RunStarted, StandaloneTask};
use onward_core::run::run_queue::SLOT_KIND;
use onward_core::run::{Input, NewRun, Refusal};
use onward_core::task::{Task, TaskState};
use onward_core::trace::TraceContext;
use onward_core::{Event, Failure, Index, Name, Record, RunHead, RunKey, Status, TASK_KIND_PREFIX, view};
use onward_store::{Appended, Started, StoreError, TaskQuery};

use crate::api::runs::{check_id, check_text};
use crate::schemas::depth::check_payload;
use crate::schemas::run_queues::check_queue_name;
use crate::{Runtime, RuntimeError, TaskView};

fn status_of(status: Status, task: Option<&Task>) -> TaskStatus {
    match (status, task.map(|task| task.state)) {
        (Status::Completed, _) => TaskStatus::Completed,
        (Status::Failed, _) => TaskStatus::Failed,
        (Status::Canceled, _) => TaskStatus::Canceled,
        (Status::Terminated, _) => TaskStatus::Terminated,
        (_, Some(TaskState::Leased)) => TaskStatus::Running,
        (_, Some(TaskState::Quarantined)) => TaskStatus::Quarantined,
        _ => TaskStatus::Queued,
    }
}
impl Runtime {
    /// Queues a standalone task, or returns the existing one. Durable when it returns; cancel-safe.
    pub async fn start_task(&self, start: StartTaskRequest) -> Result<Started, RuntimeError> {
        let StartTaskRequest { task: key, kind, input, options, trace } = start;
        if let Some(key) = &options.idempotency_key {
            check_id("idempotency key", key)?;
        }
        check_queue_name(options.queue.as_ref())?;
        if kind.as_str().starts_with(TASK_KIND_PREFIX) || kind == *SLOT_KIND {
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
        let mut run = NewRun { key, started, signal: None };
        self.fill_start(&mut run).await;
        Ok(self.store().start_run(run, None).await?)
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
            if let Some(view) = first.filter(|_| whole).and_then(|first| fold(head, first, last, task)) {
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

/// Returns the view of a task from the ends of its log and its row.
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
        state: status_of(head.status, task.as_ref()),
        kind: started.kind.clone(),
        input: input.clone(),
        options: Box::new(started.options.clone()),
        attempts,
        last_failure: task.as_ref().and_then(|task| task.last_failure.clone()),
        progress: task.and_then(|task| task.progress),
        outcome: end.and_then(view::outcome),
        head,
    })
}
