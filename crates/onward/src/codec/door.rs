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
    AppendEntry, AppendedEntry, BranchRun, Bulk, BulkDone, CallId, Changes, Decide, Door, DoorFuture, Emitted, ForkRun,
    Hindrance, Outcome, QueueInfo, RuntimeError, SendSignal, StartRun, StartTask, StreamPage, TaskView, WhyPending, WorkerInfo,
};
use onward_store::{
    Appended, DeletedQuery, DeletedRun, Restored, RunPage, RunQuery, Started, TaskQuery, VersionCount, WaitQuery,
};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use super::{Border, CodecError, Home, Makers, Passed, Way};

/// Number of emitted values that a slow listener may fall behind.
const BEHIND_MAX: usize = 256;

pub(crate) struct CodedDoor {
    inner: Arc<dyn Door>,
    border: Border,
}

impl CodedDoor {
    pub fn new(inner: Arc<dyn Door>, border: Border) -> CodedDoor {
        CodedDoor { inner, border }
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
    border: &Border,
    key: &RunKey,
    mut outcome: Result<Payload, Failure>,
) -> Result<Result<Payload, Failure>, RuntimeError> {
    border.result(Way::In, &mut outcome, &[Home::of(key, "outcome")]).map_err(told)?;
    Ok(outcome)
}

fn signal_out(border: &Border, key: &RunKey, signal: &mut SendSignal) -> Passed {
    border.payload(Way::Out, &mut signal.payload, &[Home::of(key, "signal")])
}

fn view_in(border: &Border, view: &mut RunView, makers: &Makers) -> Passed {
    border.payload(Way::In, &mut view.input, &makers.homes("input"))?;
    let (states, signals) = (makers.homes("state"), makers.homes("signal"));
    view.state.values_mut().try_for_each(|value| border.payload(Way::In, value, &states))?;
    view.undelivered.iter_mut().try_for_each(|signal| border.signal(Way::In, &signal.name, &mut signal.payload, &signals))?;
    if let Some(outcome) = &mut view.outcome {
        border.result(Way::In, outcome, &makers.homes("outcome"))?;
    }
    view.pause.as_mut().map_or(Ok(()), |pause| border.pause(Way::In, &makers.runs, pause))
}

fn frame_in(border: &Border, key: &RunKey, said: &mut StreamSaid) -> Passed {
    match said {
        StreamSaid::Spoken(spoken) => border.payload(Way::In, &mut spoken.frame, &[Home::of(key, "streamed")]),
        StreamSaid::AttemptFailed(failed) => border.failure(Way::In, &mut failed.failure, &[Home::of(key, "report")]),
        StreamSaid::ApprovalRequested(said) => border.maybe(Way::In, &mut said.requested.show, &[Home::of(key, "show")]),
        StreamSaid::Paused(pause) => border.pause(Way::In, std::slice::from_ref(key), pause),
        _ => Ok(()),
    }
}

fn task_in(border: &Border, view: &mut TaskView) -> Passed {
    let key = view.head.key.clone();
    border.payload(Way::In, &mut view.input, &[Home::of(&key, "input")])?;
    border.maybe(Way::In, &mut view.progress, &[Home::of(&key, "report")])?;
    if let Some(failure) = &mut view.last_failure {
        border.failure(Way::In, failure, &[Home::of(&key, "report")])?;
    }
    view.outcome.as_mut().map_or(Ok(()), |outcome| border.result(Way::In, outcome, &[Home::of(&key, "outcome")]))
}

/// Waits for a run's end and decodes the outcome.
struct CodedOutcome {
    inner: Arc<dyn Outcome>,
    border: Border,
    key: RunKey,
}

impl Outcome for CodedOutcome {
    fn outcome(&self) -> DoorFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { outcome_in(&self.border, &self.key, self.inner.outcome().await?) })
    }
}

