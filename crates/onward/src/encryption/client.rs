//! The client with payload encoding.

use std::sync::Arc;
use std::time::Duration;

use onward_core::budget::Budget;
use onward_core::event::RunPaused;
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::reopen::Retry;
use onward_core::run::Wait;
use onward_core::stream::StreamSaid;
use onward_core::task::Task;
use onward_core::view::RunView;
use onward_core::{Failure, Index, Name, Namespace, Payload, Record, RunHead, RunKey};
use onward_runtime::{
    AppendEntry, AppendedEntry, Blocker, BranchRun, Bulk, BulkDone, CallRef, Changes, Client, ClientFuture, Decide, Emitted,
    ForkRun, Outcome, PendingReason, QueueInfo, RuntimeError, SendSignal, StartRun, StartTask, StreamPage, TaskView, WorkerInfo,
};
use onward_store::{
    Appended, DeletedQuery, DeletedRun, Restored, RunPage, RunQuery, Started, TaskQuery, VersionCount, WaitQuery,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{CodecError, Direction, EncryptionBoundary, Makers, Passed, PayloadContext};

/// Number of emitted values that a slow listener may fall behind.
const BEHIND_MAX: usize = 256;

pub(crate) struct EncryptedClient {
    inner: Arc<dyn Client>,
    boundary: EncryptionBoundary,
}

impl EncryptedClient {
    pub fn new(inner: Arc<dyn Client>, boundary: EncryptionBoundary) -> EncryptedClient {
        EncryptedClient { inner, boundary }
    }

    /// Decodes in the run's own context and, if that fails, in those of the runs that its log was copied from.
    async fn take_in(
        &self,
        run: &RunKey,
        generation: u32,
        mut decode: impl FnMut(&Makers) -> Passed,
    ) -> Result<(), RuntimeError> {
        let Err(error) = decode(&Makers::of(run, None)) else { return Ok(()) };
        let first = self.inner.read_log(run.clone(), Some(generation), Index(0), 1).await?;
        let mut makers = Makers::of(run, first.first());
        self.add_originals(run, &mut makers).await?;
        if makers.is_alone() { Err(told(error)) } else { decode(&makers).map_err(told) }
    }

    async fn add_originals(&self, run: &RunKey, makers: &mut Makers) -> Result<(), RuntimeError> {
        let first_of = async |run| match self.inner.read_log(run, Some(0), Index(0), 1).await {
            Err(error) if error.code() == "run_not_found" => Ok(None), // it was deleted
            read => Ok(read?.into_iter().next()),
        };
        makers.add_originals(run, first_of).await
    }
}

fn told(error: CodecError) -> RuntimeError {
    RuntimeError::PayloadUnreadable { why: error.to_string() }
}

fn outcome_in(
    boundary: &EncryptionBoundary,
    key: &RunKey,
    mut outcome: Result<Payload, Failure>,
) -> Result<Result<Payload, Failure>, RuntimeError> {
    boundary.result(Direction::In, &mut outcome, &[PayloadContext::of(key, "outcome")]).map_err(told)?;
    Ok(outcome)
}

fn signal_out(boundary: &EncryptionBoundary, key: &RunKey, signal: &mut SendSignal) -> Passed {
    boundary.payload(Direction::Out, &mut signal.payload, &[PayloadContext::of(key, "signal")])
}

fn view_in(boundary: &EncryptionBoundary, view: &mut RunView, makers: &Makers) -> Passed {
    boundary.payload(Direction::In, &mut view.input, &makers.contexts("input"))?;
    let (states, signals) = (makers.contexts("state"), makers.contexts("signal"));
    view.state.values_mut().try_for_each(|value| boundary.payload(Direction::In, value, &states))?;
    view.undelivered
        .iter_mut()
        .try_for_each(|signal| boundary.signal(Direction::In, &signal.name, &mut signal.payload, &signals))?;
    if let Some(outcome) = &mut view.outcome {
        boundary.result(Direction::In, outcome, &makers.contexts("outcome"))?;
    }
    view.pause.as_mut().map_or(Ok(()), |pause| boundary.pause(Direction::In, &makers.runs, pause))
}

fn frame_in(boundary: &EncryptionBoundary, key: &RunKey, said: &mut StreamSaid) -> Passed {
    match said {
        StreamSaid::Spoken(spoken) => boundary.payload(Direction::In, &mut spoken.frame, &[PayloadContext::of(key, "streamed")]),
        StreamSaid::AttemptFailed(failed) => {
            boundary.failure(Direction::In, &mut failed.failure, &[PayloadContext::of(key, "report")])
        }
        StreamSaid::ApprovalRequested(said) => {
            boundary.maybe(Direction::In, &mut said.requested.show, &[PayloadContext::of(key, "show")])
        }
        StreamSaid::Paused(pause) => boundary.pause(Direction::In, std::slice::from_ref(key), pause),
        _ => Ok(()),
    }
}

fn task_in(boundary: &EncryptionBoundary, view: &mut TaskView) -> Passed {
    let key = view.head.key.clone();
    boundary.payload(Direction::In, &mut view.input, &[PayloadContext::of(&key, "input")])?;
    boundary.maybe(Direction::In, &mut view.progress, &[PayloadContext::of(&key, "report")])?;
    if let Some(failure) = &mut view.last_failure {
        boundary.failure(Direction::In, failure, &[PayloadContext::of(&key, "report")])?;
    }
    view.outcome
        .as_mut()
        .map_or(Ok(()), |outcome| boundary.result(Direction::In, outcome, &[PayloadContext::of(&key, "outcome")]))
}

/// Waits for a run's end and decodes the outcome.
struct CodedOutcome {
    inner: Arc<dyn Outcome>,
    boundary: EncryptionBoundary,
    key: RunKey,
}

impl Outcome for CodedOutcome {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { outcome_in(&self.boundary, &self.key, self.inner.outcome().await?) })
    }
}

