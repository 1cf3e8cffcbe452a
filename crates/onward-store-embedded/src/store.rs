//! [`EmbeddedStore`]: opening, closing, and the store trait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
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
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, Listener,
    OpenCounts, OutboxId, PAYLOAD_BYTES_MAX, RestoreRun, Restored, RunPage, RunQuery, Started, Store, StoreError, StoreFuture,
    SystemClock, TaskQuery, VersionCount, WaitQuery, payloads, refuse,
};

use crate::error::read_error;
use crate::file::directory::{self, Directory};
use crate::file::lease_file::LeaseFile;
use crate::file::schema::{self, FileKind};
use crate::file::synced::{MarkFile, SyncMark};
use crate::file::wal::{self, LogDamage};
use crate::file::{failpoint, pages};
use crate::leases::Leases;
use crate::read::reader::{self, Readers};
use crate::read::{ledger, list, queues, quotas as read_quotas};
use crate::repair::rebuild::{self, Repaired, Scratch};
use crate::repair::rows;
use crate::repair::salvage::Pages;
use crate::shared::{Stats, WriterShared};
use crate::write::maintenance::LogLength;
use crate::write::op::Op;
use crate::write::quotas;
use crate::write::tasks;
use crate::write::writer::{self, InitialState};

/// Settings for opening a store.
#[derive(Clone)]
pub struct Options {
    /// The clock for leases, timers and retention.
    pub clock: Arc<dyn Clock>,
    pub payload_bytes_max: usize,
    /// Size at which the database counts as full, whatever the disk has; deleted runs free space again.
    pub database_bytes_max: Option<u64>,
    /// Number of pages after which the write-ahead log is copied into the database. More makes writes cheaper and the pause
    /// longer.
    pub checkpoint_pages: u64,
    /// Number of reader threads.
    pub readers: usize,
    /// The workers that live in the process that opens the directory and die with it: at opening their leased tasks are freed at
    /// once, and their runs count them as lost.
    pub workers_inside: WorkersInside,
    /// The number of workers that a run loses in a row before it is paused; 0 is no limit.
    pub pause_after_lost_workers: u32,
}

/// Workers that cannot have survived the process that had the directory open before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkersInside {
    /// All workers are remote.
    None,
    /// Workers whose ids have this prefix: a server has workers of its own, and remote ones that may have survived it.
    Named(&'static str),
    All,
}

impl WorkersInside {
    pub(crate) fn includes(self, worker: &WorkerId) -> bool {
        match self {
            WorkersInside::None => false,
            WorkersInside::Named(begin) => worker.as_str().starts_with(begin),
            WorkersInside::All => true,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            clock: Arc::new(SystemClock),
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            database_bytes_max: None,
            checkpoint_pages: 1000,
            readers: 2,
            workers_inside: WorkersInside::None,
            pause_after_lost_workers: PAUSE_AFTER_LOST_WORKERS,
        }
    }
}

/// A store in a directory. Dropping it finishes the submitted writes, then releases the directory.
pub struct EmbeddedStore {
    shared: Arc<WriterShared>,
    payload_bytes_max: usize,
    readers: Readers,
    /// `None` if the store is read-only.
    writer: Option<JoinHandle<()>>,
    /// Damage that made the store read-only although it was opened for writing.
    damage: Option<LogDamage>,
    /// Replacement database for reading a damaged directory.
    _scratch: Option<Scratch>,
    /// Released last.
    _directory: Option<Directory>,
}

