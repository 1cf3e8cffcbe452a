//! The unit of work of one transaction.
//!
//! Owns the working set of a batch: the locked runs, the rows that were read, and the changes. Operations are decided one after
//! the other by [`onward_store::unit_of_work`], as if each had the database alone, and written together at the end
//! ([`crate::write::save`]).
//!
//! Invariants:
//! - DB1: nothing is decided about a run whose row this transaction has not locked; its timers, tasks, waits and idempotency
//!   records change only under that lock, or (a task that is claimed) under their own.
//! - DB2 (UW1): an operation that is refused has changed nothing here.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use onward_core::queue::{QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::quota::QuotaSettings;
use onward_core::spend::PicoDollars;
use onward_core::task::Task;
use onward_core::{Attribute, CallId, Epoch, Hash, Index, Name, Namespace, Record, RunHead, RunKey, Status, Timestamp, WorkerId};
use onward_store::durable::{Blobs, Body};
use onward_store::unit_of_work::{
    Due, KeyPage, LoadedRun, QueuedTask, RowError, RowRequest, Rows, RunRef, SharedQueue, WorkingSet,
};
use onward_store::{ClaimRuns, ClaimTasks, StoreError};

use crate::connection::sql::{Db, Sql};
use crate::connection::transaction::CommittedChanges;
use crate::error::{OpError, Outcome, damaged_row};
use crate::read::reader::read_records;
use crate::restore_guard::TransactionStart;
use crate::row::unseal_head;
use crate::write::queues::{QueueName, Turns};
use crate::write::quotas::{LockedQuotas, Spent};

pub(crate) struct UnitOfWork<'c> {
    pub db: &'c Db,
    pub set: WorkingSet<PgRun, Body>,
    /// Number of records before the current operation: one that is refused has added none (DB2).
    pub records_before: usize,
    /// The state of the restore guard, read after the locks.
    pub start: TransactionStart,
    /// Reserved numbers for new runs.
    pub fresh: VecDeque<i64>,
    /// Keys of the runs that were locked if they exist (DB1).
    pub locked_keys: HashSet<RunKey>,
    pub numbers: HashMap<i64, RunRef>,
    /// Runs with a damaged row, and their numbers.
    pub damaged: HashMap<RunKey, i64>,
    /// Runs of which another damaged row was reported to a caller.
    pub needs_repair: BTreeSet<RunKey>,
    pub blobs: Vec<(i64, Blobs)>,
    /// Tasks that were claimed, with the numbers of their runs.
    pub claimed: Vec<(i64, QueuedTask)>,
    /// The result of the query for claimable tasks, if it came with another answer.
    pub found_tasks: Option<Vec<tokio_postgres::Row>>,
    pub turns: Arc<Turns>,
    /// Settings of queues that were read; none for a queue without.
    pub settings: HashMap<QueueName, Option<QueueSettings>>,
    /// The quotas that are locked (DB14).
    pub quotas: LockedQuotas,
    /// The number of stored open runs of namespaces, with the limit of the count.
    pub open_runs: HashMap<Namespace, (u64, u64)>,
    /// Costs that this transaction records.
    pub spent: Spent,
    /// Short logs of runs that are claimed.
    pub logs: HashMap<RunRef, Vec<Record>>,
}

/// A locked run.
pub(crate) type LockedRun = LoadedRun<PgRun, Body>;

/// The part of a locked run that only this store has.
pub(crate) struct PgRun {
    pub rk: i64,
    /// The stored columns; none if the run is new.
    pub stored: Option<Stored>,
    /// The open children as stored, once they were read.
    pub children: Option<Vec<RunHead>>,
}

/// Columns of a run's row beside its head; while they are unchanged, only the head is written.
#[derive(PartialEq)]
pub(crate) struct Stored {
    pub columns: Columns,
    pub attributes: Vec<Attribute>,
}

pub(crate) type Columns = (Status, Name, Option<Name>, Timestamp, Option<Timestamp>, Option<i64>, Option<WorkerId>);

/// Number of order numbers per microsecond of the database clock.
pub(crate) const ORDERS_PER_MICROSECOND: i64 = 1024;

/// Returns the columns of a run's row beside its head.
pub(crate) fn columns_of(run: &LockedRun) -> Columns {
    let head = &run.head;
    (head.status, head.kind.clone(), head.version.clone(), head.created_at, head.ended_at, run.ready, run.lease.clone())
}

/// Creates a run as it was read.
pub(crate) fn stored_run(
    rk: i64,
    head: RunHead,
    input_hash: Hash,
    worker: Option<WorkerId>,
    ready: Option<i64>,
) -> Box<LockedRun> {
    let mut run = LoadedRun::stored(PgRun { rk, stored: None, children: None }, head, worker, ready);
    run.input_hash = Some(input_hash);
    run
}

