//! The store of one process, which dies with the process at a chosen write: before it, or after it and before its answer. From then on
//! no call gets an answer, and no notification arrives. Reads change nothing, so a death at a read equals one after the write before.

use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Event, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Status, Timestamp, WorkerId};
use onward_store::{
    Appended, Change, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, DeletedQuery, DeletedRun, Expired, Listener,
    MemoryStore, OpenCounts, OutboxId, RestoreRun, Restored, RunPage, RunQuery, Started, Store, StoreFuture, TaskQuery,
    VersionCount, WaitQuery,
};
use tokio::sync::watch;

use super::mutants::Mutant;

/// A point at which a process dies: at which of its writes, and whether the store has executed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Death {
    pub at: u64,
    pub is_done: bool,
}

#[derive(Clone)]
pub struct MortalStore(Arc<Process>);

struct Process {
    store: Arc<MemoryStore>,
    death: Option<Death>,
    writes: AtomicU64,
    is_dead: watch::Sender<bool>,
    /// The workers of this process.
    workers: Mutex<Vec<WorkerId>>,
    mutant: Option<Mutant>,
    /// A mutant acts once.
    is_spent: Arc<AtomicBool>,
}

impl MortalStore {
    pub fn new(store: Arc<MemoryStore>, death: Option<Death>, mutant: Option<Mutant>, is_spent: Arc<AtomicBool>) -> MortalStore {
        let (writes, is_dead, workers) = (AtomicU64::new(0), watch::Sender::new(false), Mutex::default());
        MortalStore(Arc::new(Process { store, death, writes, is_dead, workers, mutant, is_spent }))
    }

    /// Returns the number of writes so far.
    pub fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::SeqCst)
    }

    /// Waits for its death.
    pub async fn died(&self) {
        drop(self.0.is_dead.subscribe().wait_for(|is_dead| *is_dead).await);
    }

    /// Cuts the process off, and returns its workers.
    pub fn kill(&self) -> Vec<WorkerId> {
        self.0.is_dead.send_replace(true);
        std::mem::take(&mut *self.0.workers.lock().unwrap())
    }

    fn read<T: Send + 'static>(&self, call: StoreFuture<'static, T>) -> StoreFuture<'static, T> {
        let process = self.0.clone();
        Box::pin(async move {
            process.alive().await;
            call.await
        })
    }

    fn write<T: Send + 'static>(&self, call: StoreFuture<'static, T>) -> StoreFuture<'static, T> {
        let process = self.0.clone();
        Box::pin(async move {
            process.alive().await;
            let at = process.writes.fetch_add(1, Ordering::SeqCst);
            process.die_at(Death { at, is_done: false }).await;
            let answer = call.await;
            process.die_at(Death { at, is_done: true }).await;
            answer
        })
    }

    /// Returns true for the first call for which the mutant `mutant` is to act.
    fn mutates(&self, mutant: Mutant) -> bool {
        self.0.mutant == Some(mutant) && !self.0.is_spent.swap(true, Ordering::SeqCst)
    }
}

impl Process {
    async fn alive(&self) {
        if *self.is_dead.borrow() {
            pending::<()>().await;
        }
    }

    async fn die_at(&self, death: Death) {
        if self.death == Some(death) {
            self.is_dead.send_replace(true);
            pending::<()>().await;
        }
    }
}

/// Forwards notifications to a living process.
struct Ear(Arc<Process>, Arc<dyn Listener>);

impl Listener for Ear {
    fn changed(&self, change: &Change) {
        if !*self.0.is_dead.borrow() {
            self.1.changed(change);
        }
    }
}

macro_rules! calls {
    ($how:ident: $($name:ident($($argument:ident: $type:ty),*) -> $answer:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> StoreFuture<'_, $answer> {
            let store = self.0.store.clone();
            self.$how(Box::pin(async move { store.$name($($argument),*).await }))
        }
    )*};
}

