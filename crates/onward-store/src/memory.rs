//! The reference store: plain maps behind one mutex.
//!
//! It is the oracle that every other store is compared with: simple and obviously correct, not fast. Must never decide:
//! `onward-core` decides what may be appended and what follows. Each operation works on copies ([`rows`]), so that a refusal or a
//! panic leaves the state unchanged.

mod query;
mod quotas;
mod rows;
mod state;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Timestamp, WorkerId};

use crate::durable::limits::PayloadLimits;
use crate::durable::{ClaimRun, Report, RestoreWork, StartRun};
use crate::sync::lock;
use crate::unit_of_work::{self, Rows, block_on_ready};
use crate::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, Listener,
    OpenCounts, OutboxId, PAYLOAD_BYTES_MAX, RestoreRun, Restored, RunPage, RunQuery, Started, Store, StoreError, StoreFuture,
    TaskQuery, VersionCount, WaitQuery, payloads,
};
use rows::MemoryRows;
use state::MemoryState;

pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    payload_limits: PayloadLimits,
    pause_after_lost_workers: u32,
    state: Mutex<MemoryState>,
    /// Locked while listeners are called, so that they receive changes in the order of the writes.
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore {
            clock,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            payload_limits: PayloadLimits::default(),
            pause_after_lost_workers: PAUSE_AFTER_LOST_WORKERS,
            state: Mutex::default(),
            listeners: Mutex::default(),
        }
    }

    pub fn with_payload_bytes_max(self, max: usize) -> MemoryStore {
        MemoryStore { payload_bytes_max: max, ..self }
    }

    /// Sets how many workers a run loses in a row before it is paused; 0 is no limit.
    pub fn with_pause_after_lost_workers(self, count: u32) -> MemoryStore {
        MemoryStore { pause_after_lost_workers: count, ..self }
    }

    /// Runs one operation under the lock at one time of the clock; notifies listeners after releasing it.
    fn write<T>(&self, operation: impl FnOnce(&mut MemoryState, Timestamp) -> T) -> T {
        let answer = {
            let mut state = lock(&self.state);
            operation(&mut state, self.clock.now())
        };
        let listeners = lock(&self.listeners);
        loop {
            // Changes of other threads may be among these: the holder of the listener lock delivers all of them in order.
            let changes = std::mem::take(&mut lock(&self.state).changes);
            if changes.is_empty() {
                return answer;
            }
            for change in &changes {
                listeners.iter().for_each(|listener| listener.changed(change));
            }
        }
    }

    /// Runs one unit of work.
    fn run<T>(&self, unit: impl AsyncFnOnce(&mut MemoryRows<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.write(|state, now| {
            let mut rows = MemoryRows::begin(state, now);
            rows.set().pause_after_lost_workers = self.pause_after_lost_workers;
            block_on_ready(unit(&mut rows))
        })
    }

    fn read<T>(&self, operation: impl FnOnce(&MemoryState) -> T) -> T {
        operation(&lock(&self.state))
    }
}

