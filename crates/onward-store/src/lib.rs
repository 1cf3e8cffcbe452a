//! The store trait, its errors, the in-memory reference store and the conformance suite.
//!
//! A store reads and writes; it never decides. `onward-core` decides under the run's lock ([`onward_core::run::RunHead`],
//! [`onward_core::task::Task`]) what may be appended, at which index and with which effects; the store carries that out in one
//! atomic write.
//!
//! A write that returned `Ok` is durable. A write that returned an error was not done, except for [`StoreError::Stopped`] and
//! [`StoreError::Unavailable`], whose outcome is unknown: a repeat with the same id resolves it (L5).

#![forbid(unsafe_code)]

pub mod admission;
mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod durable;
mod error;
mod lists;
mod memory;
pub mod payloads;
mod restore;
pub mod sync;
pub mod unit_of_work;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::memo::kept_for;
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Status, Timestamp, WorkerId};

pub use clock::{ManualClock, SystemClock};
pub use error::{Elsewhere, StoreError};
pub use lists::{DeletedQuery, Gaps, RunPage, RunQuery, TaskQuery, WaitQuery, cursor_after, is_behind, page_limit, parse_cursor};
pub use memory::MemoryStore;
pub use onward_core::Consequence;
pub use onward_core::api::{Appended, DeletedRun, Restored, VersionCount};
pub use restore::check_restore;

pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Size up to which a payload is stored inside its event; larger ones are stored once, by content hash.
pub const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Payload bytes after which a read of a log ends early, behind the record that reaches them, whatever the requested limit.
pub const READ_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Default limit on the size of one payload.
pub const PAYLOAD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Number of rows in a list for which the query sets no limit.
pub const PAGE_DEFAULT: usize = 100;

/// Session length of a worker that claims without having sent a heartbeat.
pub const SESSION_DEFAULT: Duration = Duration::from_secs(30);

/// The store's clock, which decides about leases, timers and retention.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;

    /// Returns a time that advances evenly even when the system clock is set: for durations, not for points in time.
    fn steady(&self) -> Timestamp {
        self.now()
    }
}

/// The store trait. Object safe; each write is one atomic operation.
///
/// Futures may be dropped at any time: a submitted write happens as a whole or not at all.
/// Every returned head has the status `running` for a pending run that is leased; the reply to a commit has the written status.
pub trait Store: Send + Sync {
    /// Starts a run, or returns the existing one: the same id with the same kind and input is the same run (L18), even if it is
    /// closed or has continued as new (its first input counts). A refused signal refuses the whole call.
    ///
    /// A child whose parent has closed meanwhile receives its `on_parent_close` action in the same write (L19).
    ///
    /// A start by a caller or a schedule that the quota of the namespace does not permit is refused (NQ1, NQ2).
    ///
    /// With `claim`, a newly created run is leased to that worker in the same write.
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started>;

    /// Writes a log that exists already: a copy from which a run continues, or an imported run. All other rows of the run are
    /// derived from the log (L16); the run is not leased.
    ///
    /// Restoring the same run again, record for record, is a no-op; another run with that key is `RunExists`. A repeated retry
    /// gets its first reply; otherwise the run must have failed in the named generation.
    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored>;

    /// Appends an event from outside at the run's next index, independent of what its worker is doing.
    ///
    /// Checks the idempotency record first, so that a late repeat stays a repeat (L11); then the run (closed, continued as new);
    /// then the wait that an answer needs.
    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended>;

    /// Leases up to `limit` pending, unleased runs of one namespace, oldest first, each with a raised epoch. Runs of other
    /// namespaces are neither leased nor in the way (S6). A sharded store keeps the order within each shard, and no shard is
    /// starved.
    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>>;

    /// Appends `input`, if any, to one run of any kind and leases the run to `worker` if it is pending. Both or neither: a leased
    /// run is `RunHeld`, and a refused input leaves the run unclaimed.
    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne>;

    /// Appends a worker's commit unless the run was claimed since: only the epoch fences (L3, L7). The worker keeps its lease
    /// until it releases it, misses its heartbeats, or the run closes or continues as new; while the run is paused it may commit
    /// step results only. Epochs only grow and none is reused: not across generations, and not for a run that was deleted and
    /// started again.
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed>;