impl EmbeddedStore {
    /// Opens the store in `directory`, which is created if it is missing. Blocks while SQLite recovers from a crash.
    pub fn open(directory: impl AsRef<Path>, options: Options) -> Result<EmbeddedStore, StoreError> {
        failpoint::arm();
        let directory = Directory::open(directory.as_ref())?;
        let (log, damage) = wal::examine(&directory.path)?;
        if let Some(damage) = damage {
            Scratch::remove_old(&directory.path);
            let path = directory.path.clone();
            return EmbeddedStore::reading(&path, Some(damage), Some(directory), options);
        }
        wal::settle(&directory.path, &log)?;
        let is_log_inherited = log.bytes > 0;
        let mark = MarkFile::open(&directory.path)?;
        let mut db = schema::open_writer(&directory.path)?;
        if let Some(max) = options.database_bytes_max {
            schema::limit_size(&db, max)?;
        }
        failpoint::hit("open_before_boot");
        let boot = schema::next_boot(&db)?;
        failpoint::hit("open_after_boot");
        let now = options.clock.now();
        if options.workers_inside != WorkersInside::None {
            rows::with_repair(&db, now, || tasks::take_tasks_back(&db, options.workers_inside, now))
                .map_err(schema::open_error)?;
        }
        let initial_state =
            rows::with_repair(&db, now, || InitialState::read(&db, boot, is_log_inherited)).map_err(read_error)?;
        let stored_quotas = rows::with_repair(&db, now, || quotas::read_all(&db)).map_err(read_error)?;
        let (lease_file, lost) = match options.workers_inside {
            WorkersInside::None => (None, Vec::new()),
            inside => LeaseFile::open(&directory.path, inside).map(|(file, lost)| (Some(file), lost))?,
        };
        let leases = Leases::recorded(lease_file);
        let shared = Arc::new(WriterShared::new(options.clock, leases, options.pause_after_lost_workers));
        shared.payload_limits.replace(&stored_quotas);
        let readers = Readers::start(&directory.path, options.readers.max(1), Some(shared.clone()))?;
        let log = Arc::new(LogLength::new(options.checkpoint_pages));
        let counted = log.clone();
        db.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            counted.set(u64::try_from(pages).unwrap_or(0));
            Ok(())
        }))
        .map_err(read_error)?;
        let its = shared.clone();
        let work = move || {
            let run = std::panic::AssertUnwindSafe(|| writer::run(&db, its.clone(), initial_state, &log, mark));
            match std::panic::catch_unwind(run) {
                Ok(Ok(())) => its.queue.stop("the store is closed"),
                Ok(Err(error)) => its.queue.stop(&error.to_string()),
                Err(_) => its.queue.stop("the writer thread panicked"),
            }
        };
        let thread = std::thread::Builder::new().name("onward-writer".to_owned()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Unavailable { why: error.to_string() })?;
        shared.lose_leases(&lost);
        Ok(EmbeddedStore {
            shared,
            payload_bytes_max: options.payload_bytes_max,
            readers,
            writer: Some(thread),
            damage: None,
            _scratch: None,
            _directory: Some(directory),
        })
    }

    /// Creates a store that only reads. With a damaged write-ahead log, what verifies can be read, and every write fails with the
    /// damage; the lock of the directory also keeps other processes from writing.
    fn reading(
        path: &Path,
        damage: Option<LogDamage>,
        directory: Option<Directory>,
        options: Options,
    ) -> Result<EmbeddedStore, StoreError> {
        let scratch = damage.as_ref().map(|_| Scratch::fill(path, options.clock.now())).transpose()?;
        let path = scratch.as_ref().map_or(path, |scratch| &scratch.path);
        let readers = Readers::start(path, options.readers.max(1), None)?;
        let shared = Arc::new(WriterShared::new(options.clock, Leases::default(), options.pause_after_lost_workers));
        let payload_bytes_max = options.payload_bytes_max;
        Ok(EmbeddedStore { shared, payload_bytes_max, readers, writer: None, damage, _scratch: scratch, _directory: directory })
    }

    /// Opens a directory that another process may have open, for reading. Every write is refused; leases are not visible.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<EmbeddedStore, StoreError> {
        let directory = directory.as_ref();
        let path = directory.to_owned();
        if directory::check(directory)? == FileKind::Nothing {
            return Err(StoreError::DirectoryForeign { path, why: "there is no database in it".to_owned() });
        }
        let damage = EmbeddedStore::examine(directory)?;
        EmbeddedStore::reading(directory, damage, None, Options { readers: 1, ..Options::default() })
    }

    /// Compares the write-ahead log of a directory with what is known to be synced, without opening or changing anything.
    ///
    /// Another process may be writing: apparent damage is checked again.
    pub fn examine(directory: impl AsRef<Path>) -> Result<Option<LogDamage>, StoreError> {
        let mut damage = None;
        for _ in 0..3 {
            damage = wal::examine(directory.as_ref())?.1;
            if damage.is_none() {
                break;
            }
        }
        Ok(damage)
    }

    /// Returns whether acknowledged writes of a directory are missing, or may be: its write-ahead log is damaged and not every
    /// synced frame can be corrected. Changes nothing.
    pub fn has_lost_writes(directory: impl AsRef<Path>) -> Result<bool, StoreError> {
        if EmbeddedStore::examine(&directory)?.is_none() {
            return Ok(false);
        }
        Ok(Pages::open(directory.as_ref())?.0.has_gap)
    }

    /// Returns the pages of a directory's database with a wrong checksum. Changes nothing.
    pub fn damaged_pages(directory: impl AsRef<Path>) -> Result<Vec<u64>, StoreError> {
        let path = schema::database(directory.as_ref());
        pages::damaged_pages(&path).map_err(|error| schema::unusable(&path, &error))
    }

    /// Returns whether `onward.synced`, the mark of the last synced commit, has a wrong checksum. Changes nothing.
    pub fn is_mark_damaged(directory: impl AsRef<Path>) -> bool {
        // Another process may be writing it.
        (0..3).all(|_| SyncMark::is_damaged(directory.as_ref()))
    }

    /// Describes damaged rows of runs, logs without a row and rows without a log. Changes nothing.
    pub fn damaged_rows(directory: impl AsRef<Path>) -> Result<Vec<String>, StoreError> {
        let directory = directory.as_ref();
        directory::check(directory)?;
        if EmbeddedStore::examine(directory)?.is_some() {
            return Ok(Vec::new()); // only what a repair would keep can be read
        }
        rows::describe_damage(&schema::open_reader(directory)?).map_err(read_error)
    }

    /// Copies everything that verifies of a damaged directory into a new database, reports what is lost, and moves the damaged
    /// files aside. Changes nothing if nothing is damaged. No process may have the directory open.
    pub fn repair(directory: impl AsRef<Path>) -> Result<Repaired, StoreError> {
        rebuild::repair(directory.as_ref(), SystemClock.now())
    }

    /// Returns the damage to the write-ahead log that made the store read-only.
    pub fn damage(&self) -> Option<&LogDamage> {
        self.damage.as_ref()
    }

    /// Returns statistics of the writer.
    pub fn stats(&self) -> Stats {
        self.shared.stats()
    }

    /// Returns why the store no longer accepts writes, if so.
    pub fn stopped(&self) -> Option<String> {
        self.damage.as_ref().map(|damage| damage.to_string()).or_else(|| self.shared.queue.stopped())
    }

    /// Returns whether the last batch failed for lack of space and there still is none, which it checks by writing.
    pub async fn is_full(&self) -> bool {
        if !self.shared.is_full.load(Ordering::Relaxed) {
            return false;
        }
        matches!(self.write(Op::TryWrite).await, Err(StoreError::DiskFull))
    }

    /// Returns the error of every write if the store is read-only.
    fn refusal(&self) -> Option<StoreError> {
        let damaged = |damage: &LogDamage| StoreError::Damaged { why: damage.to_string() };
        self.writer.is_none().then(|| self.damage.as_ref().map_or(StoreError::ReadOnly, damaged))
    }

    fn write<'a, T: Send + 'a>(&self, op: impl FnOnce(Arc<Slot<T>>) -> Op) -> StoreFuture<'a, T> {
        if let Some(error) = self.refusal() {
            return refuse(error);
        }
        let slot = Slot::new();
        self.shared.queue.submit(op(slot.clone()));
        Box::pin(Waiting(slot))
    }
}

