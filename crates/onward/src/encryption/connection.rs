//! The worker connection with payload encoding.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::event::{ParentLink, RunPaused};
use onward_core::live::StepsReport;
use onward_core::run::{Commit, Committed};
use onward_core::stream::TaskFrames;
use onward_core::task::{RetryPolicy, Task, TaskId, TaskReport};
use onward_core::{Epoch, ErrorCode, Failure, Index, Record, RunKey, Timestamp};
use onward_runtime::{ConnectionFuture, DriveInput, Emitted, Inbox, Question, RuntimeError, WorkerConnection};
use onward_store::sync::lock;
use onward_store::{ClaimedOne, ClaimedRun, StoreError, StoreFuture};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::{CodecError, Direction, EncryptionBoundary, PayloadContext, PayloadRuns};

/// The failure code for a payload that no codec of this process can decode.
const UNREADABLE: ErrorCode = ErrorCode::PayloadUnreadable;

/// Limit of attempts by workers without the right codec, for tasks that are retried forever.
const UNREADABLE_RETRY: RetryPolicy = RetryPolicy::attempts(100);

/// Maximum overhead of a codec per payload: header, nonce, tag.
const CODEC_BYTES_MAX: usize = 1_024;

pub(crate) struct EncryptedConnection {
    inner: Arc<dyn WorkerConnection>,
    boundary: EncryptionBoundary,
    /// The calls of parents that runs in memory answer, with the epoch of the claim.
    parents: Mutex<HashMap<RunKey, (Epoch, ParentLink)>>,
    /// The standalone tasks in memory, whose outcome is also the outcome of their run.
    standalone: Mutex<BTreeSet<TaskId>>,
    tokio: Handle,
}

impl EncryptedConnection {
    pub fn new(inner: Arc<dyn WorkerConnection>, boundary: EncryptionBoundary) -> EncryptedConnection {
        EncryptedConnection { inner, boundary, parents: Mutex::default(), standalone: Mutex::default(), tokio: Handle::current() }
    }

    /// Returns the contexts in which a report may be read: as the answer of the call, or as the outcome of the run.
    fn report_homes(&self, id: &TaskId) -> Vec<PayloadContext> {
        let ends = lock(&self.standalone).contains(id).then(|| PayloadContext::of(&id.run, "outcome"));
        [PayloadContext::of(&id.run, "report")].into_iter().chain(ends).collect()
    }

    fn forget(&self, key: &RunKey, epoch: Epoch) {
        let mut parents = lock(&self.parents);
        if parents.get(key).is_some_and(|(known, _)| *known == epoch) {
            parents.remove(key);
        }
    }

    fn take_in(&self, run: &mut ClaimedRun) {
        if let Some(parent) = &run.head.parent {
            lock(&self.parents).insert(run.head.key.clone(), (run.head.epoch, parent.clone()));
        }
        // Records that cannot be decoded are read again by the driver, which reports the error.
        run.records = run.records.take().and_then(|records| {
            let payload_runs = PayloadRuns::of(&run.head.key, records.first());
            decode(&self.boundary, records, &run.head.key, &payload_runs).ok()
        });
    }

    async fn open_input(&self, task: &mut Task) -> Result<(), CodecError> {
        let own = self.boundary.payload(Direction::In, &mut task.input, &[PayloadContext::of(&task.id.run, "task")]);
        let Err(error) = own else { return Ok(()) };
        // A task that was rescheduled in a copied log was encoded for another run.
        let first = self.inner.read_log(task.id.run.clone(), Some(task.id.generation), Index(0), 1).await;
        let first = first.map_err(|_| error)?;
        let payload_runs = PayloadRuns::of(&task.id.run, first.first());
        self.boundary.payload(Direction::In, &mut task.input, &payload_runs.contexts("task"))
    }

    /// Decodes a task's input. A task whose input cannot be decoded here fails here.
    async fn take_in_task(&self, mut task: Task) -> Option<Task> {
        if task.ends_run {
            lock(&self.standalone).insert(task.id.clone());
        }
        // The failure of an earlier attempt helps the next one, but is not required.
        let contexts = self.report_homes(&task.id);
        task.last_failure = task.last_failure.take_if(|failure| self.boundary.failure(Direction::In, failure, &contexts).is_ok());
        let Err(error) = self.open_input(&mut task).await else { return Some(task) };
        let report = task.unbegun(TaskReport::Failed(unreadable_task(&task, &error)));
        // If the report is lost, the lease ends and the task is offered again.
        drop(self.inner.report_task(task.id, task.claim, report).await);
        None
    }
}