impl Store for MemoryStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        Box::pin(async move {
            let max = self.payload_limits.of_start(&run, self.payload_bytes_max); // NQ6
            let start = StartRun::check(run, claim, max)?;
            self.run(async |rows| unit_of_work::start_run(rows, start).await)
        })
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        Box::pin(async move {
            let max = self.payload_limits.max(&restore.key.namespace, self.payload_bytes_max); // NQ6
            let work = RestoreWork::new(restore, max)?;
            self.run(async |rows| unit_of_work::restore_run(rows, &work).await)
        })
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        Box::pin(async move {
            payloads::check_input(&input, self.payload_limits.of_input(&run.namespace, &input, self.payload_bytes_max))?; // NQ6
            self.run(async |rows| unit_of_work::append_input(rows, &run, input, None).await)
        })
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move { self.run(async |rows| unit_of_work::claim_runs(rows, &request).await) })
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        Box::pin(async move {
            let max = |input| self.payload_limits.of_input(&run.namespace, input, self.payload_bytes_max); // NQ6
            input.as_ref().map_or(Ok(()), |input| payloads::check_input(input, max(input)))?;
            let claim = ClaimRun { run, worker, input: input.map(|input| (input, None)) };
            self.run(async |rows| unit_of_work::claim_run(rows, claim).await)
        })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let max = self.payload_limits.max(&commit.key.namespace, self.payload_bytes_max); // NQ6
        let checked = payloads::check_commit(&commit, max);
        let committed = checked.and_then(|()| self.run(async |rows| unit_of_work::commit(rows, commit, None).await));
        Box::pin(std::future::ready(committed))
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.run(async |rows| unit_of_work::release_run(rows, &run, epoch).await) })
    }

    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.run(async |rows| unit_of_work::lose_run(rows, &run, epoch).await) })
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        Box::pin(async move { self.run(async |rows| unit_of_work::claim_tasks(rows, &request).await) })
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let max = self.payload_limits.max(&task.run.namespace, self.payload_bytes_max); // NQ6
            let report = Report { task, claim, report, lease }.check(max)?;
            self.run(async |rows| unit_of_work::report_task(rows, report).await)
        })
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.run(async |rows| unit_of_work::retry_task(rows, &task).await) })
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            Ok(self.write(|state, now| {
                let until = now.after(lease);
                state.announce(until);
                state.sessions.insert(worker, until).is_some()
            }))
        })
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        Box::pin(async move {
            Ok(self.read(|state| {
                let held = state.open_runs().filter(|run| run.lease.as_ref() == Some(&worker));
                held.map(|run| (run.head().key.clone(), run.head().epoch)).collect()
            }))
        })
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        Box::pin(async move {
            self.write(|state, now| {
                let expired = block_on_ready(unit_of_work::expire(&mut MemoryRows::begin(state, now), limit))?;
                state.announced_due = state.earliest_due(now);
                Ok(Expired { next_due: state.announced_due, ..expired })
            })
        })
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        Box::pin(async move {
            let message = |(id, (_, message)): (&OutboxId, &(RunKey, OutboxMessage))| (*id, message.clone());
            Ok(self.read(|state| state.outbox.iter().take(limit).map(message).collect()))
        })
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.write(|state, _| state.outbox.retain(|id, _| !done.contains(id)));
            Ok(())
        })
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        Box::pin(async move { Ok(self.read(|state| state.find_head(&run, generation))) })
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        Box::pin(async move { self.read(|state| state.find_records(&run, generation, from, limit)) })
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        Box::pin(async move { self.read(|state| state.find_runs(&query)) })
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        Box::pin(async move { Ok(self.read(|state| state.open_versions(&namespace))) })
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        Box::pin(async move { Ok(self.read(|state| state.find_waits(&query))) })
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        Box::pin(async move { Ok(self.read(|state| state.find_tasks(&query))) })
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        Box::pin(async move { Ok(self.read(|state| state.open_task_counts(&namespace))) })
    }

    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>> {
        Box::pin(async move { Ok(self.read(|state| state.queue_keys(&namespace, queue.as_ref(), limit, self.clock.now()))) })
    }

    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse> {
        Box::pin(async move { Ok(self.read(|state| state.quota_use(&namespace, self.clock.now()))) })
    }

    fn count_open(&self) -> StoreFuture<'_, OpenCounts> {
        Box::pin(async move { Ok(self.read(|state| state.open_counts())) })
    }

    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        Box::pin(async move { Ok(self.read(|state| state.sum_ledger(&query))) })
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.write(|state, now| state.delete(&delete, now)) })
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        Box::pin(async move { Ok(self.read(|state| state.find_deleted(&query))) })
    }

    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            payloads::check_kinds(&kinds, self.payload_bytes_max)?;
            self.payload_limits.note(&kinds);
            self.write(|state, now| state.put_kinds(kinds, now));
            Ok(())
        })
    }

    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        Box::pin(async move {
            Ok(self.read(|state| state.kinds.iter().filter(|kind| kind.namespace == namespace).cloned().collect()))
        })
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        lock(&self.listeners).push(listener);
    }
}

impl std::fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryStore").field("payload_bytes_max", &self.payload_bytes_max).finish_non_exhaustive()
    }
}
