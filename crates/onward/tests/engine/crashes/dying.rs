//! A process's view of a store, which dies with the process at a chosen call: nothing that follows is ever answered.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Commit, Committed, Delivery, Input, NewRun, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, DeletedQuery, DeletedRun, DeliveryId, Expired, Known,
    Listener, RestoreRun, Restored, RunPage, RunQuery, ServerInfo, Since, Started, Store, StoreFuture, TaskQuery, VersionCount,
    WaitQuery,
};
use tokio::sync::Notify;

/// Where the process dies: at which of its calls, and whether the store has done what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    pub at: u64,
    pub is_done: bool,
}

#[derive(Clone)]
pub struct DyingStore(Arc<Process>);

struct Process {
    store: Arc<dyn Store>,
    death: Option<Death>,
    calls: AtomicU64,
    is_dead: AtomicBool,
    died: Notify,
    /// The store knows the process: one that dies before is missed only after the default session.
    is_known: tokio::sync::watch::Sender<bool>,
}

impl DyingStore {
    pub fn new(store: Arc<dyn Store>, death: Option<Death>) -> DyingStore {
        let (calls, is_dead, died) = (AtomicU64::new(0), AtomicBool::new(false), Notify::new());
        let is_known = tokio::sync::watch::Sender::new(false);
        DyingStore(Arc::new(Process { store, death, calls, is_dead, died, is_known }))
    }

    /// How many calls it has made that can matter.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::SeqCst)
    }

    /// Waits for its end.
    pub async fn died(&self) {
        self.0.died.notified().await;
    }

    /// A call that may be the last one. `matters` says so of its answer: to claim nothing is no step.
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
            // To die before a call is to have died after the one before it, but for the work in between.
            if process.death == Some(Death { at: process.calls.load(Ordering::SeqCst), is_done: false }) {
                return process.die().await;
            }
            let answer = call.await;
            process.alive().await;
            if answer.as_ref().map_or(true, &matters) {
                let number = process.calls.fetch_add(1, Ordering::SeqCst);
                if process.death == Some(Death { at: number, is_done: true }) {
                    return process.die().await;
                }
            }
            answer
        })
    }
}

impl Process {
    async fn alive(&self) {
        if self.is_dead.load(Ordering::SeqCst) {
            pending::<()>().await;
        }
    }

    async fn known(&self) {
        drop(self.is_known.subscribe().wait_for(|is_known| *is_known).await);
    }

    async fn die<T>(&self) -> T {
        self.is_dead.store(true, Ordering::SeqCst);
        self.died.notify_one();
        pending().await
    }
}

/// Reads, and what time does anyway: the process may be dead, but does not die there.
macro_rules! through {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            Box::pin(async move {
                self.0.alive().await;
                let answer = self.0.store.$name($($argument),*).await;
                self.0.alive().await;
                answer
            })
        }
    )*};
}

macro_rules! steps {
    ($($name:ident($($argument:ident: $type:ty),*) -> $answer:ty, $matters:expr;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            let store = self.0.store.clone();
            let call: StoreFuture<'static, $answer> = Box::pin(async move { store.$name($($argument),*).await });
            self.step(call, $matters)
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
        Box::pin(async move {
            self.0.alive().await;
            let answer = self.0.store.heartbeat(worker, lease).await;
            self.0.is_known.send_replace(true);
            self.0.alive().await;
            answer
        })
    }

    fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    steps! {
        start_run(run: NewRun, claim: Option<WorkerId>) -> Started, |_| true;
        finish_deliveries(done: Vec<DeliveryId>) -> (), |()| true;
        append_input(run: RunKey, input: Input) -> Appended, |_| true;
        claim_runs(request: ClaimRuns) -> Vec<ClaimedRun>, |claimed| !claimed.is_empty();
        claim_tasks(request: ClaimTasks) -> Vec<Task>, |claimed| !claimed.is_empty();
        report_task(task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> (), |()| true;
    }

    through! {
        restore_run(restore: RestoreRun) -> Restored;
        claim_run(run: RunKey, worker: WorkerId, input: Option<Input>) -> ClaimedOne;
        release_run(run: RunKey, epoch: Epoch) -> ();
        register_kinds(kinds: Vec<KindSchemas>) -> ();
        list_kinds(namespace: Namespace) -> Vec<KindSchemas>;
        retry_task(task: TaskId) -> ();
        list_leases(worker: WorkerId) -> Vec<(RunKey, Epoch)>;
        expire(limit: usize) -> Expired;
        deliveries(limit: usize) -> Vec<(DeliveryId, Delivery)>;
        read_run(run: RunKey, generation: Option<u32>) -> Option<RunHead>;
        read_log(run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> Vec<Record>;
        list_runs(query: RunQuery) -> RunPage;
        count_versions(namespace: Namespace) -> Vec<VersionCount>;
        list_waits(query: WaitQuery) -> Vec<Wait>;
        list_tasks(query: TaskQuery) -> Vec<Task>;
        count_tasks(namespace: Namespace) -> Vec<TaskCount>;
        delete_runs(delete: Delete) -> u64;
        spend(query: SpendQuery) -> Vec<SpendRow>;
        list_deleted(query: DeletedQuery) -> Vec<DeletedRun>;
        read_since(known: Vec<Known>) -> Vec<Since>;
        tell_others(message: Vec<u8>) -> ();
        announce_server(server: ServerInfo, lease: Option<Duration>) -> ();
        list_servers() -> Vec<ServerInfo>;
    }
}