impl EmbeddedStore {
    /// Returns the largest payload that may enter a namespace (NQ6).
    fn payload_max(&self, namespace: &Namespace) -> usize {
        self.shared.payload_limits.max(namespace, self.payload_bytes_max)
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        // The last connection to close copies the write-ahead log into the database, which a reader could not do.
        self.readers.stop();
        self.shared.queue.close();
        if let Some(writer) = self.writer.take()
            && writer.thread().id() != std::thread::current().id()
        {
            let _ = writer.join();
        }
    }
}

impl Store for EmbeddedStore {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started> {
        let max = self.shared.payload_limits.of_start(&run, self.payload_bytes_max); // NQ6
        let start = StartRun::encode(run, claim, max);
        start.map_or_else(refuse, |start| self.write(|to| Op::Run(RunOp::Start(start, to))))
    }

    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored> {
        let max = self.payload_max(&restore.key.namespace);
        let work = RestoreWork::new(restore, max);
        work.map_or_else(refuse, |work| self.write(|to| Op::Run(RunOp::Restore(work, to))))
    }

    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended> {
        let max = self.shared.payload_limits.of_input(&run.namespace, &input, self.payload_bytes_max); // NQ6
        let encoded = encode_input(input, max);
        encoded.map_or_else(refuse, |(input, body)| self.write(|to| Op::Run(RunOp::Input(Arc::new((run, input, body)), to))))
    }

    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>> {
        self.write(|to| Op::ClaimRuns(request, to))
    }

    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne> {
        let max = |input| self.shared.payload_limits.of_input(&run.namespace, input, self.payload_bytes_max); // NQ6
        let max = input.as_ref().map_or(self.payload_bytes_max, max);
        let claim = ClaimRun::encode(run, worker, input, max);
        claim.map_or_else(refuse, |claim| self.write(|to| Op::Run(RunOp::ClaimRun(claim, to))))
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let max = self.payload_max(&commit.key.namespace);
        let encoded = encode_commit(commit, max);
        encoded.map_or_else(refuse, |encoded| self.write(|to| Op::Run(RunOp::Commit(encoded, to))))
    }

    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.write(|to| Op::Run(RunOp::Release(run, epoch, to)))
    }

    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()> {
        self.write(|to| Op::Run(RunOp::Lose(run, epoch, to)))
    }

    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>> {
        self.write(|to| Op::ClaimTasks(request, to))
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()> {
        let max = self.payload_max(&task.run.namespace);
        let report = Report { task, claim, report, lease }.check(max);
        report.map_or_else(refuse, |report| self.write(|to| Op::Run(RunOp::Report(Arc::new(report), to))))
    }

    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()> {
        self.write(|to| Op::Run(RunOp::RetryTask(task, to)))
    }

    /// Replies at once: sessions are in memory, and a busy disk must not look like a lost worker (F20).
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool> {
        let stopped = || self.shared.queue.stopped().map(|why| StoreError::Stopped { why });
        if let Some(error) = self.refusal().or_else(stopped) {
            return refuse(error);
        }
        let known = self.shared.leases.extend(worker, self.shared.clock.steady().after(lease));
        let until = self.shared.clock.now().after(lease);
        if until.0 < self.shared.announced_due.load(Ordering::Relaxed) {
            self.shared.queue.submit(Op::Announce(until, Slot::new()));
        }
        Box::pin(std::future::ready(Ok(known)))
    }

    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>> {
        let shared = self.shared.clone();
        self.readers.read(move |db| list::list_leases(db, &shared.leases, &worker))
    }

    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired> {
        self.write(|to| Op::Expire(limit, to))
    }

    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>> {
        self.readers.read(move |db| reader::read_outbox(db, limit))
    }

    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()> {
        self.write(|to| Op::FinishDeliveries(done, to))
    }

    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>> {
        let shared = self.shared.clone();
        self.readers.read(move |db| reader::read_run(db, &shared.leases, &run, generation))
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>> {
        self.readers.read(move |db| reader::read_log(db, &run, generation, from, limit))
    }

    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage> {
        let shared = self.shared.clone();
        self.readers.read(move |db| list::list_runs(db, &shared.leases, &query))
    }

    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>> {
        self.readers.read(move |db| queues::list_keys(db, &namespace, queue.as_ref(), limit))
    }

    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse> {
        let now = self.shared.clock.now();
        self.readers.read(move |db| read_quotas::quota_use(db, &namespace, now))
    }

    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>> {
        self.readers.read(move |db| list::count_tasks(db, &namespace))
    }

    fn count_open(&self) -> StoreFuture<'_, OpenCounts> {
        let shared = self.shared.clone();
        self.readers.read(move |db| list::count_open(db, &shared.leases))
    }

    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>> {
        self.readers.read(move |db| ledger::spend(db, &query))
    }

    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>> {
        self.readers.read(move |db| list::count_versions(db, &namespace))
    }

    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>> {
        self.readers.read(move |db| list::list_waits(db, &query))
    }

    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>> {
        self.readers.read(move |db| list::list_tasks(db, &query))
    }

    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64> {
        self.write(|to| Op::Delete(delete, to))
    }

    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>> {
        self.readers.read(move |db| list::list_deleted(db, &query))
    }

    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()> {
        if let Err(error) = payloads::check_kinds(&kinds, self.payload_bytes_max) {
            return refuse(error);
        }
        self.write(|to| Op::RegisterKinds(kinds, to))
    }

    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>> {
        self.readers.read(move |db| list::list_kinds(db, &namespace))
    }

    fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.shared.subscribe(listener);
    }
}

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