impl Client for EncryptedClient {
    fn start_and_watch(&self, mut start: StartRun) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let key = start.key.clone();
            self.boundary.payload(Direction::Out, &mut start.input, &[PayloadContext::of(&key, "input")]).map_err(told)?;
            if let Some(signal) = &mut start.signal {
                signal_out(&self.boundary, &key, signal).map_err(told)?;
            }
            let (started, inner) = self.inner.start_and_watch(start).await?;
            Ok((started, Arc::new(CodedOutcome { inner, boundary: self.boundary.clone(), key }) as Arc<dyn Outcome>))
        })
    }

    fn start_task(&self, mut start: StartTask) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let key = start.key.clone();
            // Read by clients of the run and by the worker that executes the task.
            let contexts = [PayloadContext::of(&key, "input"), PayloadContext::of(&key, "task")];
            self.boundary.payload(Direction::Out, &mut start.input, &contexts).map_err(told)?;
            let (started, inner) = self.inner.start_task(start).await?;
            Ok((started, Arc::new(CodedOutcome { inner, boundary: self.boundary.clone(), key }) as Arc<dyn Outcome>))
        })
    }

    fn read_task(&self, key: RunKey) -> ClientFuture<'_, TaskView> {
        Box::pin(async move {
            let mut view = self.inner.read_task(key).await?;
            task_in(&self.boundary, &mut view).map_err(told)?;
            Ok(view)
        })
    }

    fn cancel_task(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        self.inner.cancel_task(key, reason)
    }

    fn wait_for_outcome(&self, key: RunKey) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { outcome_in(&self.boundary, &key, self.inner.wait_for_outcome(key.clone()).await?) })
    }

    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>> {
        self.inner.watch_run(key)
    }

    fn read_head(&self, key: RunKey) -> ClientFuture<'_, RunHead> {
        self.inner.read_head(key)
    }

    fn read_run(&self, key: RunKey) -> ClientFuture<'_, RunView> {
        Box::pin(async move {
            let mut view = self.inner.read_run(key.clone()).await?;
            let generation = view.head.generation;
            self.take_in(&key, generation, |makers| view_in(&self.boundary, &mut view, makers)).await?;
            Ok(view)
        })
    }

    fn why_pending(&self, key: RunKey) -> ClientFuture<'_, Option<PendingReason>> {
        self.inner.why_pending(key)
    }

    fn blocked_on(&self, key: RunKey) -> ClientFuture<'_, Vec<Blocker>> {
        self.inner.blocked_on(key)
    }

    fn list_deleted(&self, query: DeletedQuery) -> ClientFuture<'_, Vec<DeletedRun>> {
        self.inner.list_deleted(query)
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> ClientFuture<'_, Vec<Record>> {
        Box::pin(async move {
            let read = async || self.inner.read_log(key.clone(), generation, from, limit).await;
            let decode = |mut records: Vec<Record>, makers: &Makers| {
                records.iter_mut().try_for_each(|record| self.boundary.record_in(record, makers)).map(|()| records)
            };
            let records = read().await?;
            // A part of a log does not name the runs that it was copied from.
            let first = match from {
                Index(0) => None,
                _ => Some(self.inner.read_log(key.clone(), generation, Index(0), 1).await?),
            };
            let mut makers = Makers::of(&key, first.as_ref().unwrap_or(&records).first());
            if let Ok(records) = decode(records, &makers) {
                return Ok(records);
            }
            self.add_originals(&key, &mut makers).await?;
            decode(read().await?, &makers).map_err(told)
        })
    }

    fn put_entry(&self, key: RunKey, mut append: AppendEntry) -> ClientFuture<'_, AppendedEntry> {
        Box::pin(async move {
            self.boundary.payload(Direction::Out, &mut append.content, &[PayloadContext::of(&key, "signal")]).map_err(told)?;
            self.inner.put_entry(key, append).await
        })
    }

    fn branch_run(&self, key: RunKey, mut branch: BranchRun) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            if let Some(entry) = &mut branch.entry {
                self.boundary.payload(Direction::Out, &mut entry.content, &[PayloadContext::of(&key, "entry")]).map_err(told)?;
            }
            self.inner.branch_run(key, branch).await
        })
    }

    fn list_runs(&self, query: RunQuery) -> ClientFuture<'_, RunPage> {
        self.inner.list_runs(query)
    }

    fn signal_run(&self, key: RunKey, mut signal: SendSignal) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            signal_out(&self.boundary, &key, &mut signal).map_err(told)?;
            self.inner.signal_run(key, signal).await
        })
    }

    fn cancel_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        self.inner.cancel_run(key, reason)
    }

    fn terminate_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        self.inner.terminate_run(key, reason)
    }

    fn pause_run(&self, key: RunKey, pause: RunPaused) -> ClientFuture<'_, Appended> {
        self.inner.pause_run(key, pause)
    }

    fn resume_run(&self, key: RunKey, budget: Option<Budget>) -> ClientFuture<'_, Appended> {
        self.inner.resume_run(key, budget)
    }

    fn list_versions(&self, namespace: Namespace) -> ClientFuture<'_, Vec<VersionCount>> {
        self.inner.list_versions(namespace)
    }

    fn read_spend(&self, query: SpendQuery) -> ClientFuture<'_, Vec<SpendRow>> {
        self.inner.read_spend(query)
    }

    fn retry_run(&self, key: RunKey, retry: Retry) -> ClientFuture<'_, Restored> {
        self.inner.retry_run(key, retry)
    }

    fn fork_run(&self, key: RunKey, fork: ForkRun) -> ClientFuture<'_, Restored> {
        self.inner.fork_run(key, fork)
    }

    fn bulk_runs(&self, bulk: Bulk) -> ClientFuture<'_, BulkDone> {
        self.inner.bulk_runs(bulk)
    }

    fn delete_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, ()> {
        self.inner.delete_run(key, reason)
    }

    fn update_run(
        &self,
        key: RunKey,
        update_id: String,
        name: Name,
        mut payload: Payload,
    ) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move {
            self.boundary.payload(Direction::Out, &mut payload, &[PayloadContext::of(&key, "update")]).map_err(told)?;
            let mut answer = self.inner.update_run(key.clone(), update_id, name, payload).await?;
            self.boundary.result(Direction::In, &mut answer, &[PayloadContext::of(&key, "answer")]).map_err(told)?;
            Ok(answer)
        })
    }

    fn query_run(&self, key: RunKey, name: Name, mut input: Payload) -> ClientFuture<'_, Option<Result<Payload, Failure>>> {
        Box::pin(async move {
            let context = [PayloadContext::of(&key, "query")];
            self.boundary.payload(Direction::Out, &mut input, &context).map_err(told)?;
            let mut answer = self.inner.query_run(key, name, input).await?;
            if let Some(result) = &mut answer {
                self.boundary.result(Direction::In, result, &context).map_err(told)?;
            }
            Ok(answer)
        })
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        let (mut inner, boundary, context) =
            (self.inner.listen(key), self.boundary.clone(), [PayloadContext::of(key, "emitted")]);
        tokio::spawn(async move {
            loop {
                match inner.recv().await {
                    // An undecodable value comes from a process with another codec.
                    Ok(mut emitted) => {
                        let is_readable = boundary.payload(Direction::In, &mut emitted.value, &context).is_ok();
                        if is_readable && sender.send(emitted).is_err() {
                            return; // no listener is left
                        }
                    }
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return,
                }
            }
        });
        receiver
    }

    fn read_stream(&self, key: RunKey, from: Option<String>, wait: Duration) -> ClientFuture<'_, StreamPage> {
        Box::pin(async move {
            let mut page = self.inner.read_stream(key.clone(), from, wait).await?;
            // An undecodable frame comes from a process with another codec.
            page.frames.retain_mut(|frame| frame_in(&self.boundary, &key, &mut frame.said).is_ok());
            Ok(page)
        })
    }

    fn list_approvals(&self, query: WaitQuery) -> ClientFuture<'_, Vec<Wait>> {
        Box::pin(async move {
            let mut waits = self.inner.list_approvals(query).await?;
            for wait in &mut waits {
                let (run, generation) = (wait.run.clone(), wait.generation);
                let show = &mut wait.show;
                self.take_in(&run, generation, |makers| self.boundary.maybe(Direction::In, show, &makers.contexts("show")))
                    .await?;
            }
            Ok(waits)
        })
    }

    fn decide_approval(&self, call: CallRef, decide: Decide) -> ClientFuture<'_, Appended> {
        self.inner.decide_approval(call, decide)
    }

    fn resolve_promise(
        &self,
        call: CallRef,
        mut result: Result<Payload, Failure>,
        resolution_id: String,
    ) -> ClientFuture<'_, Appended> {
        Box::pin(async move {
            self.boundary.result(Direction::Out, &mut result, &[PayloadContext::of(&call.run, "promise")]).map_err(told)?;
            self.inner.resolve_promise(call, result, resolution_id).await
        })
    }

    fn list_workers(&self, namespace: Namespace) -> ClientFuture<'_, Vec<WorkerInfo>> {
        self.inner.list_workers(namespace)
    }

    fn list_queues(&self, namespace: Namespace) -> ClientFuture<'_, Vec<QueueInfo>> {
        self.inner.list_queues(namespace)
    }

    fn retry_task(&self, call: CallRef) -> ClientFuture<'_, ()> {
        self.inner.retry_task(call)
    }

    fn list_quarantined(&self, query: TaskQuery) -> ClientFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let mut tasks = self.inner.list_quarantined(query).await?;
            for task in &mut tasks {
                let (run, generation) = (task.id.run.clone(), task.id.generation);
                let input = &mut task.input;
                self.take_in(&run, generation, |makers| self.boundary.payload(Direction::In, input, &makers.contexts("task")))
                    .await?;
            }
            Ok(tasks)
        })
    }
}
