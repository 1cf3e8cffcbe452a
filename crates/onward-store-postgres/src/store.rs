//! [`PostgresStore`]: connecting, closing, and the implementation of the store port.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, WorkerId};
use onward_store::durable::reply::{Slot, Waiting};
use onward_store::durable::{ClaimRun, Report, RestoreWork, RunOp, StartRun, encode_commit, encode_input};
use onward_store::sync::random_u64;
use onward_store::unit_of_work;
use onward_store::{
    Appended, Change, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, KnownRun,
    Listener, OpenCounts, OutboxId, PAYLOAD_BYTES_MAX, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo, Shard,
    Started, Store, StoreError, StoreFuture, TaskQuery, VersionCount, WaitQuery, payloads, refuse,
};

use crate::clock::StoreClock;
use crate::connection::open::Connector;
use crate::connection::pool::{self, Urgency};
use crate::connection::sql::Db;
use crate::connection::transaction::{LazyConnection, LockRequest};
use crate::error::Outcome;
use crate::notify::idle_cache::WorkKind;
use crate::notify::listener;
use crate::read::{list, queues, reader};
use crate::repair::RepairAttempts;
use crate::shared::ServerShared;
use crate::stats::Stats;
use crate::write::op::Op;
use crate::write::unit::UnitOfWork;
use crate::write::{appender, ledger, quotas};

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
    pub connect_timeout: Duration,
    /// Limit for how long the database may be silent during a statement; `tcp_user_timeout` in the address overrides it. Slow
    /// operations may take twenty times as long, migrations have no limit.
    pub silence_timeout: Duration,
    /// The number of workers that a run loses in a row before it is paused; 0 is no limit.
    pub pause_after_lost_workers: u32,
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
            connect_timeout: Duration::from_secs(5),
            silence_timeout: Duration::from_secs(15),
            pause_after_lost_workers: PAUSE_AFTER_LOST_WORKERS,
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
        retries_open: bool,
    ) -> Result<impl Future<Output = Result<PostgresStore, StoreError>>, StoreError> {
        let (clock, connector) = (StoreClock::new(options.clock.clone()), Connector::to(url, &options)?);
        let shared = Arc::new(ServerShared::new(
            clock,
            connector,
            RepairAttempts::new(options.repair),
            server_name(),
            options.appenders,
            options.batch_max.max(1),
            options.pause_after_lost_workers,
        ));
        let opened = Slot::new();
        let (its, to) = (shared.clone(), opened.clone());
        let payload_bytes_max = options.payload_bytes_max;
        let work = move || run(&its, &options, retries_open, &to);
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
        self.shared.stats()
    }

    /// Checks that the database responds and accepts writes.
    pub fn check(&self) -> StoreFuture<'static, ()> {
        self.shared.jobs.read_plainly(Urgency::Urgent, async |db: &Db| reader::check(db).await)
    }

    /// Returns whether the database was reached since the store was opened.
    pub fn is_prepared(&self) -> bool {
        self.shared.connector.is_prepared()
    }

    /// Returns the error of the last attempt to connect, if it failed. Contains no password.
    pub fn last_error(&self) -> Option<String> {
        self.shared.connector.last_error()
    }

    fn append<'a, T: Send + 'a>(&self, op: impl FnOnce(Arc<Slot<T>>) -> RunOp) -> StoreFuture<'a, T> {
        let slot = Slot::new();
        self.shared.queues.submit(Op::Run(op(slot.clone())));
        Box::pin(Waiting(slot))
    }

    /// Returns the largest payload that may enter a namespace (NQ6).
    fn payload_max(&self, namespace: &Namespace) -> usize {
        self.shared.payload_limits.limits.max(namespace, self.payload_bytes_max)
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl AsyncFn(&mut UnitOfWork<'_>) -> Outcome<T> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        self.shared.jobs.write(Urgency::Normal, Vec::new(), work)
    }

    fn read<T: Send + 'static>(&self, work: impl AsyncFn(&Db) -> Outcome<T> + Send + 'static) -> StoreFuture<'static, T> {
        self.shared.jobs.read(Urgency::Normal, work)
    }

    /// Queries for work unless it is known that there is none.
    fn unless_quiet<T: Send + 'static>(
        &self,
        what: WorkKind,
        query: impl FnOnce() -> StoreFuture<'static, Vec<T>>,
    ) -> StoreFuture<'static, Vec<T>> {
        if self.shared.is_quiet(what) { Box::pin(std::future::ready(Ok(Vec::new()))) } else { query() }
    }
}