/// Returns the failure of an undecodable task. Even a task that is retried forever ends as failed, so that the problem becomes
/// visible.
fn unreadable_task(task: &Task, error: &CodecError) -> Failure {
    let failure = unreadable(error);
    if task.options.retry().attempts_max != 0 {
        return failure;
    }
    match UNREADABLE_RETRY.next_attempt(task.counted_attempt(), &failure, Timestamp(0)) {
        Some(delay) => failure.with_retry_after(Duration::from_millis(delay.0)),
        None => Failure { retryable: false, ..failure },
    }
}

fn unreadable(error: &CodecError) -> Failure {
    Failure::new(UNREADABLE, format!("a payload cannot be read here: {error}"))
}

fn decode(
    boundary: &EncryptionBoundary,
    mut records: Vec<Record>,
    key: &RunKey,
    payload_runs: &PayloadRuns,
) -> Result<Vec<Record>, StoreError> {
    for record in &mut records {
        let index = record.index;
        boundary.record_in(record, payload_runs).map_err(|error| StoreError::LogCorrupt {
            key: key.clone(),
            index,
            why: error.to_string(),
        })?;
    }
    Ok(records)
}

/// Returns the query with decoded input, for the code, and the receiver of its answer.
fn inside(boundary: &EncryptionBoundary, question: &Question) -> Result<(Question, oneshot::Receiver<Answer>), CodecError> {
    let (sender, receiver) = oneshot::channel();
    let mut input = question.input.clone();
    boundary.payload(Direction::In, &mut input, &[PayloadContext::of(&question.run, "query")])?;
    let (run, name) = (question.run.clone(), question.name.clone());
    Ok((Question { run, name, input, answer: sender }, receiver))
}

type Answer = Option<Result<onward_core::Payload, Failure>>;

/// Encodes and forwards the answer. If it is dropped, so is the query, which is then retried elsewhere.
async fn pass_on(boundary: EncryptionBoundary, question: Question, answered: oneshot::Receiver<Answer>) {
    let Ok(mut answer) = answered.await else { return };
    if let Some(result) = &mut answer
        && let Err(error) = boundary.result(Direction::Out, result, &[PayloadContext::of(&question.run, "query")])
    {
        *result = Err(unreadable(&error));
    }
    drop(question.answer.send(answer)); // the caller may have gone
}

