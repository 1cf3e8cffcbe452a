//! Execution of tasks: one attempt each, reported once.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onward_core::spend::AttemptSpend;
use onward_core::stream::TaskFrames;
use onward_core::task::{MODEL_CALL, PANICKED, Task, TaskId, TaskReport};
use onward_core::{ErrorCode, Failure, Name, Payload};
use onward_runtime::WorkerConnection;
use onward_store::{Consequence, StoreError};
use tokio::sync::Semaphore;

use super::{Worker, log_lines};
use crate::Result;
use crate::host::code::panic_message;
use crate::registry::{Latest, check_output};
use crate::task::{Outbox, TaskCtx};
use crate::trace::AttemptTrace;

/// Delay before a failed report is retried.
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Interval at which frames of an attempt are sent: about the refresh rate of a screen.
const SPEECH_PACE: Duration = Duration::from_millis(33);

pub(super) async fn work(worker: Arc<Worker>) {
    if worker.registry.tasks.is_empty() {
        return;
    }
    let room = Arc::new(Semaphore::new(worker.options.tasks_max));
    loop {
        // Claims only as many tasks as can start: a task waiting here would use up its lease.
        drop(room.acquire().await);
        for task in worker.connection.next_tasks(room.available_permits().max(1)).await {
            let Ok(permit) = room.clone().acquire_owned().await else { return };
            let worker = worker.clone();
            worker.attempts.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                attempt(&worker, task).await;
                drop(permit);
                worker.attempts.fetch_sub(1, Ordering::SeqCst);
                worker.idle.notify_waiters();
            });
        }
    }
}

async fn attempt(worker: &Worker, task: Task) {
    let attempt_trace = AttemptTrace::begin(worker.shared.tracing.as_ref(), &*worker.connection, &task).await;
    let ctx = TaskCtx::new(&task, worker.library.clone(), attempt_trace.context(), &worker.shared);
    let (id, claim, attempt, kind) = (task.id.clone(), task.claim, task.attempt, task.kind.clone());
    let about = task.attempt_spend(Vec::new());
    let spend = || AttemptSpend { lines: ctx.spent(), ..about.clone() };
    let mut stopping = worker.stopping.subscribe();
    let run = run(worker, task, ctx.clone());
    let beats = async {
        loop {
            let progress = ctx.beat().await;
            // A failed heartbeat is no reason to stop: the lease decides.
            drop(worker.connection.report_task(id.clone(), claim, TaskReport::Heartbeat { progress }).await);
        }
    };
    let sender = StreamSender { connection: &*worker.connection, task: id.clone(), claim, attempt, outbox: ctx.outbox() };
    let result = tokio::select! {
        biased;
        result = run => result,
        () = sender.run() => return,
        () = worker.connection.task_over(id.clone(), claim) => {
            ctx.set_canceled();
            return report_late_cost(worker, id, claim, spend()).await;
        }
        () = beats => return,
        () = async { drop(stopping.wait_for(|stopping| *stopping).await) } => {
            // The attempt is dropped with `run`. If the report is not accepted, the lease expires.
            drop(worker.connection.report_task(id, claim, TaskReport::Interrupted.with_spend(spend())).await);
            return;
        }
    };
    sender.flush(); // before the outcome of the attempt is reported
    let failed = result.as_ref().err().map(|failure| failure.code.clone());
    let schema = worker.registry.checks(&Latest::Task(kind.clone())).output;
    let mut report = match result.and_then(|output| check_output(schema.as_deref(), "the output", output)) {
        Ok(output) => TaskReport::Completed(output),
        Err(failure) => TaskReport::Failed(failure),
    };
    loop {
        match worker.connection.report_task(id.clone(), claim, report.clone().with_spend(spend())).await {
            Err(error) if retries(&error) => tokio::time::sleep(RETRY_DELAY).await,
            Err(error) if error.code() == ErrorCode::PayloadTooLarge => report = TaskReport::Failed(too_large(&kind, &error)),
            Ok(()) => return attempt_trace.export(failed, &ctx.spent()), // O1
            // Too late: the attempt was given up, and the task's outcome is decided elsewhere.
            Err(error) if error.code() == ErrorCode::TaskAttemptOver => return,
            // The report can never be accepted. The attempt ends with its lease, and this log line is the only trace of the
            // reason.
            Err(error) => return log_lines::report_refused(&id, &kind, attempt, &error),
        }
    }
}