/// Runs the store's own thread: everything that uses the database runs there, whatever executor the callers have.
fn run(shared: &Arc<ServerShared>, options: &Options, retries_open: bool, opened: &Arc<Slot<()>>) {
    use onward_store::durable::reply::Pending;
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return opened.fail(unavailable(&error.to_string())),
    };
    // A `LocalSet`: these tasks never move to another thread.
    tokio::task::LocalSet::new().block_on(&runtime, async {
        match shared.connector.try_open(&shared.clock).await {
            Err(StoreError::Unavailable { .. }) if retries_open => {}
            Err(error) => return opened.fail(error),
            // If it fails, the first write reads them.
            Ok(()) => drop(read_limits(shared).await),
        }
        opened.put(Ok(()));
        opened.release();
        let appenders = (0..shared.queues.count()).map(|number| tokio::task::spawn_local(appender::run(shared.clone(), number)));
        let others = (0..options.connections.max(1)).map(|_| tokio::task::spawn_local(pool::run(shared.clone())));
        let tasks: Vec<_> = appenders.chain(others).collect();
        let notifications = tokio::task::spawn_local(listener::run(shared.clone(), options.listen));
        for task in tasks {
            let _ = task.await;
        }
        notifications.abort();
    });
}

/// Reads the limits of payloads, before the first write is accepted.
async fn read_limits(shared: &Arc<ServerShared>) -> Outcome<()> {
    let mut line = LazyConnection::new(shared.clone());
    shared.payload_limits.read(line.get().await?).await
}

fn unavailable(why: &str) -> StoreError {
    StoreError::Unavailable { why: why.to_owned() }
}

