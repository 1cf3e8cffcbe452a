//! Where logs are kept: the port, its errors, the in-memory reference store and the conformance suite.
//!
//! A store reads and writes; it never decides. What may be appended, at which index and with which consequences is
//! asked of `onward-core` ([`onward_core::run::RunHead`], [`onward_core::task::Task`]) under the run's lock, and carried out in one
//! atomic write.
//!
//! Every write that returned `Ok` is durable. A write that returned an error was not done, but for
//! [`StoreError::Stopped`] and [`StoreError::Unavailable`], whose outcome is unknown: a repeat with the same id finds out (L5).

#![forbid(unsafe_code)]

mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
mod cursor;
mod error;
mod gaps;
pub mod judged;
pub mod kept;
mod memory;
pub mod payloads;
mod restore;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::family::family;
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::run::{Commit, Committed, Delivery, Input, NewRun, Wait, WaitKind};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport, TaskState};
use onward_core::{
    AttributeMatch, Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Status, Timestamp, WorkerId,
};

pub use clock::{ManualClock, SystemClock};
pub use cursor::{cursor_after, parse_cursor};
pub use error::{Consequence, Elsewhere, StoreError};
pub use gaps::Gaps;
pub use memory::MemoryStore;
pub use restore::check_restore;

pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The payload size up to which data is kept inside its event; larger ones are stored once, by content.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// A read of a log ends behind the record with which its payloads have so many bytes, however many records were asked for.
pub const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The default limit on one payload.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many rows a list returns that is not told how many.
pub const PAGE_DEFAULT: usize = 100;

/// How long a worker is known that claims without ever having sent a heartbeat.
pub const SESSION_DEFAULT: Duration = Duration::from_secs(30);

/// The judge of leases, timers and retention.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Returns a time that goes on evenly even when the clock is set: for how long something takes or lasts, not for when it was.
    fn steady(&self) -> Timestamp {
        self.now()
    }
}

/// The port. Object safe; each write is one atomic operation.
///
/// Futures may be dropped at any time: a write that was submitted happens or not as a whole, whoever waits for it.
/// Every head that a store returns says `running` for a pending run that somebody holds; a commit's answer says what was written.
pub trait Store: Send + Sync {
    /// Starts a run, or finds it: the same id with the same kind and input is the same run (L18), also when it is closed or has
    /// continued as new since (its first input counts). A refused signal refuses the whole call.
    ///
    /// A child whose parent has ended meanwhile is sent what its `on_parent_close` says in the same write (L19).
    ///
    /// With `claim`, a run that was created is leased to that worker in the same write.
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started>;

    /// Writes a log that exists already: a copy with which a run goes on, or a run that comes from elsewhere. Everything else that is
    /// kept about the run follows from the log (L16); nobody holds it.
    ///
    /// The same run again, record for record, is no-op; another one of that key is `RunExists`. A retry that was taken before gets its
    /// first answer; otherwise the run must have failed, in the generation that is named.
    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored>;

    /// Appends an event from outside at the run's next index, whatever its worker is doing.
    ///
    /// Its `once` slot is looked at first, so that a late repeat stays a repeat (L11); then the run (closed, continued as new);
    /// then the wait that an answer needs.
    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended>;

    /// Leases up to `limit` pending runs of one namespace that nobody holds, oldest first, each with a raised epoch. What waits in
    /// other namespaces neither is leased nor delays it (S6). A store of several databases promises the order for each of them, and
    /// that none is passed over for another one again and again.
    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>>;

    /// Takes one very run, whatever its kind: appends `input`, if there is one, and leases the run to `worker` if it has something to do.
    /// Both or neither: a run that anybody holds is `RunHeld`, and an input that is refused leaves the run unclaimed.
    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne>;

    /// Appends what a worker decided, unless somebody has claimed the run since: the epoch alone fences (L3, L7). The worker keeps
    /// its lease until it releases it, falls silent, or the run closes or continues as new; while the run is paused it may bring
    /// results of steps and nothing else. Epochs only grow, and none is given twice: not over generations, and not to a run that was
    /// deleted and started again.
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed>;

    /// Gives a lease back. A lease that is lost already is no error.
    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()>;

    /// Leases up to `limit` visible tasks of one namespace and the given kinds, by priority, then oldest first (L9, S6); of several
    /// databases, as for runs. Where attempts are recorded, they are in the same write (K7).
    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>>;

    /// Takes a worker's word about the task it holds; the outcome becomes an input of the task's run in the same write.
    ///
    /// `claim` is the number of the claim, `lease` how long a heartbeat extends it.
    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()>;

