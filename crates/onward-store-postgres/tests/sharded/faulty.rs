//! A database with faults: it fails all requests, or does not respond until it is released. It records its shard like a
//! persistent one.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunId, RunKey, WorkerId};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, KnownRun,
    Listener, ManualClock, MemoryStore, OpenCounts, OutboxId, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo,
    Shard, Started, Store, StoreError, StoreFuture, TaskQuery, VersionCount, WaitQuery,
};
use onward_store_postgres::sharded::{Database, Pace, ShardedStore, position};

/// Callers that wait for it to resume; none if it is not suspended.
#[derive(Clone, Default)]
struct Stop(Arc<Mutex<Option<Vec<Waker>>>>);

impl Stop {
    fn set(&self, stop: bool) {
        let waiting = std::mem::replace(&mut *self.0.lock().unwrap(), stop.then(Vec::new));
        waiting.into_iter().flatten().for_each(Waker::wake);
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap().is_some()
    }

    async fn over(&self) {
        poll_fn(|cx| match &mut *self.0.lock().unwrap() {
            Some(waiting) => {
                waiting.push(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(()),
        })
        .await;
    }
}

pub struct Faulty {
    pub inner: Arc<dyn Store>,
    is_down: AtomicBool,
    silent: Stop,
    /// Suspends lists and outbox reads.
    slow: Stop,
    request_count: AtomicUsize,
    share: Mutex<Option<Shard>>,
    broadcast_count: AtomicUsize,
}

impl Faulty {
    pub fn new(inner: Arc<dyn Store>) -> Arc<Faulty> {
        Arc::new(Faulty {
            inner,
            is_down: AtomicBool::default(),
            silent: Stop::default(),
            slow: Stop::default(),
            request_count: AtomicUsize::default(),
            share: Mutex::default(),
            broadcast_count: AtomicUsize::default(),
        })
    }

    pub fn refuse(&self, refuse: bool) {
        self.is_down.store(refuse, Ordering::SeqCst);
    }

    /// Stops responding, or resumes and executes the pending requests.
    pub fn be_silent(&self, silent: bool) {
        self.silent.set(silent);
    }

    /// Stops responding to lists and outbox reads, or resumes.
    pub fn be_slow(&self, slow: bool) {
        self.slow.set(slow);
    }

    /// Returns the number of requests.
    pub fn request_count(&self) -> usize {
        self.request_count.load(Ordering::SeqCst)
    }

    /// Returns the number of broadcasts sent through it.
    pub fn broadcast_count(&self) -> usize {
        self.broadcast_count.load(Ordering::SeqCst)
    }

    fn gate<'a, T: Send + 'a>(&self, answer: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        self.request_count.fetch_add(1, Ordering::SeqCst);
        if self.silent.is_set() {
            let silent = self.silent.clone();
            return Box::pin(async move {
                silent.over().await;
                answer.await
            });
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

    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        self.gate(Box::pin(async move {
            self.broadcast_count.fetch_add(1, Ordering::SeqCst);
            self.inner.broadcast(message).await
        }))
    }

    fn read_shard(&self) -> StoreFuture<'_, Option<Shard>> {
        self.gate(Box::pin(async move {
            let recorded = self.share.lock().unwrap().clone();
            let is_used = !self.inner.list_runs(RunQuery::default()).await?.runs.is_empty();
            Ok(recorded.or(is_used.then(|| Shard::all(String::new()))))
        }))
    }

    fn record_shard(&self, share: Shard) -> StoreFuture<'_, Shard> {
        self.gate(Box::pin(async move {
            let counts = self.read_shard().await?.unwrap_or(share);
            *self.share.lock().unwrap() = Some(counts.clone());
            Ok(counts)
        }))
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        self.gate(Box::pin(async move {
            self.slow.over().await;
            self.inner.list_runs(query).await
        }))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        self.gate(Box::pin(async move {
            self.slow.over().await;
            self.inner.outbox_messages(limit).await
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
        lose_run(run: RunKey, epoch: Epoch) -> ();
        register_kinds(kinds: Vec<KindSchemas>) -> ();
        list_kinds(namespace: Namespace) -> Vec<KindSchemas>;
        claim_tasks(request: ClaimTasks) -> Vec<Task>;
        report_task(task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> ();
        retry_task(task: TaskId) -> ();
        heartbeat(worker: WorkerId, lease: Duration) -> bool;
        list_leases(worker: WorkerId) -> Vec<(RunKey, Epoch)>;
        expire(limit: usize) -> Expired;
        finish_deliveries(done: Vec<OutboxId>) -> ();
        read_run(run: RunKey, generation: Option<u32>) -> Option<RunHead>;
        read_log(run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> Vec<Record>;
        read_since(known: Vec<KnownRun>) -> Vec<RunUpdate>;
        announce_server(server: ServerInfo, lease: Option<Duration>) -> ();
        list_servers() -> Vec<ServerInfo>;
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

/// Three databases in memory with faults, and the store over them.
pub struct Site {
    pub clock: Arc<ManualClock>,
    pub databases: Vec<Arc<Faulty>>,
    pub store: Arc<ShardedStore>,
}

impl Site {
    pub fn new() -> Site {
        let clock = Arc::new(ManualClock::default());
        let databases: Vec<_> = (0..3).map(|_| Faulty::new(Arc::new(MemoryStore::new(clock.clone())))).collect();
        let store = Arc::new(ShardedStore::new(named(&databases), clock.clone(), PACE));
        Site { clock, databases, store }
    }

    /// Waits until the health of the databases is this.
    pub fn until(&self, up: [bool; 3]) {
        until_up(&self.store, &up);
    }

    pub fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    pub fn now(&self) -> onward_core::Timestamp {
        self.clock.now()
    }
}

/// Shorter limits than the defaults, so that no test waits long.
pub const PACE: Pace =
    Pace { late: Duration::from_millis(20), answer_max: Duration::from_millis(100), probe_every: Duration::from_millis(20) };

/// Waits until these databases are up, and the others down.
pub fn until_up(store: &ShardedStore, up: &[bool]) {
    let deadline = Instant::now() + Duration::from_secs(300);
    while !store.health().iter().map(|health| health.down.is_none()).eq(up.iter().copied()) {
        assert!(Instant::now() < deadline, "{:?}", store.health());
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn named(databases: &[Arc<Faulty>]) -> Vec<Database> {
    let name = |position: usize| ["a", "b", "c", "d"][position].to_owned();
    databases.iter().enumerate().map(|(position, store)| Database { name: name(position), store: store.clone() }).collect()
}

/// Returns the `number`th id whose database is `wanted` of three.
pub fn id_in(wanted: usize, number: usize) -> String {
    let ids = (0..).map(|number| format!("r{number}"));
    ids.filter(|id| position(&key(id), 3) == wanted).nth(number).unwrap()
}

pub fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}
