//! A database that can be taken away: it refuses everything, or never answers. It remembers its share as one that lasts does.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Commit, Committed, Delivery, Input, NewRun, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Namespace, Record, RunHead, RunId, RunKey, WorkerId};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, DeliveryId, Expired, Known,
    Listener, ManualClock, MemoryStore, RestoreRun, Restored, RunPage, RunQuery, ServerInfo, Share, Since, Started, Store,
    StoreError, StoreFuture, TaskQuery, VersionCount, WaitQuery,
};
use onward_store_spread::{Database, SpreadStore, position};

pub struct Faulty {
    pub inner: Arc<dyn Store>,
    is_down: AtomicBool,
    is_silent: AtomicBool,
    share: Mutex<Option<Share>>,
    told: AtomicUsize,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Faulty> {
        let (is_down, is_silent) = (AtomicBool::default(), AtomicBool::default());
        Arc::new(Faulty { inner, is_down, is_silent, share: Mutex::default(), told: AtomicUsize::default() })
    }

    pub fn refuse(&self, refuse: bool) {
        self.is_down.store(refuse, Ordering::SeqCst);
    }

    /// From now on it does not answer at all.
    pub fn be_silent(&self, silent: bool) {
        self.is_silent.store(silent, Ordering::SeqCst);
    }

    /// How often something was said to others through it.
    pub fn told(&self) -> usize {
        self.told.load(Ordering::SeqCst)
    }

    fn gate<'a, T: Send + 'a>(&self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        if self.is_silent.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        if self.is_down.load(Ordering::SeqCst) {
            return Box::pin(std::future::ready(Err(StoreError::Unavailable { why: "connection refused".to_owned() })));
        }
        answer
    }
}

macro_rules! through {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            self.gate(Box::pin(async move { self.inner.$name($($argument),*).await }))
        }
    )*};
}

impl Store for Faulty {
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let inner = self.inner.clone();
        self.gate(Box::pin(async move { inner.commit(commit).await }))
    }

    fn tell_others(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        self.gate(Box::pin(async move {
            self.told.fetch_add(1, Ordering::SeqCst);
            self.inner.tell_others(message).await
        }))
    }

    fn read_share(&self) -> StoreFuture<'_, Option<Share>> {
        self.gate(Box::pin(async move {
            let told = self.share.lock().unwrap().clone();
            let is_used = !self.inner.list_runs(RunQuery::default()).await?.runs.is_empty();
            Ok(told.or(is_used.then(|| Share::all(String::new()))))
        }))
    }

    fn take_share(&self, share: Share) -> StoreFuture<'_, Share> {
        self.gate(Box::pin(async move {
            let counts = self.read_share().await?.unwrap_or(share);
            *self.share.lock().unwrap() = Some(counts.clone());
            Ok(counts)
        }))
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.inner.subscribe(listener);
    }

    through! {
        start_run(run: NewRun, claim: Option<WorkerId>) -> Started;
        restore_run(restore: RestoreRun) -> Restored;
        append_input(run: RunKey, input: Input) -> Appended;
        claim_runs(request: ClaimRuns) -> Vec<ClaimedRun>;
        claim_run(run: RunKey, worker: WorkerId, input: Option<Input>) -> ClaimedOne;
        release_run(run: RunKey, epoch: Epoch) -> ();
        register_kinds(kinds: Vec<KindSchemas>) -> ();
        list_kinds(namespace: Namespace) -> Vec<KindSchemas>;
        claim_tasks(request: ClaimTasks) -> Vec<Task>;
        report_task(task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> ();
        retry_task(task: TaskId) -> ();
        heartbeat(worker: WorkerId, lease: Duration) -> bool;
        list_leases(worker: WorkerId) -> Vec<(RunKey, Epoch)>;
        expire(limit: usize) -> Expired;
        deliveries(limit: usize) -> Vec<(DeliveryId, Delivery)>;
        finish_deliveries(done: Vec<DeliveryId>) -> ();
        read_run(run: RunKey, generation: Option<u32>) -> Option<RunHead>;
        read_log(run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> Vec<Record>;
        read_since(known: Vec<Known>) -> Vec<Since>;
        announce_server(server: ServerInfo, lease: Option<Duration>) -> ();
        list_servers() -> Vec<ServerInfo>;
        list_runs(query: RunQuery) -> RunPage;
        count_versions(namespace: Namespace) -> Vec<VersionCount>;
        list_waits(query: WaitQuery) -> Vec<Wait>;
        list_tasks(query: TaskQuery) -> Vec<Task>;
        count_tasks(namespace: Namespace) -> Vec<TaskCount>;
        delete_runs(delete: Delete) -> u64;
        spend(query: SpendQuery) -> Vec<SpendRow>;
        list_deleted(query: DeletedQuery) -> Vec<DeletedRun>;
    }
}

/// Three databases in memory that can be taken away, and the store over them.
pub struct Site {
    pub clock: Arc<ManualClock>,
    pub databases: Vec<Arc<Faulty>>,
    pub store: Arc<SpreadStore>,
}

impl Site {
    pub fn new() -> Site {
        let clock = Arc::new(ManualClock::default());
        let databases: Vec<_> = (0..3).map(|_| Faulty::new(Arc::new(MemoryStore::new(clock.clone())))).collect();
        let store = Arc::new(SpreadStore::new(named(&databases), clock.clone()));
        Site { clock, databases, store }
    }

    pub fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    pub fn now(&self) -> onward_core::Timestamp {
        self.clock.now()
    }
}

pub fn named(databases: &[Arc<Faulty>]) -> Vec<Database> {
    let name = |position: usize| ["a", "b", "c", "d"][position].to_owned();
    databases.iter().enumerate().map(|(position, store)| Database { name: name(position), store: store.clone() }).collect()
}

/// The `number`th id that lies in the database at `wanted` of three.
pub fn id_in(wanted: usize, number: usize) -> String {
    let ids = (0..).map(|number| format!("r{number}"));
    ids.filter(|id| position(&key(id), 3) == wanted).nth(number).unwrap()
}

pub fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}