    /// Lets a quarantined task be claimed again (K3); any other task is `TaskNotQuarantined`.
    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()>;

    /// Extends every run lease of a worker; makes the worker known. Returns whether the worker was still known:
    /// if not, all its leases are lost.
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool>;

    /// The runs that are leased to a worker, each with the epoch of its claim: for a worker that may have been given one without having
    /// heard of it, or could not give one back.
    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>>;

    /// Does what has become due by the store's clock, at most `limit` of each: fires timers, ends or retries tasks that timed out,
    /// and takes the leases of silent workers away.
    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired>;

    /// The oldest news for other runs that nobody has finished yet; a courier hands them over and finishes them.
    fn deliveries(&self, limit: usize) -> StoreFuture<'_, Vec<(DeliveryId, Delivery)>>;

    /// Removes news that were handed over.
    fn finish_deliveries(&self, done: Vec<DeliveryId>) -> StoreFuture<'_, ()>;

    /// The run's current generation, or an earlier one. Its status is `running` while somebody holds its lease.
    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>>;

    /// Up to `limit` records from the one that holds event `from`, in order; each one's checksum is checked. Fewer where they are large
    /// ([`payloads::is_long`]). A run or generation that is not there is `RunNotFound`, never an empty log (F27).
    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>>;

    /// What is new of runs that somebody follows: of each run that has more than is known of it, its current head and the records from
    /// there on, in the known generation. A run that is gone is left out.
    fn read_since(&self, known: Vec<Known>) -> StoreFuture<'_, Vec<Since>> {
        Box::pin(async move {
            let mut news = Vec::new();
            for Known { run, generation, next } in known {
                let Some(head) = self.read_run(run.clone(), None).await? else { continue };
                if (head.generation, head.next_index) > (generation, next) {
                    let mut records = self.read_log(run.clone(), Some(generation), next, usize::MAX).await?;
                    while payloads::is_long(&records) {
                        let from = records.last().map_or(next, Record::next_index);
                        let more = self.read_log(run.clone(), Some(generation), from, usize::MAX).await?;
                        if more.is_empty() {
                            break;
                        }
                        records.extend(more);
                    }
                    news.push(Since { generation, head, records });
                }
            }
            Ok(news)
        })
    }

    /// Whether other processes write into it too, of which listeners hear by hints only ([`Change::Elsewhere`]).
    fn is_shared(&self) -> bool {
        false
    }

    /// Says something to all processes that share the store, this one included ([`Change::Told`]). At most once, and not recorded.
    fn tell_others(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        drop(message);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Makes a server known to the others for `lease`, again and again; without a lease it has gone. A store that is not shared needs
    /// not know.
    fn announce_server(&self, server: ServerInfo, lease: Option<Duration>) -> StoreFuture<'_, ()> {
        drop((server, lease));
        Box::pin(std::future::ready(Ok(())))
    }

    /// The servers that are known, by id.
    fn list_servers(&self) -> StoreFuture<'_, Vec<ServerInfo>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Which share of the runs it keeps, if it was told ([`Store::take_share`]). A store that is not told, but has runs, keeps all.
    fn read_share(&self) -> StoreFuture<'_, Option<Share>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Remembers for good which share of the runs it keeps, unless it remembers one or has runs already; returns what counts then. A
    /// store that forgets its runs need not remember.
    fn take_share(&self, share: Share) -> StoreFuture<'_, Share> {
        Box::pin(std::future::ready(Ok(share)))
    }

    /// Runs in their current generation, newest first and, of those of one moment, by id backwards; `created_from` is inclusive,
    /// `created_until` is not. A page begins behind its cursor, which is what [`cursor_after`] says of the last run of the page before.
    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage>;

    /// How many open runs need which version of which kind, by name.
    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>>;

    /// Open questions, oldest first.
    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>>;

    /// Open tasks in the order in which they were scheduled.
    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>>;

    /// How many open tasks of which kind stand in which queue; the default queue first, then by name.
    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>>;

    /// What was spent, by model, day, run or tree: the newest day first, or else what cost most. It is never apart from the logs: an event
    /// that says what was spent and the row that counts it are one write (LG3). Runs that were deleted are in it (LG4).
    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>>;

    /// Deletes whole closed runs (all generations, with their blobs), and never one with an open child, unfinished news, or a reader
    /// that would see half of it (L20). What they have cost stays in the ledger. Returns how many went.
    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64>;

    /// Runs that were deleted one by one, with the reasons that were given, newest first. Each is remembered for as long as a closed run
    /// of its kind is kept: [`Delete::Expired`] forgets it.
    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>>;

    /// Keeps what kinds take and give. Each entry replaces the one of its namespace, kind and version; one without schemas removes it.
    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()>;

    /// The kinds of one namespace that have schemas: workflows, then tasks, by name and version; the one without a version first.
    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>>;

    /// The largest payload that is taken. Whoever makes payloads can say so before the store refuses them.
    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }

    /// Asks to be told of every change, after it is durable. Hints only: a lost one costs time, never correctness. What this process
    /// wrote is told whole; of what others wrote into a shared store, that they did.
    fn subscribe(&self, listener: Arc<dyn Listener>);
}