    /// Releases a lease. A lease that is already lost is no error, but shows that its worker is alive (CW3).
    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()>;

    /// Ends a lease whose worker is gone, before its session expires. Such losses in a row pause a run (CW1).
    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()>;

    /// Leases up to `limit` visible tasks of one namespace and the given kinds (L9, S6), by rank (L21); keys of a queue take turns,
    /// within its limits (QL1 to QL6) and those
    /// of the namespace (NQ3, NQ4). Sharded stores order as for runs. Recorded attempts are appended in the same write (K7).
    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>>;

    /// Applies a worker's report on a task it holds; the outcome becomes an input of the task's run in the same write.
    ///
    /// `claim` is the number of the claim, `lease` the time by which a heartbeat extends it.
    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()>;

    /// Makes a task claimable that is quarantined (K3) or waits for a rate limit; fails with `TaskNotQuarantined` for any other
    /// task.
    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()>;

    /// Extends every run lease of a worker and opens its session. Returns whether the session was still open: if not, all its
    /// leases are lost.
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool>;

    /// Returns the runs leased to a worker with the epoch of each claim: for a worker that missed the reply to a claim or could
    /// not release a run.
    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>>;

    /// Processes what is due by the store's clock, at most `limit` of each: fires timers, ends or retries tasks that timed out,
    /// and revokes the leases of workers whose session expired.
    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired>;

    /// Returns the oldest undelivered outbox messages; the outbox dispatcher delivers and then finishes them.
    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>>;

    /// Removes outbox messages that were delivered.
    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()>;

    /// Returns the head of the run's current generation, or of an earlier one; its status is `running` while the run is leased.
    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>>;

    /// Returns up to `limit` records from the one that holds event `from`, in order, with verified checksums; fewer if they are
    /// large ([`payloads::is_long`]). A missing run or generation is `RunNotFound`, never an empty log (F27).
    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>>;

    /// Returns what is new in followed runs: for each run with more than the caller knows, its current head and the further
    /// records of the known generation. Deleted runs are left out.
    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>> {
        Box::pin(async move {
            let mut updates = Vec::new();
            for KnownRun { run, generation, next } in known {
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
                    updates.push(RunUpdate { generation, head, records });
                }
            }
            Ok(updates)
        })
    }

    /// Returns whether other processes write to the same store; their writes reach listeners as notifications only
    /// ([`Change::Elsewhere`]).
    fn is_shared(&self) -> bool {
        false
    }

    /// Broadcasts a message to all processes that share the store, including this one ([`Change::Broadcast`]). At most once, not
    /// recorded.
    fn broadcast(&self, message: Vec<u8>) -> StoreFuture<'_, ()> {
        drop(message);
        Box::pin(std::future::ready(Ok(())))
    }

    /// Announces a server to the others for `lease`; to be repeated. Without a lease the server is removed. A store that is not
    /// shared ignores it.
    fn announce_server(&self, server: ServerInfo, lease: Option<Duration>) -> StoreFuture<'_, ()> {
        drop((server, lease));
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the announced servers, by id.
    fn list_servers(&self) -> StoreFuture<'_, Vec<ServerInfo>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    /// Returns which shard of the runs the store keeps, if [`Store::record_shard`] recorded one. A store with runs and no record
    /// keeps all of them.
    fn read_shard(&self) -> StoreFuture<'_, Option<Shard>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Records permanently which shard the store keeps, unless one is recorded or there are runs; returns the shard that is in
    /// force. A volatile store need not record it.
    fn record_shard(&self, shard: Shard) -> StoreFuture<'_, Shard> {
        Box::pin(std::future::ready(Ok(shard)))
    }

    /// Returns runs in their current generation, newest first, then by id in descending order; `created_from` is inclusive,
    /// `created_until` exclusive. A page starts after its cursor, which is [`cursor_after`] of the last run of the previous page.
    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage>;

    /// Counts the open runs of each kind and version, by name.
    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>>;

    /// Returns open approvals and promises, oldest first.
    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>>;

    /// Returns open tasks in the order in which they were scheduled.
    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>>;

    /// Counts the open tasks of each queue and kind; the default queue first, then by name.
    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>>;

    /// Returns the keys of a queue with open tasks, up to a limit: those with the longest wait first, then those that only have
    /// running tasks, by name.
    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>>;

    /// Returns what a namespace uses of what quotas limit.
    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse>;

    /// Counts the open runs by kind and status, and the open tasks by queue and kind, in all namespaces. Reads no closed runs.
    fn count_open(&self) -> StoreFuture<'_, OpenCounts>;

    /// Returns the ledger by model, day, run or tree: newest day first, otherwise by cost. It agrees with the logs: an event with
    /// a cost and its ledger row are one write (LG3). Deleted runs are included (LG4).
    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>>;

    /// Deletes closed runs with all generations and blobs, but none that has an open child, undelivered outbox messages, or a
    /// reader that would see half of it (L20). Their cost stays in the ledger, and the deletion of a memo's cell is not recorded.
    /// Returns the number of deleted runs.
    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64>;

    /// Returns runs that were deleted one by one, with the given reasons, newest first. Each entry is kept as long as a closed
    /// run of its kind; [`Delete::Expired`] removes it.
    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>>;

    /// Stores the schemas of kinds. Each entry replaces that of its namespace, kind and version; one without schemas removes it.
    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()>;

    /// Returns the kinds of one namespace that have schemas: workflows, then tasks, by name and version; no version sorts first.
    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>>;

    /// Returns the largest accepted payload size, so that callers can check before the store refuses.
    fn payload_bytes_max(&self) -> usize {
        PAYLOAD_BYTES_MAX
    }

    /// Subscribes to changes once they are durable. Notifications only: a lost one costs time, never correctness. Writes of this
    /// process come with their data, writes of other processes only as a notification.
    fn subscribe(&self, listener: Arc<dyn Listener>);
}

