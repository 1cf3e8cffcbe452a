//! [`PostgresStore`]: connecting, closing, and the implementation of the store port.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::durable::reply::{Slot, Waiting};
use onward_store::durable::{ClaimRun, RestoreWork, StartRun, encode_commit, encode_input};
use onward_store::sync::random_u64;
use onward_store::{
    Appended, Change, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, KnownRun,
    Listener, OutboxId, PAYLOAD_BYTES_MAX, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo, Shard, Started, Store,
    StoreError, StoreFuture, TaskQuery, VersionCount, WaitQuery, payloads,
};

use crate::clock::StoreClock;
use crate::connection::open::Entrance;
use crate::connection::pool;
use crate::connection::pool::Job;
use crate::notify::listener;
use crate::repair::Mends;
use crate::shared::ServerShared;
use crate::stats::Stats;
use crate::write::appender;
use crate::write::op::{Op, Report};

/// Settings for opening a store.
#[derive(Clone)]
pub struct Options {
    /// Clock for leases, timers and retention; `None` uses the database clock, tests inject their own.
    pub clock: Option<Arc<dyn Clock>>,
    pub payload_bytes_max: usize,
    /// Number of connections that read, claim and delete, beside the appenders and the listener.
    pub connections: usize,
    /// Number of connections that append, each for a part of the runs: while the database writes one batch, another is decided.
    pub appenders: usize,
    /// Maximum number of operations in one transaction.
    pub batch_max: usize,
    /// Whether to `LISTEN` for notifications of other servers. Without it, changes elsewhere are found by polling once a second.
    pub listen: bool,
    /// Whether damaged rows are rebuilt from the log when an operation finds them.
    pub repair: bool,
    /// Whether tables are created in a database that has none; otherwise it is refused and not changed.
    pub make_tables: bool,
    /// Limit for establishing a connection, with TLS and authentication; `connect_timeout` in the address overrides it.
    pub dial_max: Duration,
    /// Limit for how long the database may be silent during a statement; `tcp_user_timeout` in the address overrides it. Slow
    /// operations may take twenty times as long, migrations have no limit.
    pub silence_max: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: None,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            connections: 3,
            appenders: 2,
            batch_max: 500,
            listen: true,
            repair: true,
            make_tables: true,
            dial_max: Duration::from_secs(5),
            silence_max: Duration::from_secs(15),
        }
    }
}

/// A store in a PostgreSQL database, which any number of processes may use at once. Dropping it completes submitted operations.
pub struct PostgresStore {
    shared: Arc<ServerShared>,
    payload_bytes_max: usize,
    thread: Option<JoinHandle<()>>,
}

impl PostgresStore {
    /// Connects to the database at `url` (`postgres://user:password@host:port/database`, or `host=… user=…`) and migrates its
    /// tables to this program's version.
    pub async fn connect(url: &str, options: Options) -> Result<PostgresStore, StoreError> {
        PostgresStore::start(url, options, false)?.await
    }

    /// Connects like [`PostgresStore::connect`], but accepts an unreachable database: operations fail as unavailable until a
    /// connection succeeds. Fails if the database responds and refuses the connection.
    pub async fn connect_when_up(url: &str, options: Options) -> Result<PostgresStore, StoreError> {
        PostgresStore::start(url, options, true)?.await
    }

    fn start(
        url: &str,
        options: Options,
        is_patient: bool,
    ) -> Result<impl Future<Output = Result<PostgresStore, StoreError>>, StoreError> {
        let (clock, entrance) = (StoreClock::new(options.clock.clone()), Entrance::to(url, &options)?);
        let shared = Arc::new(ServerShared::new(
            clock,
            entrance,
            Mends::new(options.repair),
            server_name(),
            options.appenders,
            options.batch_max.max(1),
        ));
        let opened = Slot::new();
        let (its, to) = (shared.clone(), opened.clone());
        let payload_bytes_max = options.payload_bytes_max;
        let work = move || run(&its, &options, is_patient, &to);
        let thread = std::thread::Builder::new().name("onward-postgres".to_owned()).spawn(work);
        let thread = thread.map_err(|error| unavailable(&error.to_string()))?;
        let store = PostgresStore { shared, payload_bytes_max, thread: Some(thread) };
        Ok(async move { Waiting(opened).await.map(|()| store) })
    }

    /// Returns the random id of this store among those on the same database.
    pub fn server(&self) -> &str {
        &self.shared.server
    }

    /// Returns the clock that decides about due times, for callers that wait for one: the clock of this machine may be off.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.shared.clock.clock()
    }

    pub fn stats(&self) -> Stats {
        self.shared.counters.stats(self.shared.entrance.connections())
    }

    /// Checks that the database responds and accepts writes.
    pub fn check(&self) -> StoreFuture<'static, ()> {
        self.ask(Job::Check)
    }

    /// Returns whether the database was reached since the store was opened.
    pub fn is_entered(&self) -> bool {
        self.shared.entrance.is_entered()
    }

    /// Returns the error of the last attempt to connect, if it failed. Contains no password.
    pub fn trouble(&self) -> Option<String> {
        self.shared.entrance.trouble()
    }

    fn append<'a, T: Send + 'a>(&self, op: impl FnOnce(Arc<Slot<T>>) -> Op) -> StoreFuture<'a, T> {
        let slot = Slot::new();
        self.shared.queues.submit(op(slot.clone()));
        Box::pin(Waiting(slot))
    }

    fn ask<'a, T: Send + 'a>(&self, job: impl FnOnce(Arc<Slot<T>>) -> Job) -> StoreFuture<'a, T> {
        let slot = Slot::new();
        self.shared.jobs.submit(job(slot.clone()));
        Box::pin(Waiting(slot))
    }
}