/// Returns an id that is unique across machines.
fn server_name() -> String {
    format!("{:016x}{:016x}", random_u64(), random_u64())
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
        let max = self.shared.payload_limits.limits.of_start(&run, self.payload_bytes_max); // NQ6
        let start = StartRun::encode(run, claim, max);
        start.map_or_else(refuse, |start| self.append(|to| RunOp::Start(start, to)))
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        let max = self.payload_max(&restore.key.namespace);
        let work = RestoreWork::new(restore, max);
        work.map_or_else(refuse, |work| self.append(|to| RunOp::Restore(work, to)))
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        let max = self.shared.payload_limits.limits.of_input(&run.namespace, &input, self.payload_bytes_max); // NQ6
        let encoded = encode_input(input, max);
        encoded.map_or_else(refuse, |(input, body)| self.append(|to| RunOp::Input(Arc::new((run, input, body)), to)))
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        self.unless_quiet(WorkKind::Runs, || self.write(async move |unit| unit_of_work::claim_runs(unit, &request).await))
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        let max = |input| self.shared.payload_limits.limits.of_input(&run.namespace, input, self.payload_bytes_max); // NQ6
        let max = input.as_ref().map_or(self.payload_bytes_max, max);
        let claim = ClaimRun::encode(run, worker, input, max);
        claim.map_or_else(refuse, |claim| self.append(|to| RunOp::ClaimRun(claim, to)))
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let max = self.payload_max(&commit.key.namespace);
        let encoded = encode_commit(commit, max);
        encoded.map_or_else(refuse, |encoded| self.append(|to| RunOp::Commit(encoded, to)))
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.append(|to| RunOp::Release(run, epoch, to))
    }

    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.append(|to| RunOp::Lose(run, epoch, to))
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        let locks = LockRequest { quotas: vec![request.namespace.clone()], ..LockRequest::default() };
        self.unless_quiet(WorkKind::Tasks, || {
            let jobs = &self.shared.jobs;
            jobs.write_locked(Urgency::Normal, locks, async move |unit| unit_of_work::claim_tasks(unit, &request).await)
        })
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        let max = self.payload_max(&task.run.namespace);
        let report = Report { task, claim, report, lease }.check(max);
        report.map_or_else(refuse, |report| self.append(|to| RunOp::Report(Arc::new(report), to)))
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        self.append(|to| RunOp::RetryTask(task, to))
    }

    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        self.shared.jobs.write(Urgency::Urgent, Vec::new(), async move |unit| unit.heartbeat(&worker, lease).await)
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        self.shared.jobs.read_plainly(Urgency::Normal, async move |db| list::list_leases(db, &worker).await)
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        let slot = Slot::new();
        self.shared.queues.submit(Op::Expire(limit, slot.clone()));
        Box::pin(Waiting(slot))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        self.unless_quiet(WorkKind::Deliveries, || self.read(async move |db| reader::read_outbox(db, limit).await))
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        self.write(async move |unit| unit.finish_deliveries(&done).await)
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        let jobs = &self.shared.jobs;
        match generation {
            None => jobs.read_plainly(Urgency::Normal, async move |db| reader::read_run(db, &run, None).await),
            earlier => jobs.read(Urgency::Normal, async move |db| reader::read_run(db, &run, earlier).await),
        }
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.read(async move |db| reader::read_log(db, &run, generation, from, limit).await)
    }

    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>> {
        self.read(async move |db| reader::read_since(db, &known).await)
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        let message = Arc::new(message);
        let row = message.clone();
        let written = self.write(async move |unit| unit.put_broadcast(&row).await);
        Box::pin(async move {
            self.shared.notifications.add_broadcast(written.await?);
            self.shared.notify_listeners(&Change::Broadcast { message: Arc::unwrap_or_clone(message) });
            Ok(())
        })
    }

    fn announce_server(&self, server: ServerInfo, lease: Option<Duration>) -> StoreFuture<'_, ()> {
        self.write(async move |unit| unit.announce_server(&server, lease).await)
    }

    fn list_servers(&self) -> StoreFuture<'_, Vec<ServerInfo>> {
        self.write(async |unit| unit.list_servers().await)
    }

    fn read_shard(&self) -> StoreFuture<'_, Option<Shard>> {
        self.shared.jobs.write(Urgency::Urgent, Vec::new(), async |unit| unit.read_shard().await)
    }

    fn record_shard(&self, shard: Shard) -> StoreFuture<'_, Shard> {
        self.write(async move |unit| unit.record_shard(&shard).await)
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        self.read(async move |db| list::list_runs(db, &query).await)
    }

    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        self.shared.jobs.read(Urgency::Slow, async move |db| ledger::spend(db, &query).await)
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        self.shared.jobs.read_plainly(Urgency::Slow, async move |db| list::count_versions(db, &namespace).await)
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        self.read(async move |db| list::list_waits(db, &query).await)
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        self.read(async move |db| list::list_tasks(db, &query).await)
    }

    fn count_open(&self) -> StoreFuture<'_, OpenCounts> {
        self.shared.jobs.read_plainly(Urgency::Slow, async move |db| list::count_open(db).await)
    }

    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>> {
        let jobs = &self.shared.jobs;
        jobs.read_plainly(Urgency::Slow, async move |db| queues::list_keys(db, &namespace, queue.as_ref(), limit).await)
    }

    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse> {
        let clock = self.shared.clock.clock();
        let jobs = &self.shared.jobs;
        jobs.read_plainly(Urgency::Slow, async move |db| quotas::quota_use(db, &namespace, clock.now()).await)
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        self.shared.jobs.read_plainly(Urgency::Slow, async move |db| list::count_tasks(db, &namespace).await)
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        let keys = match &delete {
            Delete::Run { key, .. } => vec![key.clone()],
            Delete::Expired { .. } => Vec::new(),
        };
        self.shared.jobs.write(Urgency::Slow, keys, async move |unit| unit.delete_runs(&delete).await)
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        self.shared.jobs.read_plainly(Urgency::Normal, async move |db| list::list_deleted(db, &query).await)
    }

    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        if let Err(error) = payloads::check_kinds(&kinds, self.payload_bytes_max) {
            return refuse(error);
        }
        let (shared, stored) = (self.shared.clone(), kinds.clone());
        let written = self.write(async move |unit| unit.register_kinds(&kinds).await);
        Box::pin(async move {
            written.await?;
            shared.payload_limits.limits.note(&stored);
            Ok(())
        })
    }

    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        self.shared.jobs.read_plainly(Urgency::Normal, async move |db| list::list_kinds(db, &namespace).await)
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.shared.subscribe(listener);
    }
}