/// Returns the future of an operation that fails at once.
pub fn refuse<'a, T: Send + 'a>(error: StoreError) -> StoreFuture<'a, T> {
    Box::pin(std::future::ready(Err(error)))
}

/// Returns a head as callers see it: a pending run that a worker holds is running.
pub fn shown(mut head: RunHead, is_leased: bool) -> RunHead {
    if head.status == Status::Pending && is_leased {
        head.status = Status::Running;
    }
    head
}

#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    /// False when the run existed already.
    pub created: bool,
    pub head: RunHead,
    /// The reply to the signal that came with the start.
    pub signal: Option<Appended>,
    /// The lease, if one was requested and the run was created.
    pub claimed: Option<ClaimedRun>,
}

/// Open runs and tasks of all namespaces.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenCounts {
    /// By kind and status, as callers see it.
    pub runs: BTreeMap<(Name, Status), u64>,
    /// Ordered as by [`Store::count_tasks`].
    pub tasks: Vec<TaskCount>,
}

impl OpenCounts {
    /// Adds the counts of another database.
    pub fn add(&mut self, other: OpenCounts) {
        other.runs.into_iter().for_each(|(key, count)| *self.runs.entry(key).or_default() += count);
        self.tasks = sum_tasks(std::mem::take(&mut self.tasks).into_iter().chain(other.tasks));
    }
}

/// Sums counts of tasks by queue and kind; the default queue first, then by name.
pub fn sum_tasks(counts: impl IntoIterator<Item = TaskCount>) -> Vec<TaskCount> {
    let mut sums: BTreeMap<(Option<Name>, Name), TaskCount> = BTreeMap::new();
    for count in counts {
        match sums.entry((count.queue.clone(), count.kind.clone())) {
            Entry::Vacant(vacant) => drop(vacant.insert(count)),
            Entry::Occupied(mut sum) => sum.get_mut().add(&count),
        }
    }
    sums.into_values().collect()
}

