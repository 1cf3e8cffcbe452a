//! The unit of work: how an operation changes the rows of its runs, written once for all stores.
//!
//! Owns the order in which rows are read, decided about and changed. A store implements [`Rows`]: it loads rows into the
//! [`WorkingSet`] and saves what changed there. `onward-core` decides what may be appended and which effects follow.
//!
//! Invariants:
//! - UW1: an operation that is refused has changed nothing in the working set.
//! - UW2: every change of a run ends with [`settle`], which derives its lease and its place in the queue of claimable runs.

pub mod append;
pub mod claim;
pub mod effects;
pub mod expire;
pub mod queues;
pub mod quotas;
pub mod restore;
pub mod table;
pub mod tasks;
pub mod working_set;

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use onward_core::event::TaskAttemptEnded;
use onward_core::ledger::LedgerKey;
use onward_core::queue::{QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::quota::QuotaSettings;
use onward_core::spend::PicoDollars;
use onward_core::task::Task;
use onward_core::{CallId, Epoch, Name, Namespace, Record, RunKey, Status, Timestamp};

pub use append::{append_input, commit, start_run};
pub use claim::{claim_run, claim_runs, count_lost_worker, lose_run, release_run};
pub use expire::expire;
pub use queues::{KEYS_MAX, KeyPage, SharedQueue};
pub use restore::{put_rows, restore_run};
pub use table::Table;
pub use tasks::{claim_tasks, report_task, retry_task};
pub use working_set::{LoadedRun, NewRecord, QueuedTask, RecordBody, RunRef, Runs, Timer, WorkingSet};

use crate::{Appended, Change, ClaimRuns, ClaimTasks, StoreError};

/// Access to the rows of a store, for one operation or one batch of operations.
///
/// Methods that read may be called in any order; a store whose reads do not wait returns futures that are ready
/// ([`block_on_ready`]).
#[expect(async_fn_in_trait, reason = "statically dispatched; no caller needs a bound on the futures")]
pub trait Rows: Sized {
    type Error: RowError;
    /// What the store keeps with a loaded run.
    type Own;
    /// The stored form of a record.
    type Body: RecordBody;
    /// Where a task that may be claimed is stored.
    type TaskPlace;

    /// False if the cost of an attempt that is in one record with its outcome needs no idempotency record;
    /// [`Rows::find_counted`] finds it then.
    const COST_NEEDS_SLOT: bool = true;

    fn set(&mut self) -> &mut WorkingSet<Self::Own, Self::Body>;

    /// Loads the current generation of a run.
    async fn load_run(&mut self, key: &RunKey) -> Result<Option<RunRef>, Self::Error>;

    /// Loads rows of a run into its tables.
    async fn load(&mut self, run: RunRef, wanted: RowRequest<'_>) -> Result<(), Self::Error>;

    /// Returns whether the stored generations of a run have exactly these logs.
    async fn has_logs(&mut self, run: RunRef, logs: &[Vec<Record>]) -> Result<bool, Self::Error>;

    /// Returns the record of an attempt whose cost has no idempotency record ([`Rows::COST_NEEDS_SLOT`]).
    async fn find_counted(&mut self, run: RunRef, attempt: &TaskAttemptEnded) -> Result<Option<Appended>, Self::Error> {
        let _ = (run, attempt);
        Ok(None)
    }

    /// Returns what the store keeps with a new run, and the run's epoch, which is above `floor` if that is not zero.
    fn new_run(&mut self, floor: Epoch) -> Result<(Self::Own, Epoch), Self::Error>;

    /// Returns an epoch above `last` that was never used (L7).
    fn next_epoch(&mut self, last: Epoch) -> Epoch;

    /// Returns the time at which an input is appended to a run.
    fn input_time(&mut self, run: RunRef) -> Timestamp {
        let _ = run;
        self.set().now
    }

    /// Finds runs that may be claimed, oldest first.
    async fn ready_runs(&mut self, request: &ClaimRuns) -> Result<Vec<RunRef>, Self::Error>;

    /// Returns the whole log of a run that was claimed, if it is short or was read before.
    async fn log_at_hand(&mut self, run: RunRef) -> Result<Option<Vec<Record>>, Self::Error>;

    /// Finds those of the requested queues that have settings or waiting tasks with keys. Until the operation is durable, no
    /// other claim shares out those with settings, nor do their settings change.
    async fn shared_queues(&mut self, request: &ClaimTasks) -> Result<Vec<SharedQueue>, Self::Error>;

    /// Returns the settings of a queue, if it has any.
    async fn queue_settings(&mut self, namespace: &Namespace, queue: Option<&Name>)
    -> Result<Option<QueueSettings>, Self::Error>;

    /// Counts the tasks of a queue that may be claimed, up to a limit.
    async fn count_waiting(&mut self, namespace: &Namespace, queue: Option<&Name>, limit: u64) -> Result<u64, Self::Error>;

    /// Counts the leases of a queue, up to a limit.
    async fn count_held(&mut self, shared: &SharedQueue, limit: u32) -> Result<u32, Self::Error>;

    /// Finds up to [`KEYS_MAX`] keys with tasks that the request may claim, in the order of their names.
    async fn waiting_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        page: &KeyPage,
    ) -> Result<Vec<WaitingKey>, Self::Error>;

    /// Finds so many tasks of each key that may be claimed, those of a key by rank.
    async fn tasks_of_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        wanted: &[(Option<Name>, u32)],
    ) -> Result<Vec<(Self::TaskPlace, Task)>, Self::Error>;

    /// Returns the starts of a queue as a whole, if any were recorded.
    async fn load_starts(&mut self, shared: &SharedQueue) -> Result<Option<QueueStarts>, Self::Error>;

    /// Stores starts, and removes some that no longer count.
    async fn put_starts(&mut self, changed: Vec<QueueStarts>) -> Result<(), Self::Error>;

    /// Returns whose turn it is in a queue.
    fn turn(&mut self, shared: &SharedQueue) -> Turn;

    fn put_turn(&mut self, shared: &SharedQueue, turn: Turn);

    /// Returns the quota of a namespace, if it has one. Until an operation that starts a run or claims tasks is durable, no other
    /// one does so in the namespace, nor does its quota change.
    async fn quota(&mut self, namespace: &Namespace) -> Result<Option<QuotaSettings>, Self::Error>;

    /// Counts the open runs of a namespace, up to a limit, without internal runs (NQ1).
    async fn count_open_runs(&mut self, namespace: &Namespace, limit: u64) -> Result<u64, Self::Error>;

    /// Counts the leases of tasks of a namespace, up to a limit (NQ3).
    async fn count_leases(&mut self, namespace: &Namespace, limit: u32) -> Result<u32, Self::Error>;

    /// Returns the recorded cost of attempts of a namespace that began on a day (NQ4).
    async fn spent_on(&mut self, namespace: &Namespace, day: u32) -> Result<PicoDollars, Self::Error>;

    /// Adds a cost that a row of the ledger counts from now on. A store that sums the ledger itself need not do anything.
    fn add_spent(&mut self, namespace: &Namespace, day: u32, cost: PicoDollars) {
        let _ = (namespace, day, cost);
    }

    /// Finds tasks without a key that may be claimed, in claim order.
    async fn ready_tasks(&mut self, request: &ClaimTasks) -> Result<Vec<(Self::TaskPlace, Task)>, Self::Error>;

    /// Stores a task that was claimed; its run need not be loaded.
    async fn put_claimed(&mut self, place: Self::TaskPlace, task: Task) -> Result<(), Self::Error>;

    /// Handles a task that cannot be claimed because its run is damaged.
    async fn skip_task(&mut self, place: Self::TaskPlace, error: StoreError) -> Result<(), Self::Error> {
        let _ = (place, error);
        Ok(())
    }

    /// Makes delayed tasks claimable whose time has come, up to a limit; returns whether there may be more.
    async fn show_delayed_tasks(&mut self) -> Result<bool, Self::Error>;

    /// Finds timers that are due.
    async fn due_timers(&mut self, limit: usize) -> Result<Due<(RunRef, CallId)>, Self::Error>;

    /// Finds tasks that timed out.
    async fn due_tasks(&mut self, limit: usize) -> Result<Due<(RunRef, QueuedTask)>, Self::Error>;

    /// Ends expired sessions. Returns the runs that their workers held, with their leases, and the number of sessions.
    async fn end_sessions(&mut self, limit: usize) -> Result<(Due<RunRef>, usize), Self::Error>;

    /// Saves what changed, so that later reads of the store see it. A store that saves a whole batch at its end and reads its
    /// own changes need not do anything.
    async fn save(&mut self) -> Result<(), Self::Error>;
}