/// Returns the failure of an attempt whose result is over the payload limit of the store. It is final: another attempt would
/// have the same result, and a model call would be billed again.
fn too_large(kind: &Name, error: &StoreError) -> Failure {
    match kind.as_str().strip_prefix(MODEL_CALL) {
        Some(model) => {
            let message = format!("the answer of model `{model}` cannot be recorded: {error}; lower `max_tokens`");
            Failure::fatal(message).with_code(ErrorCode::ModelAnswerTooLarge)
        }
        None => {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            Failure::fatal(format!("{error}{hint}")).with_code(error.code())
        }
    }
}

/// Reports the cost of an attempt whose result is no longer needed.
async fn report_late_cost(worker: &Worker, id: TaskId, claim: u64, spend: AttemptSpend) {
    if spend.lines.is_empty() {
        return;
    }
    let report = TaskReport::Interrupted.with_spend(spend);
    while let Err(error) = worker.connection.report_task(id.clone(), claim, report.clone()).await {
        if !retries(&error) {
            return; // usually `task_attempt_over`
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

fn retries(error: &StoreError) -> bool {
    error.consequence() == Consequence::Retry
}

/// Sends the stream frames of an attempt.
struct StreamSender<'a> {
    connection: &'a dyn WorkerConnection,
    task: TaskId,
    claim: u64,
    attempt: u32,
    outbox: &'a Outbox,
}

impl StreamSender<'_> {
    /// Sends the first frame at once, then the collected frames at intervals. Never returns.
    async fn run(&self) {
        loop {
            self.outbox.has_some().await;
            self.flush();
            tokio::time::sleep(SPEECH_PACE).await;
        }
    }

    fn flush(&self) {
        let frames = self.outbox.take();
        if frames.is_empty() {
            return;
        }
        let task_frames = TaskFrames { task: self.task.clone(), claim: self.claim, attempt: self.attempt, frames };
        if let Some(task_frames) = self.connection.push_frames(task_frames) {
            self.outbox.put_back(task_frames.frames);
        }
    }
}

async fn run(worker: &Worker, task: Task, ctx: TaskCtx) -> Result<Payload> {
    let Some(handler) = worker.registry.tasks.get(&task.kind).cloned() else {
        return Err(Failure::retryable(format!("task kind `{}` is not registered on this worker", task.kind)));
    };
    // The task may have been queued before any worker declared its kind internal.
    if task.ends_run && worker.registry.is_internal_task(&task.kind) {
        let message = format!("`{}` is internal: only runs may schedule it", task.kind);
        return Err(Failure::fatal(message).with_code(ErrorCode::KindInternal)); // IK1
    }
    let is_model = worker.registry.models.contains(&task.kind);
    let middlewares = worker.shared.middlewares.clone();
    let attempt = tokio::spawn(async move {
        let function = {
            let ctx = ctx.clone();
            move |input| handler(ctx, input)
        };
        AssertUnwindSafe(middlewares.task(&task, is_model, &ctx, function)).0.await
    });
    let _stop = AbortOnDrop(attempt.abort_handle());
    match attempt.await {
        Ok(result) => result,
        Err(error) => {
            let message = error.try_into_panic().map_or("the attempt was aborted".to_owned(), |panic| panic_message(&*panic));
            Err(Failure::new(PANICKED, format!("the task panicked: {message}")))
        }
    }
}

/// Aborts an attempt at its next await when its result is no longer awaited.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