/// A run given by its logs.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreRun {
    pub key: RunKey,
    pub what: Restore,
    /// Outbox messages written in the same transaction.
    pub outbox: Vec<OutboxMessage>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Restore {
    /// A run that does not exist yet, with the logs of all its generations.
    Run { logs: Vec<Vec<Record>> },
    /// The next generation of a run that failed in generation `after`.
    Retry { after: u32, log: Vec<Record>, request_id: String },
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedRun {
    /// Has the epoch to commit under.
    pub head: RunHead,
    /// The whole log, if the store has it at hand.
    pub records: Option<Vec<Record>>,
}

/// The answer to [`Store::claim_run`].
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimedOne {
    /// The reply to the input.
    pub appended: Option<Appended>,
    /// The run after the input.
    pub head: RunHead,
    /// The lease; none if the run is waiting, paused or closed.
    pub claimed: Option<ClaimedRun>,
}

#[derive(Debug, Clone)]
pub struct ClaimRuns {
    pub worker: WorkerId,
    /// The worker's namespace.
    pub namespace: Namespace,
    /// The kinds and versions the worker has; `None` stands for runs without a version.
    pub knows: Arc<BTreeMap<Name, Vec<Option<Name>>>>,
    pub limit: usize,
}

#[derive(Debug, Clone)]
pub struct ClaimTasks {
    pub worker: WorkerId,
    /// The worker's namespace.
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
    /// True if `limit` stopped it early.
    pub more: bool,
    /// The next due time.
    pub next_due: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutboxId(pub u64);

/// One of several databases among which the runs are divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard {
    /// Id that the databases of one cluster have in common.
    pub cluster: String,
    /// Counted from 0.
    pub position: u32,
    pub count: u32,
}

impl Shard {
    /// Returns the shard of a single database that keeps all runs.
    pub fn all(cluster: String) -> Shard {
        Shard { cluster, position: 0, count: 1 }
    }
}

/// Position up to which a caller knows a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRun {
    pub run: RunKey,
    pub generation: u32,
    /// All events below it are known.
    pub next: Index,
}

/// New records of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunUpdate {
    /// The known generation; the run may have continued in a later one.
    pub generation: u32,
    pub head: RunHead,
    /// Records of that generation.
    pub records: Vec<Record>,
}

/// A server of a cluster that shares a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// Id of one server process; a restart gets another.
    pub id: Name,
    /// URL at which other servers reach it.
    pub url: String,
    pub version: String,
    pub started_at: Timestamp,
    /// Time of the last announcement by the store's clock; the announcing server need not set it.
    pub last_seen_at: Timestamp,
    /// Encoded list of its workers; only servers read it.
    pub workers: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Delete {
    /// One run, at once, for the stated reason.
    Run { key: RunKey, reason: String },
    /// Up to `limit` runs whose retention is over.
    Expired { retention: Retention, limit: usize },
}

/// Time for which closed runs are kept.
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
        self.by_kind.get(kind).copied().or_else(|| kept_for(kind)).unwrap_or(self.default)
    }

    /// Returns the time of an end, in milliseconds, up to which closed runs of this kind are not kept any longer.
    pub fn kept_since(&self, kind: &str, now: Timestamp) -> Option<i64> {
        let keep = durable::seal::number(onward_core::time::millis(self.of(&Name::new(kind).ok()?)));
        Some((now.0 as i64).saturating_sub(keep))
    }
}

/// Receiver of changes after they are durable, called on the store's own thread: it must be fast and must not call back.
pub trait Listener: Send + Sync {
    fn changed(&self, change: &Change);
}

#[derive(Debug)]
pub enum Change {
    /// A record is in the log; records of one run come in order.
    Appended { head: RunHead, record: Record },
    /// An unleased run is pending.
    RunPending { head: RunHead },
    /// A task may be claimed.
    TaskQueued { task: Box<Task> },
    /// A due time is earlier than all before.
    DueAt(Timestamp),
    /// There are outbox messages to deliver.
    OutboxGrew,
    /// Another process appended to a run; `ends` if that closed its log.
    Elsewhere { run: RunKey, ends: bool },
    /// Limits of a queue keep tasks back that a worker could take.
    HeldBack { namespace: Namespace, queue: Option<Name> },
    /// Another process left a claimable run or task in this namespace.
    WorkElsewhere { namespace: Namespace },
    /// A broadcast of [`Store::broadcast`].
    Broadcast { message: Vec<u8> },
    /// Notifications of other processes may have been lost.
    Missed,
}
