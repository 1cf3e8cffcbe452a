//! The store of one process, which dies with the process at a chosen call: no later call gets a response.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, DeletedQuery, DeletedRun, Expired, KnownRun, Listener,
    OpenCounts, OutboxId, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo, Started, Store, StoreFuture, TaskQuery,
    VersionCount, WaitQuery,
};
use tokio::sync::watch;

use super::connection::Bell;

/// The point at which the process dies: at which of its calls, and whether the store has executed that call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    /// Counts the calls of this operation alone; otherwise all steps.
    pub among: Option<&'static str>,
    pub at: u64,
    pub is_done: bool,
}

impl Death {
    pub fn step(at: u64, is_done: bool) -> Death {
        Death { among: None, at, is_done }
    }
}

/// What all processes of a test report to its oracle.
#[derive(Default)]
pub struct Seen {
    /// How often a task was lost or given back before it was done.
    losses: AtomicU64,
    /// Rings at every step of the server.
    pub bell: Bell,
}

impl Seen {
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
pub struct DyingStore(Arc<Process>);

struct Process {
    store: Arc<dyn Store>,
    death: Option<Death>,
    /// Number of steps so far.
    steps: AtomicU64,
    /// Number of calls that are not steps, by operation.
    others: Mutex<BTreeMap<&'static str, u64>>,
    is_dead: watch::Sender<bool>,
    /// The store has a session of the process: without one, its death is noticed only after the default session timeout.
    is_known: watch::Sender<bool>,
    seen: Arc<Seen>,
}

impl DyingStore {
    pub fn new(store: Arc<dyn Store>, death: Option<Death>, seen: Arc<Seen>) -> DyingStore {
        let [is_dead, is_known] = [false; 2].map(watch::Sender::new);
        let (steps, others) = (AtomicU64::new(0), Mutex::default());
        DyingStore(Arc::new(Process { store, death, steps, others, is_dead, is_known, seen }))
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.0.steps.load(Ordering::SeqCst)
    }

    /// Returns the number of other calls, by operation.
    pub fn others(&self) -> BTreeMap<&'static str, u64> {
        self.0.others.lock().unwrap().clone()
    }

    /// Waits for its death.
    pub async fn died(&self) {
        drop(self.0.is_dead.subscribe().wait_for(|is_dead| *is_dead).await);
    }

    /// Makes a call that may be the last one. `matters` decides by its result whether it is a step: an empty claim is none.
    fn step<T: Send + 'static>(
        &self,
        call: StoreFuture<'static, T>,
        matters: impl Fn(&T) -> bool + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let process = self.0.clone();
        Box::pin(async move {
            process.alive().await;
            if process.death.is_some() {
                process.known().await;
            }
            process.seen.bell.ring(false);
            // Dying before a call equals dying after the previous one, except for the work in between.
            if process.death == Some(Death::step(process.steps.load(Ordering::SeqCst), false)) {
                return process.die().await;
            }
            let answer = call.await;
            process.alive().await;
            if answer.as_ref().map_or(true, &matters) {
                process.seen.bell.ring(true);
                let number = process.steps.fetch_add(1, Ordering::SeqCst);
                if process.death == Some(Death::step(number, true)) {
                    return process.die().await;
                }
            }
            answer
        })
    }

    /// Makes a read or a periodic call: their number varies, so they are counted separately.
    fn other<T: Send + 'static>(&self, name: &'static str, call: StoreFuture<'static, T>) -> StoreFuture<'static, T> {
        let process = self.0.clone();
        Box::pin(async move {
            process.alive().await;
            let at = process.count(name);
            let dies = |is_done| process.death == Some(Death { among: Some(name), at, is_done });
            if dies(false) {
                return process.die().await;
            }
            let answer = call.await;
            process.alive().await;
            if dies(true) {
                return process.die().await;
            }
            answer
        })
    }
}