impl<'c> UnitOfWork<'c> {
    pub fn new(db: &'c Db, now: Timestamp, start: TransactionStart) -> UnitOfWork<'c> {
        let mut set = WorkingSet::new(now);
        set.order = start.micros * ORDERS_PER_MICROSECOND;
        UnitOfWork {
            db,
            set,
            records_before: 0,
            start,
            fresh: VecDeque::new(),
            locked_keys: HashSet::new(),
            numbers: HashMap::new(),
            damaged: HashMap::new(),
            needs_repair: BTreeSet::new(),
            blobs: Vec::new(),
            claimed: Vec::new(),
            found_tasks: None,
            turns: Arc::default(),
            settings: HashMap::new(),
            quotas: LockedQuotas::new(),
            open_runs: HashMap::new(),
            spent: Spent::new(),
            logs: HashMap::new(),
        }
    }

    pub fn add(&mut self, run: Box<LockedRun>) -> RunRef {
        let rk = run.own.rk;
        let run = self.set.runs.insert(run);
        self.numbers.insert(rk, run);
        run
    }

    async fn read_past_head(&mut self, run: RunRef, generation: u32) -> Outcome<()> {
        let locked = &mut self.set.runs[run];
        let text = "SELECT head FROM onward.past WHERE rk = $1 AND generation = $2";
        let rows = self.db.query(&Sql::new(text).number(locked.own.rk).int(generation as i32)).await?;
        let key = &locked.head.key;
        locked.past_head = rows.first().map(|row| unseal_head(key, row.get(0))).transpose()?.map(|(head, _)| head);
        Ok(())
    }

    /// Finds the open children of a run, including changes of this batch.
    async fn find_children(&mut self, run: RunRef) -> Outcome<()> {
        self.need_children(run).await?;
        let (runs, parent) = (&self.set.runs, &self.set.runs[run].head.key);
        let stored = self.set.runs[run].own.children.iter().flatten();
        let mut heads: Vec<RunHead> = stored.filter(|head| runs.get(&head.key).is_none()).cloned().collect();
        let is_child = |head: &&RunHead| head.parent.as_ref().is_some_and(|link| link.run == *parent);
        heads.extend(runs.iter().map(|run| &run.head).filter(|head| !head.status.is_closed()).filter(is_child).cloned());
        heads.sort_by(|a, b| a.key.cmp(&b.key));
        self.set.runs[run].children = heads;
        Ok(())
    }

    /// Takes what is published once the transaction is durable. Which sessions are new is not known here.
    pub fn take_changes(&mut self) -> CommittedChanges {
        let due = self.set.due.into_iter().chain(self.set.sessions.values().copied()).min();
        CommittedChanges { changes: std::mem::take(&mut self.set.changes), due }
    }
}

impl RowError for OpError {
    fn refusal(self) -> Result<StoreError, OpError> {
        match self {
            OpError::Refused(error) => Ok(error),
            error => Err(error),
        }
    }
}

impl Rows for UnitOfWork<'_> {
    type Error = OpError;
    type Own = PgRun;
    type Body = Body;
    /// The number of the run and the order number of the task.
    type TaskPlace = (i64, i64);

    fn set(&mut self) -> &mut WorkingSet<PgRun, Body> {
        &mut self.set
    }

    /// Returns a run, which must be locked. A damaged row must not look like a missing run (DB3).
    async fn load_run(&mut self, key: &RunKey) -> Outcome<Option<RunRef>> {
        if self.damaged.contains_key(key) {
            return Err(damaged_row(key, "the run").into());
        }
        let found = self.set.runs.get(key);
        debug_assert!(found.is_some() || self.locked_keys.contains(key), "DB1: {key} was not locked");
        Ok(found)
    }

    async fn load(&mut self, run: RunRef, wanted: RowRequest<'_>) -> Outcome<()> {
        match wanted {
            RowRequest::Slots(keys) => self.need_slots(keys.into_iter().map(|key| (run, key)).collect()).await,
            RowRequest::Wait(call_id) => self.need_waits(vec![(run, call_id.clone())]).await,
            RowRequest::Task(call_id) => self.need_tasks(vec![(run, call_id.clone())]).await,
            RowRequest::TimersAndTasks => self.need_all(run).await,
            RowRequest::Ledger(row) => self.need_ledger(run, row).await,
            RowRequest::InputHash => Ok(()),
            RowRequest::PastHead(generation) => self.read_past_head(run, generation).await,
            RowRequest::Children(_) => self.find_children(run).await,
        }
    }

    async fn has_logs(&mut self, run: RunRef, logs: &[Vec<Record>]) -> Outcome<bool> {
        let LockedRun { own, head, .. } = &self.set.runs[run];
        let mut same = head.generation as usize + 1 == logs.len();
        for (log, generation) in logs.iter().zip(0..) {
            let stored = read_records(self.db, &head.key, own.rk, generation, Index(0), usize::MAX).await?;
            same = same && onward_core::transfer::is_same_log(&stored, log);
        }
        Ok(same)
    }

    fn new_run(&mut self, floor: Epoch) -> Outcome<(PgRun, Epoch)> {
        let rk = self.fresh.pop_front().expect("a number was drawn for each run that may be made");
        Ok((PgRun { rk, stored: None, children: Some(Vec::new()) }, self.next_epoch(floor))) // L7
    }