impl Store for MortalStore {
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let store = self.0.store.clone();
        let schedules = commit.events.iter().any(|event| matches!(event, Event::TaskScheduled(_)));
        if schedules && self.mutates(Mutant::CommitIsLost) {
            return self.write(Box::pin(async move {
                let head = store.read_run(commit.key.clone(), None).await?.expect("the run is there");
                Ok(Committed { index: head.next_index, at: head.updated_at, status: Status::Waiting })
            }));
        }
        self.write(Box::pin(async move { store.commit(commit).await }))
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        let is_signal = matches!(input.event, Event::SignalReceived(_));
        if is_signal && self.mutates(Mutant::SignalIsLost) {
            return Box::pin(async { Ok(Appended { index: Index(1), at: Timestamp(0), repeated: false, woke: false }) });
        }
        let store = self.0.store.clone();
        self.write(Box::pin(async move { store.append_input(run, input).await }))
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        let is_result = matches!(report, TaskReport::Completed(_));
        if is_result && self.mutates(Mutant::ResultIsLost) {
            return Box::pin(async { Ok(()) });
        }
        let changed = is_result && self.mutates(Mutant::ResultIsChanged);
        let report = if changed { TaskReport::Completed(super::wrong()) } else { report };
        let store = self.0.store.clone();
        self.write(Box::pin(async move { store.report_task(task, claim, report, lease).await }))
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        let store = self.0.store.clone();
        let (process, this) = (self.0.clone(), self.clone());
        Box::pin(async move {
            process.alive().await;
            let mut records = store.read_log(run, generation, from, limit).await?;
            let is_answer = |record: &Record| matches!(record.events[0], Event::TaskCompleted(_) | Event::TimerFired(_));
            let at = records.windows(2).position(|pair| pair.iter().all(is_answer));
            if let Some(at) = at
                && this.mutates(Mutant::AnswersAreSwapped)
            {
                let (one, other) = records.split_at_mut(at + 1);
                std::mem::swap(&mut one[at].events, &mut other[0].events);
            }
            Ok(records)
        })
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        self.0.workers.lock().unwrap().push(worker.clone());
        let store = self.0.store.clone();
        self.write(Box::pin(async move {
            let mut claimed = store.claim_run(run, worker, input).await?;
            // The log is read by a call of its own, as from a store that does not have it at hand.
            claimed.claimed.iter_mut().for_each(|run| run.records = None);
            Ok(claimed)
        }))
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        self.0.workers.lock().unwrap().push(worker.clone());
        let store = self.0.store.clone();
        self.write(Box::pin(async move { store.heartbeat(worker, lease).await }))
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        let store = self.0.store.clone();
        self.write(Box::pin(async move { store.finish_deliveries(done).await }))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        let (store, this) = (self.0.store.clone(), self.clone());
        self.read(Box::pin(async move {
            let messages = store.outbox_messages(limit).await?;
            if !messages.is_empty() && this.mutates(Mutant::MessagesAreLost) {
                store.finish_deliveries(messages.into_iter().map(|(id, _)| id).collect()).await?;
                return Ok(Vec::new());
            }
            Ok(messages)
        }))
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.0.store.subscribe(Arc::new(Ear(self.0.clone(), listener)));
    }

    fn payload_bytes_max(&self) -> usize {
        self.0.store.payload_bytes_max()
    }

    calls! { write:
        start_run(run: NewRun, claim: Option<WorkerId>) -> Started;
        restore_run(restore: RestoreRun) -> Restored;
        claim_runs(request: ClaimRuns) -> Vec<ClaimedRun>;
        release_run(run: RunKey, epoch: Epoch) -> ();
        lose_run(run: RunKey, epoch: Epoch) -> ();
        claim_tasks(request: ClaimTasks) -> Vec<Task>;
        retry_task(task: TaskId) -> ();
        expire(limit: usize) -> Expired;
        delete_runs(delete: Delete) -> u64;
        register_kinds(kinds: Vec<KindSchemas>) -> ();
    }

    calls! { read:
        list_kinds(namespace: Namespace) -> Vec<KindSchemas>;
        list_leases(worker: WorkerId) -> Vec<(RunKey, Epoch)>;
        read_run(run: RunKey, generation: Option<u32>) -> Option<RunHead>;
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
    }
}