impl Door for CodedDoor {
    fn start_and_watch(&self, mut start: StartRun) -> DoorFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let key = start.key.clone();
            self.border.payload(Way::Out, &mut start.input, &[Home::of(&key, "input")]).map_err(told)?;
            if let Some(signal) = &mut start.signal {
                signal_out(&self.border, &key, signal).map_err(told)?;
            }
            let (started, inner) = self.inner.start_and_watch(start).await?;
            Ok((started, Arc::new(CodedOutcome { inner, border: self.border.clone(), key }) as Arc<dyn Outcome>))
        })
    }

    fn start_task(&self, mut start: StartTask) -> DoorFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let key = start.key.clone();
            // Read by clients of the run and by the worker that executes the task.
            let homes = [Home::of(&key, "input"), Home::of(&key, "task")];
            self.border.payload(Way::Out, &mut start.input, &homes).map_err(told)?;
            let (started, inner) = self.inner.start_task(start).await?;
            Ok((started, Arc::new(CodedOutcome { inner, border: self.border.clone(), key }) as Arc<dyn Outcome>))
        })
    }

    fn read_task(&self, key: RunKey) -> DoorFuture<'_, TaskView> {
        Box::pin(async move {
            let mut view = self.inner.read_task(key).await?;
            task_in(&self.border, &mut view).map_err(told)?;
            Ok(view)
        })
    }

    fn cancel_task(&self, key: RunKey, reason: String) -> DoorFuture<'_, Appended> {
        self.inner.cancel_task(key, reason)
    }

    fn wait_for_outcome(&self, key: RunKey) -> DoorFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { outcome_in(&self.border, &key, self.inner.wait_for_outcome(key.clone()).await?) })
    }

    fn watch_run(&self, key: RunKey) -> DoorFuture<'_, Box<dyn Changes>> {
        self.inner.watch_run(key)
    }

    fn read_head(&self, key: RunKey) -> DoorFuture<'_, RunHead> {
        self.inner.read_head(key)
    }

    fn read_run(&self, key: RunKey) -> DoorFuture<'_, RunView> {
        Box::pin(async move {
            let mut view = self.inner.read_run(key.clone()).await?;
            let generation = view.head.generation;
            self.take_in(&key, generation, |makers| view_in(&self.border, &mut view, makers)).await?;
            Ok(view)
        })
    }

    fn why_pending(&self, key: RunKey) -> DoorFuture<'_, Option<WhyPending>> {
        self.inner.why_pending(key)
    }

    fn hindrances(&self, key: RunKey) -> DoorFuture<'_, Vec<Hindrance>> {
        self.inner.hindrances(key)
    }

    fn list_deleted(&self, query: DeletedQuery) -> DoorFuture<'_, Vec<DeletedRun>> {
        self.inner.list_deleted(query)
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> DoorFuture<'_, Vec<Record>> {
        Box::pin(async move {
            let read = async || self.inner.read_log(key.clone(), generation, from, limit).await;
            let decode = |mut records: Vec<Record>, makers: &Makers| {
                records.iter_mut().try_for_each(|record| self.border.record_in(record, makers)).map(|()| records)
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

    fn put_entry(&self, key: RunKey, mut append: AppendEntry) -> DoorFuture<'_, AppendedEntry> {
        Box::pin(async move {
            self.border.payload(Way::Out, &mut append.content, &[Home::of(&key, "signal")]).map_err(told)?;
            self.inner.put_entry(key, append).await
        })
    }

    fn branch_run(&self, key: RunKey, mut branch: BranchRun) -> DoorFuture<'_, Appended> {
        Box::pin(async move {
            if let Some(entry) = &mut branch.entry {
                self.border.payload(Way::Out, &mut entry.content, &[Home::of(&key, "entry")]).map_err(told)?;
            }
            self.inner.branch_run(key, branch).await
        })
    }

    fn list_runs(&self, query: RunQuery) -> DoorFuture<'_, RunPage> {
        self.inner.list_runs(query)
    }

    fn signal_run(&self, key: RunKey, mut signal: SendSignal) -> DoorFuture<'_, Appended> {
        Box::pin(async move {
            signal_out(&self.border, &key, &mut signal).map_err(told)?;
            self.inner.signal_run(key, signal).await
        })
    }

    fn cancel_run(&self, key: RunKey, reason: String) -> DoorFuture<'_, Appended> {
        self.inner.cancel_run(key, reason)
    }

    fn terminate_run(&self, key: RunKey, reason: String) -> DoorFuture<'_, Appended> {
        self.inner.terminate_run(key, reason)
    }

    fn pause_run(&self, key: RunKey, pause: RunPaused) -> DoorFuture<'_, Appended> {
        self.inner.pause_run(key, pause)
    }

    fn resume_run(&self, key: RunKey, budget: Option<Budget>) -> DoorFuture<'_, Appended> {
        self.inner.resume_run(key, budget)
    }

    fn list_versions(&self, namespace: Namespace) -> DoorFuture<'_, Vec<VersionCount>> {
        self.inner.list_versions(namespace)
    }

    fn read_spend(&self, query: SpendQuery) -> DoorFuture<'_, Vec<SpendRow>> {
        self.inner.read_spend(query)
    }

    fn retry_run(&self, key: RunKey, retry: Retry) -> DoorFuture<'_, Restored> {
        self.inner.retry_run(key, retry)
    }

    fn fork_run(&self, key: RunKey, fork: ForkRun) -> DoorFuture<'_, Restored> {
        self.inner.fork_run(key, fork)
    }

    fn bulk_runs(&self, bulk: Bulk) -> DoorFuture<'_, BulkDone> {
        self.inner.bulk_runs(bulk)
    }

    fn delete_run(&self, key: RunKey, reason: String) -> DoorFuture<'_, ()> {
        self.inner.delete_run(key, reason)
    }

    fn update_run(
        &self,
        key: RunKey,
        update_id: String,
        name: Name,
        mut payload: Payload,
    ) -> DoorFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move {
            self.border.payload(Way::Out, &mut payload, &[Home::of(&key, "update")]).map_err(told)?;
            let mut answer = self.inner.update_run(key.clone(), update_id, name, payload).await?;
            self.border.result(Way::In, &mut answer, &[Home::of(&key, "answer")]).map_err(told)?;
            Ok(answer)
        })
    }

    fn query_run(&self, key: RunKey, name: Name, mut input: Payload) -> DoorFuture<'_, Option<Result<Payload, Failure>>> {
        Box::pin(async move {
            let home = [Home::of(&key, "query")];
            self.border.payload(Way::Out, &mut input, &home).map_err(told)?;
            let mut answer = self.inner.query_run(key, name, input).await?;
            if let Some(result) = &mut answer {
                self.border.result(Way::In, result, &home).map_err(told)?;
            }
            Ok(answer)
        })
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        let (sender, receiver) = broadcast::channel(BEHIND_MAX);
        let (mut inner, border, home) = (self.inner.listen(key), self.border.clone(), [Home::of(key, "emitted")]);
        tokio::spawn(async move {
            loop {
                match inner.recv().await {
                    // An undecodable value comes from a process with another codec.
                    Ok(mut emitted) => {
                        let is_readable = border.payload(Way::In, &mut emitted.value, &home).is_ok();
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

    fn read_stream(&self, key: RunKey, from: Option<String>, wait: Duration) -> DoorFuture<'_, StreamPage> {
        Box::pin(async move {
            let mut page = self.inner.read_stream(key.clone(), from, wait).await?;
            // An undecodable frame comes from a process with another codec.
            page.frames.retain_mut(|frame| frame_in(&self.border, &key, &mut frame.said).is_ok());
            Ok(page)
        })
    }

    fn list_approvals(&self, query: WaitQuery) -> DoorFuture<'_, Vec<Wait>> {
        Box::pin(async move {
            let mut waits = self.inner.list_approvals(query).await?;
            for wait in &mut waits {
                let (run, generation) = (wait.run.clone(), wait.generation);
                let show = &mut wait.show;
                self.take_in(&run, generation, |makers| self.border.maybe(Way::In, show, &makers.homes("show"))).await?;
            }
            Ok(waits)
        })
    }

    fn decide_approval(&self, call: CallId, decide: Decide) -> DoorFuture<'_, Appended> {
        self.inner.decide_approval(call, decide)
    }

    fn resolve_promise(
        &self,
        call: CallId,
        mut result: Result<Payload, Failure>,
        resolution_id: String,
    ) -> DoorFuture<'_, Appended> {
        Box::pin(async move {
            self.border.result(Way::Out, &mut result, &[Home::of(&call.run, "promise")]).map_err(told)?;
            self.inner.resolve_promise(call, result, resolution_id).await
        })
    }

    fn list_workers(&self, namespace: Namespace) -> DoorFuture<'_, Vec<WorkerInfo>> {
        self.inner.list_workers(namespace)
    }

    fn list_queues(&self, namespace: Namespace) -> DoorFuture<'_, Vec<QueueInfo>> {
        self.inner.list_queues(namespace)
    }

    fn retry_task(&self, call: CallId) -> DoorFuture<'_, ()> {
        self.inner.retry_task(call)
    }

    fn list_quarantined(&self, query: TaskQuery) -> DoorFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let mut tasks = self.inner.list_quarantined(query).await?;
            for task in &mut tasks {
                let (run, generation) = (task.id.run.clone(), task.id.generation);
                let input = &mut task.input;
                self.take_in(&run, generation, |makers| self.border.payload(Way::In, input, &makers.homes("task"))).await?;
            }
            Ok(tasks)
        })
    }
}