#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    /// False when the run existed already.
    pub created: bool,
    pub head: RunHead,
    /// The answer to the signal that came with the start.
    pub signal: Option<Appended>,
    /// The lease, when one was asked for and the run was created.
    pub claimed: Option<ClaimedRun>,
}

/// A run as its logs tell it.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreRun {
    pub key: RunKey,
    pub what: Restore,
    /// Sent in the same write.
    pub news: Vec<Delivery>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Restore {
    /// A run that is not there yet, with the logs of all its generations.
    Run { logs: Vec<Vec<Record>> },
    /// The next generation of a run that failed in generation `after`.
    Retry { after: u32, log: Vec<Record>, request_id: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct Restored {
    /// False when it was there already.
    pub created: bool,
    pub head: RunHead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    pub index: Index,
    pub at: Timestamp,
    /// The very same input was taken before; this is the first answer.
    pub repeated: bool,
    /// The run was waiting and has something to do now.
    pub woke: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedRun {
    /// With the epoch to commit under.
    pub head: RunHead,
    /// The whole log, when the store has it at hand.
    pub records: Option<Vec<Record>>,
}

/// The answer to [`Store::claim_run`].
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedOne {
    /// The answer to the input that came along.
    pub appended: Option<Appended>,
    /// The run as it stands after it.
    pub head: RunHead,
    /// The lease; none when the run waits, is paused or closed.
    pub claimed: Option<ClaimedRun>,
}

#[derive(Debug, Clone)]
pub struct ClaimRuns {
    pub worker: WorkerId,
    /// The worker's own.
    pub namespace: Namespace,
    /// The kinds and versions the worker has; `None` as version stands for runs without one.
    pub knows: Arc<BTreeMap<Name, Vec<Option<Name>>>>,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub struct ClaimTasks {
    pub worker: WorkerId,
    /// The worker's own.
    pub namespace: Namespace,
    pub queues: Vec<Option<Name>>,
    pub kinds: Arc<Vec<Name>>,
    pub limit: usize,
    pub lease: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Expired {
    pub timers_fired: u64,
    pub tasks_expired: u64,
    pub workers_lost: u64,
    /// Whether `limit` stopped it early.
    pub more: bool,
    /// When the next thing becomes due.
    pub next_due: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryId(pub u64);

/// Which of several databases one is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// What the databases that belong together have in common.
    pub cluster: String,
    /// Counted from 0.
    pub position: u32,
    pub count: u32,
}

impl Share {
    /// Of a database that keeps all runs.
    pub fn all(cluster: String) -> Share {
        Share { cluster, position: 0, count: 1 }
    }
}

/// How far a run is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    pub run: RunKey,
    pub generation: u32,
    /// Everything below it is known.
    pub next: Index,
}

/// What is new of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Since {
    /// The generation that was known; the run may have gone on in another one.
    pub generation: u32,
    pub head: RunHead,
    /// Of that generation.
    pub records: Vec<Record>,
}

/// A server of those that share a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// One life of a server process.
    pub id: Name,
    /// Where the other servers reach it.
    pub url: String,
    pub version: String,
    pub started_at: Timestamp,
    /// When it was last announced, by the store's clock; whoever announces it need not know.
    pub heard_at: Timestamp,
    /// What it says of those who work for it; only servers read it.
    pub roster: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunQuery {
    pub namespace: Namespace,
    pub kind: Option<Name>,
    /// Empty means any; `None` stands for runs without one.
    pub versions: Vec<Option<Name>>,
    /// Empty means any.
    pub statuses: Vec<Status>,
    /// All of these must match.
    pub attributes: Vec<AttributeMatch>,
    pub created_from: Option<Timestamp>,
    pub created_until: Option<Timestamp>,
    /// 0 means the store's default page.
    pub limit: usize,
    /// Where the page before ended.
    pub cursor: Option<String>,
    /// If a part of the list will do: where to note which databases are missing.
    pub gaps: Option<Gaps>,
}

impl RunQuery {
    /// Whether a run is what is looked for, wherever the page begins.
    pub fn matches(&self, head: &RunHead) -> bool {
        head.key.namespace == self.namespace
            && self.kind.as_ref().is_none_or(|kind| *kind == head.kind)
            && (self.versions.is_empty() || self.versions.contains(&head.version))
            && (self.statuses.is_empty() || self.statuses.contains(&head.status))
            && self.attributes.iter().all(|wanted| wanted.matches(&head.attributes))
            && self.created_from.is_none_or(|from| head.created_at >= from)
            && self.created_until.is_none_or(|until| head.created_at < until)
    }
}

/// How many open runs need a version of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionCount {
    pub kind: Name,
    pub version: Option<Name>,
    pub open: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunPage {
    pub runs: Vec<RunHead>,
    pub next: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct WaitQuery {
    pub namespace: Namespace,
    pub kind: Option<WaitKind>,
    pub run: Option<RunKey>,
    /// With `run`: also of the runs below it. A store answers with the run's whole family ([`onward_core::family`]), of which they are a
    /// part; who asks a runtime is given them alone.
    pub below: bool,
    /// 0 means the store's default page.
    pub limit: usize,
    /// If a part of the list will do: where to note which databases are missing.
    pub gaps: Option<Gaps>,
}

impl WaitQuery {
    pub fn matches(&self, wait: &Wait) -> bool {
        let is_its = |run: &RunKey| match self.below {
            true => run.namespace == wait.run.namespace && family(&run.id) == family(&wait.run.id),
            false => *run == wait.run,
        };
        wait.run.namespace == self.namespace
            && self.kind.is_none_or(|kind| kind == wait.kind)
            && self.run.as_ref().is_none_or(is_its)
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct TaskQuery {
    pub namespace: Namespace,
    pub state: Option<TaskState>,
    pub run: Option<RunKey>,
    /// 0 means the store's default page.
    pub limit: usize,
    /// If a part of the list will do: where to note which databases are missing.
    pub gaps: Option<Gaps>,
}

impl TaskQuery {
    pub fn matches(&self, task: &Task) -> bool {
        task.id.run.namespace == self.namespace
            && self.state.is_none_or(|state| state == task.state)
            && self.run.as_ref().is_none_or(|run| *run == task.id.run)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Delete {
    /// One run, at once, for the stated reason.
    Run { key: RunKey, reason: String },
    /// Up to `limit` runs whose time is over.
    Expired { retention: Retention, limit: usize },
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeletedQuery {
    pub namespace: Namespace,
    pub run: Option<RunKey>,
    /// 0 means the store's default page.
    pub limit: usize,
    /// If a part of the list will do: where to note which databases are missing.
    pub gaps: Option<Gaps>,
}

/// What is left of a run that somebody deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedRun {
    pub key: RunKey,
    pub kind: Name,
    pub reason: String,
    pub deleted_at: Timestamp,
}

/// How long closed runs are kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Retention {
    pub default: Duration,
    pub by_kind: BTreeMap<Name, Duration>,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention { default: Duration::from_secs(30 * 24 * 3_600), by_kind: BTreeMap::new() }
    }
}

impl Retention {
    pub fn of(&self, kind: &Name) -> Duration {
        self.by_kind.get(kind).copied().unwrap_or(self.default)
    }
}

/// Hears of changes after they are durable, on the store's own thread: it must be quick and must not call back.
pub trait Listener: Send + Sync {
    fn changed(&self, change: Change<'_>);
}

#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    /// A record is in the log; records of one run come in order.
    Appended { head: &'a RunHead, record: &'a Record },
    /// A run that nobody holds has something to do.
    RunPending { head: &'a RunHead },
    /// A task may be claimed.
    TaskQueued { task: &'a Task },
    /// Something becomes due earlier than anything before.
    DueAt(Timestamp),
    /// There are news to deliver.
    DeliveryAdded,
    /// Another process has appended to a run; `ends` if that ended its log.
    Elsewhere { run: &'a RunKey, ends: bool },
    /// In this namespace another process has left a run or a task to be claimed.
    WorkElsewhere { namespace: &'a Namespace },
    /// Somebody said this to all ([`Store::tell_others`]).
    Told { message: &'a [u8] },
    /// Something may have happened elsewhere of which nothing was heard.
    Missed,
}
