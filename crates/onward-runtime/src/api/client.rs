//! The verbs as a trait, for callers inside and outside the process.
//!
//! [`Runtime`] implements it inside one process; a remote client implements it over the network with the same behavior. The
//! methods are documented at the runtime's methods of the same name.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::budget::Budget;
use onward_core::conversation::{PreludeSearch, Search};
use onward_core::event::RunPaused;
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::log::prelude_of;
use onward_core::reopen::Retry;
use onward_core::run::Wait;
use onward_core::task::Task;
use onward_core::view::{RunView, created_at};
use onward_core::{Failure, Index, Name, Namespace, Payload, Record, RunHead, RunKey};
use onward_store::{
    Appended, DeletedQuery, DeletedRun, Restored, RunPage, RunQuery, Started, TaskQuery, VersionCount, WaitQuery,
};
use tokio::sync::broadcast;

use crate::api::watch::{OutcomeWatch, RunWatch};
use crate::conversation::append::known_entry;
use crate::conversation::read::read_page;
use crate::{
    AppendEntry, AppendedEntry, Blocker, BranchRun, Bulk, BulkDone, CallRef, Decide, Emitted, EntryPage, EntryQuery, ForkRun,
    PendingReason, QueueInfo, Runtime, RuntimeError, SendSignal, StartRun, StartTask, StreamPage, TaskView, WorkerInfo,
};

/// Page size of log reads, in records.
const PAGE: usize = 1_000;

pub type ClientFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, RuntimeError>> + Send + 'a>>;

/// A handle that waits for the result of a run.
pub trait Outcome: Send + Sync {
    /// Waits until the run is closed, through all its generations.
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>>;
}

/// A handle that waits for appends to one run.
pub trait Changes: Send {
    /// Returns after an append since the watch was created or since the last call returned.
    fn changed(&mut self) -> ClientFuture<'_, ()>;

    /// Returns the generation that was seen last.
    fn generation(&self) -> u32;
}