impl WorkerConnection for EncryptedConnection {
    fn next_runs(&self, limit: usize) -> ConnectionFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move {
            let mut runs = self.inner.next_runs(limit).await;
            runs.iter_mut().for_each(|run| self.take_in(run));
            runs
        })
    }

    fn claim_run(&self, key: RunKey, mut delivery: DriveInput) -> ConnectionFuture<'_, Result<ClaimedOne, RuntimeError>> {
        Box::pin(async move {
            if let DriveInput::Signal(signal) = &mut delivery {
                let passed = self.boundary.payload(Direction::Out, &mut signal.payload, &[PayloadContext::of(&key, "signal")]);
                passed.map_err(|error| RuntimeError::PayloadUnreadable { why: error.to_string() })?;
            }
            let mut one = self.inner.claim_run(key, delivery).await?;
            one.claimed.iter_mut().for_each(|run| self.take_in(run));
            Ok(one)
        })
    }

    fn next_tasks(&self, limit: usize) -> ConnectionFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let mut tasks = Vec::new();
            while tasks.is_empty() {
                for task in self.inner.next_tasks(limit).await {
                    tasks.extend(self.take_in_task(task).await);
                }
            }
            tasks
        })
    }

    fn next_questions(&self) -> ConnectionFuture<'_, Vec<Question>> {
        Box::pin(async move {
            let mut questions = Vec::new();
            for question in self.inner.next_questions().await {
                match inside(&self.boundary, &question) {
                    Ok((decoded, answered)) => {
                        self.tokio.spawn(pass_on(self.boundary.clone(), question, answered));
                        questions.push(decoded);
                    }
                    Err(error) => drop(question.answer.send(Some(Err(unreadable(&error))))),
                }
            }
            questions
        })
    }

    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        let (boundary, tokio) = (self.boundary.clone(), self.tokio.clone());
        let payload_runs = PayloadRuns::of(key, None);
        self.inner.open_inbox(key, epoch, Arc::new(CodedInbox { inner: inbox, boundary, payload_runs, tokio }));
    }

    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        self.forget(key, epoch);
        self.inner.close_inbox(key, epoch);
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>> {
        let (boundary, connection) = (self.boundary.clone(), self.inner.clone());
        Box::pin(async move {
            let read = || connection.read_log(key.clone(), generation, from, limit);
            let first_of = |run, generation| connection.read_log(run, generation, Index(0), 1);
            let records = read().await?;
            let mut payload_runs = match from {
                Index(0) => PayloadRuns::of(&key, records.first()),
                // A part of a log does not name the runs that it was copied from.
                _ => PayloadRuns::of(&key, first_of(key.clone(), generation).await?.first()),
            };
            if let Ok(records) = decode(&boundary, records, &key, &payload_runs) {
                return Ok(records);
            }
            let first_of = async |run| match first_of(run, Some(0)).await {
                Err(error) if error.code() == ErrorCode::RunNotFound => Ok::<_, StoreError>(None), // it was deleted
                read => Ok(read?.into_iter().next()),
            };
            payload_runs.add_originals(&key, first_of).await?;
            decode(&boundary, read().await?, &key, &payload_runs)
        })
    }

    fn commit(&self, mut commit: Commit) -> StoreFuture<'static, Committed> {
        let parent = lock(&self.parents).get(&commit.key).map(|(_, parent)| parent.clone());
        match self.boundary.commit_out(&mut commit, parent.as_ref()) {
            Ok(()) => self.inner.commit(commit),
            // Retried, so that results are not lost while a codec fails temporarily.
            Err(error) => Box::pin(std::future::ready(Err(StoreError::Unavailable { why: error.to_string() }))),
        }
    }

    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        self.forget(&key, epoch);
        self.inner.release(key, epoch)
    }

    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, mut report: RunPaused) -> StoreFuture<'static, ()> {
        if self.boundary.pause(Direction::Out, std::slice::from_ref(&key), &mut report).is_err() {
            // The run must pause; the reason is left out if it cannot be encrypted.
            (report.message, report.divergence) = ("the reason could not be encoded".to_owned(), None);
        }
        self.inner.pause(key, generation, epoch, report)
    }

    fn report_task(&self, id: TaskId, claim: u64, mut report: TaskReport) -> StoreFuture<'_, ()> {
        match self.boundary.report_out(&mut report, &self.report_homes(&id)) {
            Ok(()) => self.inner.report_task(id, claim, report),
            Err(error) => Box::pin(std::future::ready(Err(StoreError::Unavailable { why: error.to_string() }))),
        }
    }

    fn task_over(&self, id: TaskId, claim: u64) -> ConnectionFuture<'_, ()> {
        Box::pin(async move {
            self.inner.task_over(id.clone(), claim).await;
            lock(&self.standalone).remove(&id);
        })
    }

    fn emit(&self, key: &RunKey, mut emitted: Emitted) {
        // No response is expected; values that cannot be encoded are dropped.
        let context = [PayloadContext::of(key, "emitted")];
        let is_encoded = self.boundary.payload(Direction::Out, &mut emitted.value, &context).is_ok()
            && self.boundary.maybe(Direction::Out, &mut emitted.meta, &context).is_ok();
        if is_encoded {
            self.inner.emit(key, emitted);
        }
    }

    fn report_steps(&self, mut report: StepsReport) {
        let context = [PayloadContext::of(&report.run, "step")];
        for step in &mut report.steps {
            if self.boundary.maybe(Direction::Out, &mut step.input, &context).is_err() {
                step.input = None;
            }
        }
        self.inner.report_steps(report);
    }

    fn push_frames(&self, mut task_frames: TaskFrames) -> Option<TaskFrames> {
        // No response is expected; frames that cannot be encoded are dropped.
        let context = [PayloadContext::of(&task_frames.task.run, "streamed")];
        let open = task_frames.clone();
        task_frames.frames.retain_mut(|frame| self.boundary.payload(Direction::Out, &mut frame.frame, &context).is_ok());
        self.inner.push_frames(task_frames).map(|_| open)
    }

    fn payload_bytes_max(&self) -> usize {
        self.inner.payload_bytes_max().saturating_sub(CODEC_BYTES_MAX)
    }

    fn leave(&self) -> ConnectionFuture<'_, ()> {
        self.inner.leave()
    }
}

/// Decodes records that are pushed to a run in memory.
struct CodedInbox {
    inner: Arc<dyn Inbox>,
    boundary: EncryptionBoundary,
    payload_runs: PayloadRuns,
    tokio: Handle,
}

impl Inbox for CodedInbox {
    fn push(&self, mut record: Record) {
        match self.boundary.record_in(&mut record, &self.payload_runs) {
            Ok(()) => self.inner.push(record),
            // Encoded for a run that this log was copied from, or damaged. Losing the lease makes a worker claim the run again
            // and read its log, which reports the error.
            Err(_) => self.inner.lost(),
        }
    }

    fn lost(&self) {
        self.inner.lost();
    }

    fn watch(&self, on: bool) -> bool {
        self.inner.watch(on)
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        let (decoded, answered) = match inside(&self.boundary, &question) {
            Ok(inside) => inside,
            Err(error) => {
                drop(question.answer.send(Some(Err(unreadable(&error)))));
                return Ok(());
            }
        };
        match self.inner.ask(decoded) {
            Ok(()) => {
                self.tokio.spawn(pass_on(self.boundary.clone(), question, answered));
                Ok(())
            }
            Err(_) => Err(question),
        }
    }
}