impl Process {
    fn count(&self, name: &'static str) -> u64 {
        let mut others = self.others.lock().unwrap();
        let count = others.entry(name).or_default();
        *count += 1;
        *count - 1
    }

    async fn alive(&self) {
        if *self.is_dead.borrow() {
            pending::<()>().await;
        }
    }

    async fn known(&self) {
        drop(self.is_known.subscribe().wait_for(|is_known| *is_known).await);
    }

    async fn die<T>(&self) -> T {
        self.is_dead.send_replace(true);
        pending().await
    }
}

macro_rules! others {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            let store = self.0.store.clone();
            self.other(stringify!($name), Box::pin(async move { store.$name($($argument),*).await }))
        }
    )*};
}

macro_rules! steps {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $matters:expr;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            let store = self.0.store.clone();
            self.step(Box::pin(async move { store.$name($($argument),*).await }), $matters)
        }
    )*};
}

impl Store for DyingStore {
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let store = self.0.store.clone();
        self.step(Box::pin(async move { store.commit(commit).await }), |_| true)
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.0.store.subscribe(listener);
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        let process = self.0.clone();
        let call = Box::pin(async move {
            let answer = process.store.heartbeat(worker, lease).await;
            process.is_known.send_replace(true);
            answer
        });
        self.other("heartbeat", call)
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        let process = self.0.clone();
        let call = Box::pin(async move {
            let answer = process.store.expire(limit).await;
            let lost = answer.as_ref().map_or(0, |expired| expired.tasks_expired);
            process.seen.losses.fetch_add(lost, Ordering::SeqCst);
            answer
        });
        self.step(call, |expired| expired.timers_fired + expired.tasks_expired + expired.workers_lost > 0)
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        let process = self.0.clone();
        let is_given_back = report.releases_attempt();
        let call = Box::pin(async move {
            let answer = process.store.report_task(task, claim, report, lease).await;
            process.seen.losses.fetch_add(u64::from(is_given_back && answer.is_ok()), Ordering::SeqCst);
            answer
        });
        self.step(call, |()| true)
    }

    fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    fn payload_bytes_max(&self) -> usize {
        self.0.store.payload_bytes_max()
    }

    steps! {
        start_run(run: NewRun, claim: Option<WorkerId>) -> Started, |_| true;
        restore_run(restore: RestoreRun) -> Restored, |_| true;
        finish_deliveries(done: Vec<OutboxId>) -> (), |()| true;
        append_input(run: RunKey, input: Input) -> Appended, |_| true;
        claim_runs(request: ClaimRuns) -> Vec<ClaimedRun>, |claimed| !claimed.is_empty();
        claim_run(run: RunKey, worker: WorkerId, input: Option<Input>) -> ClaimedOne, |_| true;
        release_run(run: RunKey, epoch: Epoch) -> (), |()| true;
        lose_run(run: RunKey, epoch: Epoch) -> (), |()| true;
        claim_tasks(request: ClaimTasks) -> Vec<Task>, |claimed| !claimed.is_empty();
        retry_task(task: TaskId) -> (), |()| true;
        delete_runs(delete: Delete) -> u64, |deleted| *deleted > 0;
    }

    others! {
        register_kinds(kinds: Vec<KindSchemas>) -> ();
        list_kinds(namespace: Namespace) -> Vec<KindSchemas>;
        list_leases(worker: WorkerId) -> Vec<(RunKey, Epoch)>;
        outbox_messages(limit: usize) -> Vec<(OutboxId, OutboxMessage)>;
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
        spend(query: SpendQuery) -> Vec<SpendRow>;
        list_deleted(query: DeletedQuery) -> Vec<DeletedRun>;
        read_since(known: Vec<KnownRun>) -> Vec<RunUpdate>;
        broadcast(message: Vec<u8>) -> ();
        announce_server(server: ServerInfo, lease: Option<Duration>) -> ();
        list_servers() -> Vec<ServerInfo>;
    }
}
