//! A store in memory that accepts less than it announces, and may refuse the last report of an attempt.

use std::sync::Arc;
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, Listener,
    MemoryStore, OpenCounts, OutboxId, RestoreRun, Restored, RunPage, RunQuery, Started, Store, StoreError, StoreFuture,
    TaskQuery, VersionCount, WaitQuery, payloads,
};

pub struct TightStore {
    memory: MemoryStore,
    commit_bytes_max: usize,
    refuses_reports: bool,
}

impl TightStore {
    /// Refuses commits with payloads over `commit_bytes_max`, and announces a much larger limit.
    pub fn new(clock: Arc<dyn Clock>, commit_bytes_max: usize) -> TightStore {
        TightStore { memory: MemoryStore::new(clock), commit_bytes_max, refuses_reports: false }
    }

    /// Refuses every report that ends an attempt, for good.
    pub fn without_reports(clock: Arc<dyn Clock>) -> TightStore {
        TightStore { refuses_reports: true, ..TightStore::new(clock, usize::MAX) }
    }
}

macro_rules! through {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            self.memory.$name($($argument),*)
        }
    )*};
}

impl Store for TightStore {
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        match payloads::check_commit(&commit, self.commit_bytes_max) {
            Ok(()) => self.memory.commit(commit),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.memory.subscribe(listener);
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        if self.refuses_reports && report.ends() {
            return Box::pin(std::future::ready(Err(StoreError::RunNotFound { key: task.run })));
        }
        self.memory.report_task(task, claim, report, lease)
    }

    through! {
        start_run(run: NewRun, claim: Option<WorkerId>) -> Started;
        restore_run(restore: RestoreRun) -> Restored;
        append_input(run: RunKey, input: Input) -> Appended;
        claim_runs(request: ClaimRuns) -> Vec<ClaimedRun>;
        claim_run(run: RunKey, worker: WorkerId, input: Option<Input>) -> ClaimedOne;
        release_run(run: RunKey, epoch: Epoch) -> ();
        lose_run(run: RunKey, epoch: Epoch) -> ();
        register_kinds(kinds: Vec<KindSchemas>) -> ();
        list_kinds(namespace: Namespace) -> Vec<KindSchemas>;
        claim_tasks(request: ClaimTasks) -> Vec<Task>;
        retry_task(task: TaskId) -> ();
        heartbeat(worker: WorkerId, lease: Duration) -> bool;
        list_leases(worker: WorkerId) -> Vec<(RunKey, Epoch)>;
        expire(limit: usize) -> Expired;
        outbox_messages(limit: usize) -> Vec<(OutboxId, OutboxMessage)>;
        finish_deliveries(done: Vec<OutboxId>) -> ();
        read_run(run: RunKey, generation: Option<u32>) -> Option<RunHead>;
        read_log(run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> Vec<Record>;
        list_runs(query: RunQuery) -> RunPage;
        count_versions(namespace: Namespace) -> Vec<VersionCount>;
        list_waits(query: WaitQuery) -> Vec<Wait>;
        list_tasks(query: TaskQuery) -> Vec<Task>;
        list_queue_keys(namespace: Namespace, queue: Option<Name>, limit: usize) -> Vec<KeyLoad>;
        quota_use(namespace: Namespace) -> QuotaUse;
        count_tasks(namespace: Namespace) -> Vec<TaskCount>;
        count_open() -> OpenCounts;
        delete_runs(delete: Delete) -> u64;
        spend(query: SpendQuery) -> Vec<SpendRow>;
        list_deleted(query: DeletedQuery) -> Vec<DeletedRun>;
    }
}