/// Rows to be loaded. Rows that are known already are not read again.
pub enum RowRequest<'a> {
    /// Idempotency records by key.
    Slots(Vec<String>),
    Wait(&'a CallId),
    Task(&'a CallId),
    /// All timers and tasks of the run.
    TimersAndTasks,
    Ledger(&'a LedgerKey),
    /// The hash of the input that the run was first started with.
    InputHash,
    /// The final head of an earlier generation.
    PastHead(u32),
    /// The open children in key order; with a generation, those of other generations may be left out. Read at each request.
    Children(Option<u32>),
}

/// What is due, up to a limit.
pub struct Due<T> {
    pub found: Vec<T>,
    /// True if the limit left something out.
    pub more: bool,
}

/// An error of a store while it executes an operation.
pub trait RowError: From<StoreError> {
    /// Returns the error if the operation alone is refused; otherwise the whole batch fails with `Err`.
    fn refusal(self) -> Result<StoreError, Self>;
}

impl RowError for StoreError {
    fn refusal(self) -> Result<StoreError, StoreError> {
        Ok(self)
    }
}

/// Returns the current generation of a run that must exist.
pub async fn require<R: Rows>(rows: &mut R, key: &RunKey) -> Result<RunRef, R::Error> {
    rows.load_run(key).await?.ok_or_else(|| StoreError::RunNotFound { key: key.clone() }.into())
}

/// Updates the lease of a run and its place in the queue of claimable runs: the last step of every change (UW2).
pub fn settle<R: Rows>(rows: &mut R, run: RunRef) {
    let loaded = rows.set().change(run);
    let status = loaded.head.status;
    if status.is_closed() {
        loaded.lease = None;
    }
    if status != Status::Pending || loaded.lease.is_some() {
        loaded.ready = None;
    } else if loaded.ready.is_none() {
        let set = rows.set();
        let order = set.next_order();
        set.runs[run].ready = Some(order);
        set.notify(|set| Change::RunPending { head: set.runs[run].head.clone() });
    }
}

/// Runs a future of a store whose reads do not wait.
pub fn block_on_ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the rows of this store are read without waiting"),
    }
}