    /// Returns the next epoch: a time by the database clock, so that none is assigned twice, neither to the run nor to another
    /// incarnation, nor by a restored database (DB9).
    fn next_epoch(&mut self, last: Epoch) -> Epoch {
        Epoch((last.0 + 1).max(self.start.micros.max(self.start.floor) as u64))
    }

    /// Returns the time of an input. Expiry reads the clock before it has the locks, and times in a log must not go back.
    fn input_time(&mut self, run: RunRef) -> Timestamp {
        self.set.now.max(self.set.runs[run].head.updated_at)
    }

    async fn ready_runs(&mut self, request: &ClaimRuns) -> Outcome<Vec<RunRef>> {
        self.lock_ready_runs(request).await
    }

    async fn log_at_hand(&mut self, run: RunRef) -> Outcome<Option<Vec<Record>>> {
        Ok(self.logs.remove(&run))
    }

    async fn ready_tasks(&mut self, request: &ClaimTasks) -> Outcome<Vec<((i64, i64), Task)>> {
        self.lock_ready_tasks(request).await
    }

    async fn shared_queues(&mut self, request: &ClaimTasks) -> Outcome<Vec<SharedQueue>> {
        self.lock_shared_queues(request).await
    }

    async fn queue_settings(&mut self, namespace: &Namespace, queue: Option<&Name>) -> Outcome<Option<QueueSettings>> {
        let queue = (namespace.clone(), queue.cloned());
        self.need_settings(vec![queue.clone()]).await?;
        Ok(self.settings.get(&queue).cloned().flatten())
    }

    async fn count_waiting(&mut self, namespace: &Namespace, queue: Option<&Name>, limit: u64) -> Outcome<u64> {
        self.waiting_in(namespace, queue, limit).await
    }

    async fn count_held(&mut self, shared: &SharedQueue, limit: u32) -> Outcome<u32> {
        self.held_in(shared, limit).await
    }

    async fn waiting_keys(&mut self, request: &ClaimTasks, shared: &SharedQueue, page: &KeyPage) -> Outcome<Vec<WaitingKey>> {
        self.find_waiting_keys(request, shared, page).await
    }

    async fn tasks_of_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        wanted: &[(Option<Name>, u32)],
    ) -> Outcome<Vec<((i64, i64), Task)>> {
        self.lock_tasks_of_keys(request, shared, wanted).await
    }

    async fn load_starts(&mut self, shared: &SharedQueue) -> Outcome<Option<QueueStarts>> {
        self.read_starts(shared).await
    }

    async fn put_starts(&mut self, changed: Vec<QueueStarts>) -> Outcome<()> {
        self.write_starts(changed).await
    }

    fn turn(&mut self, shared: &SharedQueue) -> Turn {
        self.turns.get(shared)
    }

    fn put_turn(&mut self, shared: &SharedQueue, turn: Turn) {
        self.turns.put(shared, turn);
    }

    async fn quota(&mut self, namespace: &Namespace) -> Outcome<Option<QuotaSettings>> {
        self.locked_quota(namespace)
    }

    async fn count_open_runs(&mut self, namespace: &Namespace, limit: u64) -> Outcome<u64> {
        self.open_runs_of(namespace, limit).await
    }

    async fn count_leases(&mut self, namespace: &Namespace, limit: u32) -> Outcome<u32> {
        self.leases_of(namespace, limit).await
    }

    async fn spent_on(&mut self, namespace: &Namespace, day: u32) -> Outcome<PicoDollars> {
        self.spent_by(namespace, day).await
    }

    fn add_spent(&mut self, namespace: &Namespace, day: u32, cost: PicoDollars) {
        if cost > PicoDollars::default() {
            let spent = self.spent.entry((namespace.clone(), day)).or_default();
            *spent = spent.plus(cost);
        }
    }

    async fn put_claimed(&mut self, (rk, order): (i64, i64), task: Task) -> Outcome<()> {
        self.claimed.push((rk, QueuedTask { task, order }));
        Ok(())
    }

    async fn show_delayed_tasks(&mut self) -> Outcome<bool> {
        self.lock_delayed_tasks().await
    }

    async fn due_timers(&mut self, limit: usize) -> Outcome<Due<(RunRef, CallId)>> {
        self.lock_due_timers(limit).await
    }

    async fn due_tasks(&mut self, limit: usize) -> Outcome<Due<(RunRef, QueuedTask)>> {
        self.lock_due_tasks(limit).await
    }

    async fn end_sessions(&mut self, limit: usize) -> Outcome<(Due<RunRef>, usize)> {
        self.delete_sessions(limit).await
    }

    /// Writes only claimed tasks, which belong to no locked run; everything else is written at the end of the transaction.
    async fn save(&mut self) -> Outcome<()> {
        let claimed = std::mem::take(&mut self.claimed);
        self.write_tasks(claimed).await
    }
}
