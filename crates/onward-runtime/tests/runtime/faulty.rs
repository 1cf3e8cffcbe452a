//! A store that fails, stalls or calls a closure at chosen points, and counts its calls.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::{
    Appended, Change, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, DeletedQuery, DeletedRun, Expired, KnownRun,
    Listener, MemoryStore, OpenCounts, OutboxId, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, Started, Store, StoreError,
    StoreFuture, TaskQuery, VersionCount, WaitQuery,
};
use tokio::sync::Notify;

/// A point in an operation: before the store executes it, or after, before the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    Before,
    After,
}

pub enum Happening {
    /// The call fails with `store_unavailable`.
    Fail,
    /// The call waits until it is notified.
    Stall(Arc<Notify>),
    Do(Box<dyn FnOnce(&MemoryStore) + Send>),
}

pub struct FaultyStore {
    pub memory: MemoryStore,
    happenings: Mutex<Vec<(&'static str, When, Happening)>>,
    down: AtomicBool,
    deaf: Arc<AtomicBool>,
    shared: AtomicBool,
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
    calls: Mutex<BTreeMap<&'static str, usize>>,
}

impl FaultyStore {
    pub fn new(memory: MemoryStore) -> FaultyStore {
        let (happenings, calls) = (Mutex::default(), Mutex::default());
        FaultyStore {
            memory,
            happenings,
            down: AtomicBool::new(false),
            deaf: Arc::default(),
            shared: AtomicBool::new(false),
            listeners: Mutex::default(),
            calls,
        }
    }

    /// Applies this to the next call of `operation`.
    pub fn once(&self, operation: &'static str, when: When, happening: Happening) {
        self.happenings.lock().unwrap().push((operation, when, happening));
    }

    pub fn fail_once(&self, operation: &'static str, when: When) {
        self.once(operation, when, Happening::Fail);
    }

    pub fn stall_once(&self, operation: &'static str, when: When) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        self.once(operation, when, Happening::Stall(gate.clone()));
        gate
    }

    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// Stops all notifications to listeners.
    pub fn go_deaf(&self) {
        self.deaf.store(true, Ordering::SeqCst);
    }

    /// Acts as if other processes made all writes: listeners get no changes, only what `hint` passes.
    pub fn share(&self) {
        self.go_deaf();
        self.shared.store(true, Ordering::SeqCst);
    }

    /// Notifies the listeners of a change.
    pub fn hint(&self, change: &Change) {
        self.listeners.lock().unwrap().iter().for_each(|listener| listener.changed(change));
    }

    pub fn calls(&self, operation: &str) -> usize {
        self.calls.lock().unwrap().get(operation).copied().unwrap_or(0)
    }

    /// Drops what has not happened yet.
    pub fn clear(&self) {
        self.happenings.lock().unwrap().clear();
    }

    pub fn is_exhausted(&self) -> bool {
        self.happenings.lock().unwrap().is_empty()
    }

    fn through<'a, T: Send + 'a>(&'a self, operation: &'static str, inner: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            *self.calls.lock().unwrap().entry(operation).or_default() += 1;
            self.meet(operation, When::Before).await?;
            let answer = inner.await;
            self.meet(operation, When::After).await?;
            answer
        })
    }

    async fn meet(&self, operation: &'static str, when: When) -> Result<(), StoreError> {
        let unavailable = || StoreError::Unavailable { why: format!("injected failure {when:?} {operation}") };
        if self.down.load(Ordering::SeqCst) {
            return Err(unavailable());
        }
        let met = {
            let mut happenings = self.happenings.lock().unwrap();
            let position = happenings.iter().position(|(other, at, _)| *other == operation && *at == when);
            position.map(|position| happenings.remove(position).2)
        };
        match met {
            None => Ok(()),
            Some(Happening::Fail) => Err(unavailable()),
            Some(Happening::Stall(gate)) => {
                gate.notified().await;
                Ok(())
            }
            Some(Happening::Do(act)) => {
                act(&self.memory);
                Ok(())
            }
        }
    }
}

struct Ear {
    deaf: Arc<AtomicBool>,
    listener: Arc<dyn Listener>,
}

impl Listener for Ear {
    fn changed(&self, change: &Change) {
        if !self.deaf.load(Ordering::SeqCst) {
            self.listener.changed(change);
        }
    }
}

impl Store for FaultyStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        self.through("start_run", self.memory.start_run(run, claim))
    }
    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        self.through("restore_run", self.memory.restore_run(restore))
    }
    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        self.through("append_input", self.memory.append_input(run, input))
    }
    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        self.through("claim_runs", self.memory.claim_runs(request))
    }
    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        self.through("claim_run", self.memory.claim_run(run, worker, input))
    }
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        self.memory.commit(commit)
    }
    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.through("release_run", self.memory.release_run(run, epoch))
    }
    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.through("lose_run", self.memory.lose_run(run, epoch))
    }
    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        self.through("claim_tasks", self.memory.claim_tasks(request))
    }
    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        self.through("report_task", self.memory.report_task(task, claim, report, lease))
    }
    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        self.through("retry_task", self.memory.retry_task(task))
    }
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        self.through("heartbeat", self.memory.heartbeat(worker, lease))
    }
    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        self.through("list_leases", self.memory.list_leases(worker))
    }
    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        self.through("expire", self.memory.expire(limit))
    }
    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        self.through("deliveries", self.memory.outbox_messages(limit))
    }
    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        self.through("finish_deliveries", self.memory.finish_deliveries(done))
    }
    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        self.through("read_run", self.memory.read_run(run, generation))
    }
    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.through("read_log", self.memory.read_log(run, generation, from, limit))
    }
    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        self.through("list_runs", self.memory.list_runs(query))
    }
    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>> {
        self.through("list_queue_keys", self.memory.list_queue_keys(namespace, queue, limit))
    }

    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse> {
        self.through("quota_use", self.memory.quota_use(namespace))
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        self.through("count_tasks", self.memory.count_tasks(namespace))
    }

    fn count_open(&self) -> StoreFuture<'_, OpenCounts> {
        self.through("count_open", self.memory.count_open())
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        self.through("count_versions", self.memory.count_versions(namespace))
    }
    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        self.through("list_waits", self.memory.list_waits(query))
    }
    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        self.through("list_tasks", self.memory.list_tasks(query))
    }
    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        self.through("delete_runs", self.memory.delete_runs(delete))
    }
    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        self.through("spend", self.memory.spend(query))
    }
    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        self.through("list_deleted", self.memory.list_deleted(query))
    }
    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        self.through("register_kinds", self.memory.register_kinds(kinds))
    }
    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        self.through("list_kinds", self.memory.list_kinds(namespace))
    }
    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>> {
        self.through("read_since", self.memory.read_since(known))
    }
    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        let deliver = async move {
            self.hint(&Change::Broadcast { message });
            Ok(())
        };
        self.through("broadcast", Box::pin(deliver))
    }
    fn is_shared(&self) -> bool {
        self.shared.load(Ordering::SeqCst)
    }
    fn payload_bytes_max(&self) -> usize {
        self.memory.payload_bytes_max()
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.listeners.lock().unwrap().push(listener.clone());
        self.memory.subscribe(Arc::new(Ear { deaf: self.deaf.clone(), listener }));
    }
}