/// The API verbs.
pub trait Client: Send + Sync {
    fn start_and_watch(&self, start: StartRun) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)>;
    fn start_task(&self, start: StartTask) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)>;
    fn read_task(&self, key: RunKey) -> ClientFuture<'_, TaskView>;
    fn cancel_task(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended>;
    fn wait_for_outcome(&self, key: RunKey) -> ClientFuture<'_, Result<Payload, Failure>>;
    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>>;
    fn read_head(&self, key: RunKey) -> ClientFuture<'_, RunHead>;
    fn why_pending(&self, key: RunKey) -> ClientFuture<'_, Option<PendingReason>>;
    fn blocked_on(&self, key: RunKey) -> ClientFuture<'_, Vec<Blocker>>;
    fn list_deleted(&self, query: DeletedQuery) -> ClientFuture<'_, Vec<DeletedRun>>;
    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> ClientFuture<'_, Vec<Record>>;

    /// Reads the current generation of a run at one moment, folded from its log (F27).
    fn read_run(&self, key: RunKey) -> ClientFuture<'_, RunView> {
        Box::pin(async move {
            loop {
                let head = self.read_head(key.clone()).await?;
                let records = read_records(self, &head).await?;
                let covered = records.last().is_some_and(|record| record.next_index() >= head.next_index);
                let same = created_at(&records) == Some(head.created_at);
                if covered && same {
                    let mut view = RunView::fold(head, &records);
                    // Only the first generation of an agent has its input; later turns do not repeat it.
                    if let Some((run, generation)) = find_prelude(self, &view.head, &records).await? {
                        let first = self.read_log(run, Some(generation), Index(0), 1).await?;
                        view.input = first.first().and_then(Record::started).map_or(view.input, |started| started.input.clone());
                    }
                    return Ok(view);
                }
                // The run was deleted and started again during the read: read it again.
            }
        })
    }

    /// Reads a page of an agent's conversation; see [`EntryPage`].
    fn read_entries(&self, key: RunKey, query: EntryQuery) -> ClientFuture<'_, EntryPage> {
        Box::pin(read_page(self, key, query))
    }

    /// Appends an entry from outside. If an entry with the same key, role and content exists, returns that one.
    fn append_entry(&self, key: RunKey, append: AppendEntry) -> ClientFuture<'_, AppendedEntry> {
        Box::pin(async move {
            match known_entry(self, &key, &append).await? {
                Some(known) => Ok(known),
                None => self.put_entry(key, append).await,
            }
        })
    }

    /// Appends an entry like [`Client::append_entry`], but without searching the conversation for its key first.
    fn put_entry(&self, key: RunKey, append: AppendEntry) -> ClientFuture<'_, AppendedEntry>;

    /// Continues the conversation of an agent from an earlier entry.
    fn branch_run(&self, key: RunKey, branch: BranchRun) -> ClientFuture<'_, Appended>;

    fn list_runs(&self, query: RunQuery) -> ClientFuture<'_, RunPage>;
    fn list_versions(&self, namespace: Namespace) -> ClientFuture<'_, Vec<VersionCount>>;
    fn read_spend(&self, query: SpendQuery) -> ClientFuture<'_, Vec<SpendRow>>;
    fn signal_run(&self, key: RunKey, signal: SendSignal) -> ClientFuture<'_, Appended>;
    fn cancel_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended>;
    fn terminate_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended>;
    fn pause_run(&self, key: RunKey, pause: RunPaused) -> ClientFuture<'_, Appended>;
    fn resume_run(&self, key: RunKey, budget: Option<Budget>) -> ClientFuture<'_, Appended>;
    fn retry_run(&self, key: RunKey, retry: Retry) -> ClientFuture<'_, Restored>;
    fn fork_run(&self, key: RunKey, fork: ForkRun) -> ClientFuture<'_, Restored>;
    fn bulk_runs(&self, bulk: Bulk) -> ClientFuture<'_, BulkDone>;
    fn delete_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, ()>;
    fn update_run(
        &self,
        key: RunKey,
        update_id: String,
        name: Name,
        payload: Payload,
    ) -> ClientFuture<'_, Result<Payload, Failure>>;
    fn query_run(&self, key: RunKey, name: Name, input: Payload) -> ClientFuture<'_, Option<Result<Payload, Failure>>>;
    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted>;
    fn read_stream(&self, key: RunKey, from: Option<String>, wait: Duration) -> ClientFuture<'_, StreamPage>;
    fn list_approvals(&self, query: WaitQuery) -> ClientFuture<'_, Vec<Wait>>;
    fn decide_approval(&self, call: CallRef, decide: Decide) -> ClientFuture<'_, Appended>;
    fn resolve_promise(
        &self,
        call: CallRef,
        result: Result<Payload, Failure>,
        resolution_id: String,
    ) -> ClientFuture<'_, Appended>;
    fn list_workers(&self, namespace: Namespace) -> ClientFuture<'_, Vec<WorkerInfo>>;
    fn list_queues(&self, namespace: Namespace) -> ClientFuture<'_, Vec<QueueInfo>>;
    fn list_quarantined(&self, query: TaskQuery) -> ClientFuture<'_, Vec<Task>>;
    fn retry_task(&self, call: CallRef) -> ClientFuture<'_, ()>;
}

/// Finds the log of the agent's generation before the turn in `records`. Returns `None` if the turn needs none or its original
/// is deleted.
pub async fn find_prelude(
    client: &(impl Client + ?Sized),
    head: &RunHead,
    records: &[Record],
) -> Result<Option<(RunKey, u32)>, RuntimeError> {
    let Some(wanted) = prelude_of(records) else { return Ok(None) };
    let mut search = PreludeSearch::new(head.key.clone(), head.generation, wanted);
    loop {
        let (run, generation) = search.wants();
        let first = match client.read_log(run.clone(), Some(generation), Index(0), 1).await {
            Err(error) if error.code() == "run_not_found" && run != head.key => Vec::new(),
            read => read?,
        };
        match search.take(first.first()) {
            Search::Found(run, generation) => return Ok(Some((run, generation))),
            Search::GoesOn => {}
            Search::Nowhere => return Ok(None),
        }
    }
}

