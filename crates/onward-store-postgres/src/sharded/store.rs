//! The store port: operations on one run go to its database, the rest to all.

use std::sync::Arc;
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, DeletedQuery, DeletedRun, Expired, KnownRun, Listener,
    OutboxId, PAYLOAD_BYTES_MAX, Restore, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo, Started, Store,
    StoreError, StoreFuture, TaskQuery, VersionCount, WaitQuery,
};

use crate::sharded::routing::{ShardedStore, some_answers};

impl Store for ShardedStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        match self.check_family(&run.key, run.started.parent.as_ref()) {
            Ok(()) => self.ask_one(&run.key.clone(), |store| store.start_run(run, claim)),
            Err(error) => failed(error),
        }
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        match self.check_family(&restore.key, open_log(&restore.what).and_then(parent_of)) {
            Ok(()) => self.ask_one(&restore.key.clone(), |store| store.restore_run(restore)),
            Err(error) => failed(error),
        }
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        self.ask_one(&run.clone(), |store| store.append_input(run, input))
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        Box::pin(self.claim_runs_of_all(request))
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        self.ask_one(&run.clone(), |store| store.claim_run(run, worker, input))
    }

    /// Submits at once, as every store does, so that commits of one caller keep their order.
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let database = self.of_run(&commit.key).clone();
        if let Some(error) = database.refusal() {
            return failed(error);
        }
        let answer = database.store().commit(commit);
        Box::pin(async move { database.noted(answer.await) })
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.ask_one(&run.clone(), move |store| store.release_run(run, epoch))
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        Box::pin(self.claim_tasks_of_all(request))
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        self.ask_one(&task.run.clone(), move |store| store.report_task(task, claim, report, lease))
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        self.ask_one(&task.run.clone(), |store| store.retry_task(task))
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        Box::pin(self.heartbeat_to_all(worker, lease))
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        Box::pin(async move {
            let answers = some_answers(self.ask_all(|store| store.list_leases(worker.clone())).await)?;
            Ok(answers.into_iter().flat_map(|(_, leases)| leases).collect())
        })
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        Box::pin(self.expire_all(limit))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        Box::pin(self.deliveries_of_all(limit))
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        Box::pin(self.finish_deliveries_of_all(done))
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        self.ask_one(&run.clone(), move |store| store.read_run(run, generation))
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.ask_one(&run.clone(), move |store| store.read_log(run, generation, from, limit))
    }

    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>> {
        Box::pin(self.read_since_of_all(known))
    }

    fn is_shared(&self) -> bool {
        self.databases().iter().any(|database| database.store().is_shared())
    }

    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        Box::pin(self.broadcast_once(message))
    }

    fn announce_server(&self, server: ServerInfo, lease: Option<Duration>) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let answers = self.ask_all(|store| store.announce_server(server.clone(), lease)).await;
            some_answers(answers).map(drop)
        })
    }

    fn list_servers(&self) -> StoreFuture<'_, Vec<ServerInfo>> {
        Box::pin(self.list_servers_of_all())
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        Box::pin(self.list_runs_of_all(query))
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        Box::pin(self.count_versions_of_all(namespace))
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        match query.run.clone() {
            Some(run) => self.ask_one(&run, |store| store.list_waits(query)),
            None => Box::pin(self.list_waits_of_all(query)),
        }
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        match query.run.clone() {
            Some(run) => self.ask_one(&run, |store| store.list_tasks(query)),
            None => Box::pin(self.list_tasks_of_all(query)),
        }
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        Box::pin(self.count_tasks_of_all(namespace))
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        match delete {
            Delete::Run { ref key, .. } => self.ask_one(&key.clone(), |store| store.delete_runs(delete)),
            Delete::Expired { retention, limit } => Box::pin(self.delete_expired(retention, limit)),
        }
    }

    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        match query.tree.clone() {
            Some(tree) => self.ask_one(&RunKey::new(query.namespace.clone(), tree), |store| store.spend(query)),
            None => Box::pin(self.spend_of_all(query)),
        }
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        match query.run.clone() {
            Some(run) => self.ask_one(&run, |store| store.list_deleted(query)),
            None => Box::pin(self.list_deleted_of_all(query)),
        }
    }

    /// Registers in every database that responds; one that missed a kind gets it with the next change.
    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        Box::pin(async move { some_answers(self.ask_all(|store| store.register_kinds(kinds.clone())).await).map(drop) })
    }

    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        Box::pin(self.list_kinds_of_all(namespace))
    }

    fn payload_bytes_max(&self) -> usize {
        self.databases().iter().map(|database| database.store().payload_bytes_max()).min().unwrap_or(PAYLOAD_BYTES_MAX)
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.listen(listener);
    }
}

fn failed<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

/// Returns the log of the last generation if the run is open after the restore.
fn open_log(what: &Restore) -> Option<&[Record]> {
    let log = match what {
        Restore::Run { logs } => logs.last()?,
        Restore::Retry { log, .. } => log,
    };
    (!log.last()?.ends_log()).then_some(log)
}

fn parent_of(log: &[Record]) -> Option<&onward_core::event::ParentLink> {
    log.first()?.started()?.parent.as_ref()
}
