//! The reference store: plain maps behind one mutex.
//!
//! It is the oracle that every other store is compared with: simple and obviously correct, not fast. Must never decide:
//! `onward-core` decides what may be appended and what follows. Each operation decides on copies before it changes anything, so
//! that a refusal or a panic leaves the state unchanged.

mod due;
mod kinds;
mod lease;
mod query;
mod restore;
mod state;
mod task;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Namespace, Record, RunHead, RunKey, Timestamp, WorkerId};

use crate::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, Listener,
    OutboxId, PAYLOAD_BYTES_MAX, RestoreRun, Restored, RunPage, RunQuery, Started, Store, StoreError, StoreFuture, TaskQuery,
    VersionCount, WaitQuery, check_restore, payloads,
};
use state::State;

pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    state: Mutex<State>,
    /// Locked while listeners are called, so that they receive changes in the order of the writes.
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
}

impl MemoryStore {
    pub fn new(clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore { clock, payload_bytes_max: PAYLOAD_BYTES_MAX, state: Mutex::default(), listeners: Mutex::default() }
    }

    pub fn with_payload_bytes_max(self, max: usize) -> MemoryStore {
        MemoryStore { payload_bytes_max: max, ..self }
    }

    /// Runs one operation under the lock at one time of the clock; notifies listeners after releasing it.
    fn write<T>(&self, operation: impl FnOnce(&mut State, Timestamp) -> T) -> T {
        let answer = {
            let mut state = lock(&self.state);
            operation(&mut state, self.clock.now())
        };
        let listeners = lock(&self.listeners);
        loop {
            // Changes of other threads may be among these: the holder of the listener lock delivers all of them in order.
            let news = std::mem::take(&mut lock(&self.state).news);
            if news.is_empty() {
                return answer;
            }
            for item in &news {
                listeners.iter().for_each(|listener| listener.changed(item.as_change()));
            }
        }
    }

    fn read<T>(&self, operation: impl FnOnce(&State) -> T) -> T {
        operation(&lock(&self.state))
    }
}

/// Locks a mutex even if it is poisoned: a panic comes from a check before the first change (see the module), so the state is
/// sound.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store for MemoryStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        Box::pin(async move {
            payloads::check_new_run(&run, self.payload_bytes_max)?;
            self.write(|state, now| state.start_run(run, claim, now))
        })
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        Box::pin(async move {
            let projections = check_restore(&restore, self.payload_bytes_max)?;
            self.write(|state, now| state.restore_run(restore, projections, now))
        })
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        Box::pin(async move {
            payloads::check_input(&input, self.payload_bytes_max)?;
            self.write(|state, now| state.append_input(&run, input, now))
        })
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move { Ok(self.write(|state, now| state.claim_runs(&request, now))) })
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        Box::pin(async move {
            input.as_ref().map_or(Ok(()), |input| payloads::check_input(input, self.payload_bytes_max))?;
            self.write(|state, now| state.claim_one(&run, &worker, input, now))
        })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let checked = payloads::check_commit(&commit, self.payload_bytes_max);
        Box::pin(std::future::ready(checked.and_then(|()| self.write(|state, now| state.commit(commit, now)))))
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.write(|state, _| state.release_run(&run, epoch));
            Ok(())
        })
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        Box::pin(async move { Ok(self.write(|state, now| state.claim_tasks(&request, now))) })
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            payloads::check_report(&report, self.payload_bytes_max)?;
            self.write(|state, now| {
                let task = state.held_task(&task)?;
                state.report_task(task, claim, report, lease, now)
            })
        })
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        Box::pin(async move { self.write(|state, now| state.retry_task(&task, now)) })
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        Box::pin(async move { Ok(self.write(|state, now| state.heartbeat(worker, lease, now))) })
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        Box::pin(async move { Ok(self.read(|state| state.list_leases(&worker))) })
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        Box::pin(async move { Ok(self.write(|state, now| state.expire(limit, now))) })
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        Box::pin(async move { Ok(self.read(|state| state.outbox_messages(limit))) })
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.write(|state, _| state.finish_deliveries(&done));
            Ok(())
        })
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        Box::pin(async move { Ok(self.read(|state| state.read_run(&run, generation))) })
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        Box::pin(async move { self.read(|state| state.read_log(&run, generation, from, limit)) })
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        Box::pin(async move { self.read(|state| state.list_runs(&query)) })
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        Box::pin(async move { Ok(self.read(|state| state.count_versions(&namespace))) })
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        Box::pin(async move { Ok(self.read(|state| state.list_waits(&query))) })
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        Box::pin(async move { Ok(self.read(|state| state.list_tasks(&query))) })
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        Box::pin(async move { Ok(self.read(|state| state.count_tasks(&namespace))) })
    }

    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        Box::pin(async move { Ok(self.read(|state| state.spend(&query))) })
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.write(|state, now| state.delete_runs(&delete, now)) })
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        Box::pin(async move { Ok(self.read(|state| state.list_deleted(&query))) })
    }

    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            payloads::check_kinds(&kinds, self.payload_bytes_max)?;
            self.write(|state, now| state.register_kinds(kinds, now));
            Ok(())
        })
    }

    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        Box::pin(async move { Ok(self.read(|state| state.list_kinds(&namespace))) })
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

// The result of every fallible operation of the state.
type Answer<T> = Result<T, StoreError>;