/// Reads the log of one generation, at least up to the end that `head` has.
pub async fn read_records(client: &(impl Client + ?Sized), head: &RunHead) -> Result<Vec<Record>, RuntimeError> {
    let mut records: Vec<Record> = Vec::new();
    loop {
        let from = records.last().map_or(Index(0), Record::next_index);
        if from >= head.next_index {
            return Ok(records);
        }
        let page = client.read_log(head.key.clone(), Some(head.generation), from, PAGE).await?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

impl Outcome for OutcomeWatch {
    fn outcome(&self) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(OutcomeWatch::outcome(self))
    }
}

impl Changes for RunWatch {
    fn changed(&mut self) -> ClientFuture<'_, ()> {
        Box::pin(RunWatch::changed(self))
    }

    fn generation(&self) -> u32 {
        RunWatch::generation(self)
    }
}

impl Client for Runtime {
    fn start_and_watch(&self, start: StartRun) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let (started, watch) = Runtime::start_and_watch(self, start).await?;
            Ok((started, Arc::new(watch) as Arc<dyn Outcome>))
        })
    }

    fn start_task(&self, start: StartTask) -> ClientFuture<'_, (Started, Arc<dyn Outcome>)> {
        Box::pin(async move {
            let (started, watch) = Runtime::start_task_and_watch(self, start).await?;
            Ok((started, Arc::new(watch) as Arc<dyn Outcome>))
        })
    }

    fn read_task(&self, key: RunKey) -> ClientFuture<'_, TaskView> {
        Box::pin(async move { Runtime::read_task(self, &key).await })
    }

    fn cancel_task(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::cancel_task(self, &key, &reason).await })
    }

    fn wait_for_outcome(&self, key: RunKey) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { Runtime::wait_for_outcome(self, &key).await })
    }

    fn watch_run(&self, key: RunKey) -> ClientFuture<'_, Box<dyn Changes>> {
        Box::pin(async move { Ok(Box::new(Runtime::watch_run(self, &key).await?) as Box<dyn Changes>) })
    }

    fn read_head(&self, key: RunKey) -> ClientFuture<'_, RunHead> {
        Box::pin(async move { Runtime::read_head(self, &key).await })
    }

    fn why_pending(&self, key: RunKey) -> ClientFuture<'_, Option<PendingReason>> {
        Box::pin(async move { Ok(self.why_pending_anywhere(&Runtime::read_head(self, &key).await?).await) })
    }

    fn blocked_on(&self, key: RunKey) -> ClientFuture<'_, Vec<Blocker>> {
        Box::pin(async move { Runtime::blocked_on(self, &key).await })
    }

    fn list_deleted(&self, query: DeletedQuery) -> ClientFuture<'_, Vec<DeletedRun>> {
        Box::pin(Runtime::list_deleted(self, query))
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> ClientFuture<'_, Vec<Record>> {
        Box::pin(async move { Runtime::read_log(self, &key, generation, from, limit).await })
    }

    fn put_entry(&self, key: RunKey, append: AppendEntry) -> ClientFuture<'_, AppendedEntry> {
        Box::pin(async move { Runtime::put_entry(self, &key, append).await })
    }

    fn branch_run(&self, key: RunKey, branch: BranchRun) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::branch_run(self, &key, branch).await })
    }

    fn list_runs(&self, query: RunQuery) -> ClientFuture<'_, RunPage> {
        Box::pin(Runtime::list_runs(self, query))
    }

    fn list_versions(&self, namespace: Namespace) -> ClientFuture<'_, Vec<VersionCount>> {
        Box::pin(Runtime::list_versions(self, namespace))
    }

    fn read_spend(&self, query: SpendQuery) -> ClientFuture<'_, Vec<SpendRow>> {
        Box::pin(Runtime::read_spend(self, query))
    }

    fn signal_run(&self, key: RunKey, signal: SendSignal) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::signal_run(self, &key, signal).await })
    }

    fn cancel_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::cancel_run(self, &key, &reason).await })
    }

    fn terminate_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::terminate_run(self, &key, &reason).await })
    }

    fn pause_run(&self, key: RunKey, pause: RunPaused) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::pause_run(self, &key, pause).await })
    }

    fn resume_run(&self, key: RunKey, budget: Option<Budget>) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::resume_run(self, &key, budget).await })
    }

    fn retry_run(&self, key: RunKey, retry: Retry) -> ClientFuture<'_, Restored> {
        Box::pin(async move { Runtime::retry_run(self, &key, &retry).await })
    }

    fn fork_run(&self, key: RunKey, fork: ForkRun) -> ClientFuture<'_, Restored> {
        Box::pin(async move { Runtime::fork_run(self, &key, fork).await })
    }

    fn bulk_runs(&self, bulk: Bulk) -> ClientFuture<'_, BulkDone> {
        Box::pin(Runtime::bulk_runs(self, bulk))
    }

    fn delete_run(&self, key: RunKey, reason: String) -> ClientFuture<'_, ()> {
        Box::pin(async move { Runtime::delete_run(self, &key, &reason).await })
    }

    fn update_run(
        &self,
        key: RunKey,
        update_id: String,
        name: Name,
        payload: Payload,
    ) -> ClientFuture<'_, Result<Payload, Failure>> {
        Box::pin(async move { Runtime::update_run(self, &key, &update_id, name, payload).await })
    }

    fn query_run(&self, key: RunKey, name: Name, input: Payload) -> ClientFuture<'_, Option<Result<Payload, Failure>>> {
        Box::pin(async move { Runtime::query_run(self, &key, name, input).await })
    }

    fn listen(&self, key: &RunKey) -> broadcast::Receiver<Emitted> {
        Runtime::listen(self, key)
    }

    fn read_stream(&self, key: RunKey, from: Option<String>, wait: Duration) -> ClientFuture<'_, StreamPage> {
        Box::pin(async move { Runtime::read_stream(self, &key, from.as_deref(), wait).await })
    }

    fn list_approvals(&self, query: WaitQuery) -> ClientFuture<'_, Vec<Wait>> {
        Box::pin(Runtime::list_approvals(self, query))
    }

    fn decide_approval(&self, call: CallRef, decide: Decide) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::decide_approval(self, &call, decide).await })
    }

    fn resolve_promise(
        &self,
        call: CallRef,
        result: Result<Payload, Failure>,
        resolution_id: String,
    ) -> ClientFuture<'_, Appended> {
        Box::pin(async move { Runtime::resolve_promise(self, &call, result, &resolution_id).await })
    }

    fn list_workers(&self, namespace: Namespace) -> ClientFuture<'_, Vec<WorkerInfo>> {
        Box::pin(async move {
            let elsewhere = self.workers_elsewhere(&namespace).await?;
            Ok(Runtime::list_workers(self, &namespace).into_iter().chain(elsewhere).collect())
        })
    }

    fn list_quarantined(&self, query: TaskQuery) -> ClientFuture<'_, Vec<Task>> {
        Box::pin(Runtime::list_quarantined(self, query))
    }

    fn list_queues(&self, namespace: Namespace) -> ClientFuture<'_, Vec<QueueInfo>> {
        Box::pin(async move { Runtime::list_queues(self, &namespace).await })
    }

    fn retry_task(&self, call: CallRef) -> ClientFuture<'_, ()> {
        Box::pin(async move { Runtime::retry_task(self, &call).await })
    }
}