/// Runs the store's own thread: everything that uses the database runs there, whatever executor the callers have.
fn run(shared: &Arc<ServerShared>, options: &Options, is_patient: bool, opened: &Arc<Slot<()>>) {
    use onward_store::durable::reply::Pending;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return opened.fail(unavailable(&error.to_string())),
    };
    // A `LocalSet`: these tasks never move to another thread.
    tokio::task::LocalSet::new().block_on(&runtime, async {
        match shared.entrance.try_enter(&shared.clock).await {
            Err(StoreError::Unavailable { .. }) if is_patient => {}
            Err(error) => return opened.fail(error),
            Ok(()) => {}
        }
        opened.put(Ok(()));
        opened.release();
        let appenders = (0..shared.queues.count()).map(|number| tokio::task::spawn_local(appender::run(shared.clone(), number)));
        let others = (0..options.connections.max(1)).map(|_| tokio::task::spawn_local(pool::run(shared.clone())));
        let tasks: Vec<_> = appenders.chain(others).collect();
        let hints = tokio::task::spawn_local(listener::run(shared.clone(), options.listen));
        for task in tasks {
            let _ = task.await;
        }
        hints.abort();
    });
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable { why: why.to_owned() }
}

/// Returns an id that is unique across machines.
fn server_name() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
}

fn refuse<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

impl Drop for PostgresStore {
    fn drop(&mut self) {
        self.shared.queues.close();
        self.shared.jobs.close();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

impl Store for PostgresStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        let start = StartRun::new(run, claim, self.payload_bytes_max);
        start.map_or_else(refuse, |start| self.append(|to| Op::Start(start, to)))
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        let work = RestoreWork::new(restore, self.payload_bytes_max);
        work.map_or_else(refuse, |work| self.append(|to| Op::Restore(work, to)))
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        let encoded = encode_input(input, self.payload_bytes_max);
        encoded.map_or_else(refuse, |(input, body)| self.append(|to| Op::Input(Box::new((run, input, body)), to)))
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        self.ask(|to| Job::ClaimRuns(request, to))
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        let claim = ClaimRun::new(run, worker, input, self.payload_bytes_max);
        claim.map_or_else(refuse, |claim| self.append(|to| Op::ClaimRun(claim, to)))
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let encoded = encode_commit(commit, self.payload_bytes_max);
        encoded.map_or_else(refuse, |encoded| self.append(|to| Op::Commit(encoded, to)))
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.append(|to| Op::Release(run, epoch, to))
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        self.ask(|to| Job::ClaimTasks(request, to))
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        if let Err(error) = payloads::check_report(&report, self.payload_bytes_max) {
            return refuse(error);
        }
        self.append(|to| Op::Report(Box::new(Report { task, claim, report, lease }), to))
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        self.append(|to| Op::RetryTask(task, to))
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        self.ask(|to| Job::Heartbeat(worker, lease, to))
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        self.ask(|to| Job::ListLeases(worker, to))
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        self.append(|to| Op::Expire(limit, to))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        self.ask(|to| Job::Deliveries(limit, to))
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        self.ask(|to| Job::FinishDeliveries(done, to))
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        self.ask(|to| Job::ReadRun(run, generation, to))
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.ask(|to| Job::ReadLog(run, generation, from, limit, to))
    }

    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>> {
        self.ask(|to| Job::ReadSince(known, to))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        let written = self.ask(|to| Job::Broadcast(message.clone(), to));
        Box::pin(async move {
            self.shared.hints.add_letter(written.await?);
            self.shared.tell_change(Change::Told { message: &message });
            Ok(())
        })
    }

    fn announce_server(&self, server: ServerInfo, lease: Option<Duration>) -> StoreFuture<'_, ()> {
        self.ask(|to| Job::Announce(server, lease, to))
    }

    fn list_servers(&self) -> StoreFuture<'_, Vec<ServerInfo>> {
        self.ask(Job::ListServers)
    }

    fn read_shard(&self) -> StoreFuture<'_, Option<Shard>> {
        self.ask(Job::ReadShard)
    }

    fn record_shard(&self, shard: Shard) -> StoreFuture<'_, Shard> {
        self.ask(|to| Job::RecordShard(shard, to))
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        self.ask(|to| Job::ListRuns(query, to))
    }

    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        self.ask(|to| Job::Spend(query, to))
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        self.ask(|to| Job::CountVersions(namespace, to))
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        self.ask(|to| Job::ListWaits(query, to))
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        self.ask(|to| Job::ListTasks(query, to))
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        self.ask(|to| Job::CountTasks(namespace, to))
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        self.ask(|to| Job::Delete(delete, to))
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        self.ask(|to| Job::ListDeleted(query, to))
    }

    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        if let Err(error) = payloads::check_kinds(&kinds, self.payload_bytes_max) {
            return refuse(error);
        }
        self.ask(|to| Job::RegisterKinds(kinds, to))
    }

    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        self.ask(|to| Job::ListKinds(namespace, to))
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.shared.subscribe(listener);
    }
}
