//! The rows of a unit of work: loaded through the cache of active runs.
//!
//! A cached run is a view: it may be dropped at any time between operations. Must never outlive a failed batch
//! ([`Writer::forget_runs`]).

use onward_core::event::TaskAttemptEnded;
use onward_core::queue::{QueueSettings, QueueStarts, Turn, WaitingKey};
use onward_core::quota::QuotaSettings;
use onward_core::run::Wait;
use onward_core::spend::PicoDollars;
use onward_core::task::Task;
use onward_core::transfer::is_same_log;
use onward_core::{CallId, Epoch, Index, Name, Namespace, Record, RunHead, RunKey, Status};
use onward_store::admission::TakenSlot;
use onward_store::durable::Body;
use onward_store::unit_of_work::{
    Due, KeyPage, LoadedRun, QueuedTask, RowError, RowRequest, Rows, RunRef, SharedQueue, Timer, WorkingSet, count_lost_worker,
    settle,
};
use onward_store::{Appended, ClaimRuns, ClaimTasks, SESSION_DEFAULT, StoreError};
use rusqlite::{Connection, params};

use crate::error::{OpError, Outcome, damaged_row, is_repairable, read_error};
use crate::file::lease_file::LostLease;
use crate::file::schema::write_boot;
use crate::read::heads::{self, Loaded};
use crate::read::ledger;
use crate::read::reader::read_records;
use crate::row::{NEVER, Statements, call_id_key, number, read_call_id, unseal};
use crate::write::counted;
use crate::write::tasks::TaskRow;
use crate::write::writer::{Undo, Writer};

/// Number of unleased runs that stay cached.
const IDLE_MAX: usize = 8192;

/// The part of a cached run that only this store has.
pub(crate) struct EmbeddedRun {
    /// The number of the current generation.
    pub rk: i64,
    /// The run's first generation, which owns everything kept over all generations.
    pub root: i64,
    /// The generation that has the number `rk`.
    pub generation: u32,
    pub is_new: bool,
    /// The row of `rk` is the one of the current generation.
    pub has_current_row: bool,
    /// The run was created by this process and never had a timer, task, wait or child, so that its end has no rows to look for.
    pub is_bare: bool,
    /// The status in the run's row.
    pub row_status: Status,
    /// The lease is in [`crate::leases::Leases`].
    pub is_leased: bool,
    /// The run is in a queue of claimable runs, or will be found by its scan.
    pub is_queued: bool,
}

/// A cached run.
pub(crate) type CachedRun = LoadedRun<EmbeddedRun, Body>;

impl Writer<'_> {
    /// Drops all cached runs after a batch was rolled back or rows were repaired. Only their epochs stay valid.
    pub(crate) fn forget_runs(&mut self) {
        let runs = self.set.runs.take();
        self.stale_epochs.extend(runs.into_iter().map(|run| (run.head.key.clone(), (run.own.rk, run.head.epoch))));
        self.forget_quotas();
        self.set.touched.clear();
        self.set.outbox.clear();
        self.set.sessions.clear();
        self.set.changes.clear();
        self.set.due = None;
    }

    /// Drops unleased runs if there are too many of them; called between batches.
    pub(crate) fn trim(&mut self) {
        let leased = self.shared.leases.count();
        if self.set.runs.len() > leased + IDLE_MAX {
            let idle = self.set.runs.iter().filter(|run| !run.own.is_leased).map(|run| run.head.key.clone());
            idle.collect::<Vec<_>>().iter().for_each(|key| drop(self.set.runs.remove(key)));
        }
        if self.stale_epochs.len() > leased + IDLE_MAX {
            self.stale_epochs.clear();
        }
    }

    /// Makes every later epoch exceed this one, also after a restart (L7).
    fn raise_epochs(&mut self, floor: Epoch) -> Outcome<()> {
        if self.last_epoch >= floor {
            return Ok(());
        }
        let boot = (floor.0 >> 32) + 1;
        write_boot(self.db, boot.cast_signed())?;
        self.undo_later(Undo::Raised(self.last_epoch));
        self.last_epoch = Epoch(boot << 32);
        Ok(())
    }

    /// Counts the workers that died with the process before (CW1). An unreadable run does not block the others.
    pub(super) async fn lose_leases(&mut self, lost: &[LostLease]) -> Outcome<()> {
        for lease in lost {
            match self.run_of(lease.rk).await {
                Ok(Some(run)) if lease.is_of(&self.set.runs[run].head.key) => {
                    count_lost_worker(self, run, &lease.worker, lease.epoch).await?;
                    settle(self, run);
                }
                Ok(_) => {}
                Err(error @ (OpError::Sql(_) | OpError::Panicked(_))) => return Err(error),
                Err(_) => self.repair_wanted = true,
            }
        }
        self.save().await
    }

    /// Returns the run of a queue entry if it is still pending and unleased.
    async fn claimable(&mut self, rk: i64) -> Outcome<Option<RunRef>> {
        if self.shared.leases.is_held(rk) {
            return Ok(None);
        }
        match self.run_of(rk).await {
            Ok(run) => Ok(run.filter(|run| self.set.runs[*run].head.status == Status::Pending)),
            // A damaged run is skipped, so that it does not block the others.
            Err(OpError::Refused(error @ (StoreError::LogCorrupt { .. } | StoreError::Corrupt { .. }))) => {
                self.repair_wanted |= is_repairable(&error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the run whose current generation has this number.
    async fn run_of(&mut self, rk: i64) -> Outcome<Option<RunRef>> {
        let Some(key) = heads::key_of(self.db, rk)? else { return Ok(None) };
        Ok(self.load_run(&key).await?.filter(|run| self.set.runs[*run].own.rk == rk))
    }

    /// Returns the run of a timer that is due. An unreadable run's timer is left to the repair, or frozen if that did not help, so
    /// that it does not block the others; the timer of a run that is gone is removed.
    async fn armed(&mut self, rk: i64, call_id: &[u8]) -> Outcome<Option<(RunRef, CallId)>> {
        match self.run_of(rk).await {
            Ok(run) => {
                let found = run.zip(read_call_id(call_id).ok());
                if found.is_none() {
                    self.db.run("DELETE FROM timers WHERE rk = ?1 AND call_id = ?2", params![rk, call_id])?;
                }
                Ok(found)
            }
            Err(OpError::Refused(error)) if is_repairable(&error) && !self.maintenance.repair_failed() => {
                self.repair_wanted = true;
                Ok(None)
            }
            Err(OpError::Refused(_)) => {
                let sql = "UPDATE timers SET due = due + ?3, crc = row_crc(rk, call_id, due + ?3) WHERE rk = ?1 AND call_id = ?2";
                self.db.run(sql, params![rk, call_id, NEVER])?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
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

impl Rows for Writer<'_> {
    type Error = OpError;
    type Own = EmbeddedRun;
    type Body = Body;
    type TaskPlace = TaskRow;

    const COST_NEEDS_SLOT: bool = false; // I5

    fn set(&mut self) -> &mut WorkingSet<EmbeddedRun, Body> {
        &mut self.set
    }

    async fn load_run(&mut self, key: &RunKey) -> Outcome<Option<RunRef>> {
        if let Some(run) = self.set.runs.get(key) {
            return Ok(Some(run));
        }
        let Some(Loaded { rk, root, head, .. }) = heads::load(self.db, key, None)? else { return Ok(None) };
        let lease = self.shared.leases.get(rk);
        let kept = self.stale_epochs.remove(key).filter(|(number, _)| *number == rk).map(|(_, epoch)| epoch);
        // A closed run accepts nothing whatever the epoch; with its last epoch the refusal can report that it is closed.
        let unclaimed = if head.status.is_closed() { head.epoch } else { self.unclaimed };
        let epoch = lease.as_ref().map(|lease| lease.epoch).or(kept).unwrap_or(unclaimed);
        let is_queued = head.status == Status::Pending && lease.is_none();
        let own = EmbeddedRun {
            rk,
            root,
            generation: head.generation,
            is_new: false,
            has_current_row: true,
            is_bare: false,
            row_status: head.status,
            is_leased: lease.is_some(),
            is_queued,
        };
        let head = RunHead { epoch, ..head };
        Ok(Some(self.set.runs.insert(LoadedRun::stored(own, head, lease.map(|lease| lease.worker), is_queued.then_some(0)))))
    }

    async fn load(&mut self, run: RunRef, wanted: RowRequest<'_>) -> Outcome<()> {
        self.set.touch(run);
        let (db, loaded) = (self.db, &mut self.set.runs[run]);
        let (rk, root, key) = (loaded.own.rk, loaded.own.root, &loaded.head.key);
        match wanted {
            RowRequest::Slots(slots) => {
                for slot in slots {
                    if !loaded.slots.knows(&slot) {
                        let found = read_slot(db, key, root, &slot)?;
                        loaded.slots.learn(slot, found);
                    }
                }
            }
            RowRequest::Wait(call_id) if !loaded.waits.knows(call_id) => {
                loaded.waits.learn(call_id.clone(), read_wait(db, rk, call_id)?);
            }
            RowRequest::Task(call_id) if !loaded.tasks.knows(call_id) => {
                let task = self.find_task(rk, call_id)?;
                let queued = task.map(|task| QueuedTask { task, order: 0 });
                self.set.runs[run].tasks.learn(call_id.clone(), queued);
            }
            RowRequest::TimersAndTasks => {
                if !loaded.timers.is_complete() {
                    for (call_id, timer) in read_timers(db, key, rk)? {
                        loaded.timers.learn(call_id, Some(timer));
                    }
                    loaded.timers.learn_all();
                }
                if !loaded.tasks.is_complete() {
                    let tasks = self.tasks_of(rk)?;
                    let loaded = &mut self.set.runs[run];
                    for task in tasks {
                        loaded.tasks.learn(task.id.call_id.clone(), Some(QueuedTask { task, order: 0 }));
                    }
                    loaded.tasks.learn_all();
                }
            }
            RowRequest::Ledger(row) if !loaded.ledger.knows(row) => loaded.ledger.learn(row.clone(), ledger::find(db, row)?),
            RowRequest::InputHash => loaded.input_hash = Some(heads::input_hash(db, key)?),
            RowRequest::PastHead(generation) => {
                loaded.past_head = heads::load(db, key, Some(generation))?.map(|past| past.head);
            }
            RowRequest::Children(generation) if !loaded.own.is_bare => {
                loaded.children = read_open_children(db, key, generation)?;
            }
            RowRequest::Wait(_) | RowRequest::Task(_) | RowRequest::Ledger(_) | RowRequest::Children(_) => {}
        }
        Ok(())
    }

    async fn has_logs(&mut self, run: RunRef, logs: &[Vec<Record>]) -> Outcome<bool> {
        let head = &self.set.runs[run].head;
        let mut same = head.generation as usize + 1 == logs.len();
        for (log, generation) in logs.iter().zip(0..) {
            let Some(found) = heads::find(self.db, &head.key, Some(generation))?.filter(|_| same) else { break };
            same = is_same_log(&read_records(self.db, &head.key, found.rk, Index(0), usize::MAX)?, log);
        }
        Ok(same)
    }

    async fn find_counted(&mut self, run: RunRef, attempt: &TaskAttemptEnded) -> Outcome<Option<Appended>> {
        let found = counted::find(self.db, &self.set.runs[run].head.key, attempt)?; // I5
        Ok(found.map(|Record { index, at, .. }| Appended { index, at, repeated: true, woke: false }))
    }

    fn new_run(&mut self, floor: Epoch) -> Outcome<(EmbeddedRun, Epoch)> {
        self.raise_epochs(floor)?;
        let rk = self.next_rk;
        self.next_rk += 1;
        let own = EmbeddedRun {
            rk,
            root: rk,
            generation: 0,
            is_new: true,
            has_current_row: false,
            is_bare: true,
            row_status: Status::Pending,
            is_leased: false,
            is_queued: false,
        };
        Ok((own, self.unclaimed))
    }

    fn next_epoch(&mut self, _last: Epoch) -> Epoch {
        self.last_epoch = Epoch(self.last_epoch.0 + 1);
        self.last_epoch
    }

    async fn ready_runs(&mut self, request: &ClaimRuns) -> Outcome<Vec<RunRef>> {
        let mut found: Vec<RunRef> = Vec::new();
        while found.len() < request.limit {
            let Some(rk) = self.ready.pop(self.db, request)? else { break };
            let run = self.claimable(rk).await?;
            found.extend(run.filter(|run| !found.contains(run)));
        }
        Ok(found)
    }

    /// Reads the log if it is a single row.
    async fn log_at_hand(&mut self, run: RunRef) -> Outcome<Option<Vec<Record>>> {
        let CachedRun { own, head, .. } = &self.set.runs[run];
        Ok(match head.next_index.0 {
            1 => read_records(self.db, &head.key, own.rk, Index(0), 1).ok(),
            _ => None,
        })
    }

    async fn ready_tasks(&mut self, request: &ClaimTasks) -> Outcome<Vec<(TaskRow, Task)>> {
        self.claimable_tasks(request)
    }

    async fn shared_queues(&mut self, request: &ClaimTasks) -> Outcome<Vec<SharedQueue>> {
        self.find_shared_queues(request)
    }

    async fn queue_settings(&mut self, namespace: &Namespace, queue: Option<&Name>) -> Outcome<Option<QueueSettings>> {
        self.settings_of(namespace, queue)
    }

    async fn count_waiting(&mut self, namespace: &Namespace, queue: Option<&Name>, limit: u64) -> Outcome<u64> {
        self.waiting_in(namespace, queue, limit)
    }

    async fn count_held(&mut self, shared: &SharedQueue, limit: u32) -> Outcome<u32> {
        self.held_in(shared, limit)
    }

    async fn waiting_keys(&mut self, request: &ClaimTasks, shared: &SharedQueue, page: &KeyPage) -> Outcome<Vec<WaitingKey>> {
        self.find_waiting_keys(request, shared, page)
    }

    async fn tasks_of_keys(
        &mut self,
        request: &ClaimTasks,
        shared: &SharedQueue,
        wanted: &[(Option<Name>, u32)],
    ) -> Outcome<Vec<(TaskRow, Task)>> {
        self.find_tasks_of_keys(request, shared, wanted)
    }

    async fn load_starts(&mut self, shared: &SharedQueue) -> Outcome<Option<QueueStarts>> {
        self.find_starts(shared, "")
    }

    async fn put_starts(&mut self, changed: Vec<QueueStarts>) -> Outcome<()> {
        self.write_starts(&changed)
    }

    fn turn(&mut self, shared: &SharedQueue) -> Turn {
        self.turn_of(shared)
    }

    fn put_turn(&mut self, shared: &SharedQueue, turn: Turn) {
        self.keep_turn(shared, turn);
    }

    async fn quota(&mut self, namespace: &Namespace) -> Outcome<Option<QuotaSettings>> {
        self.quota_of(namespace)
    }

    async fn count_open_runs(&mut self, namespace: &Namespace, limit: u64) -> Outcome<u64> {
        self.open_runs_of(namespace, limit)
    }

    async fn count_leases(&mut self, namespace: &Namespace, limit: u32) -> Outcome<u32> {
        self.leases_of(namespace, limit)
    }

    async fn spent_on(&mut self, namespace: &Namespace, day: u32) -> Outcome<PicoDollars> {
        self.spent_by(namespace, day)
    }

    fn add_spent(&mut self, namespace: &Namespace, day: u32, cost: PicoDollars) {
        self.note_spent(namespace, day, cost);
    }

    async fn put_claimed(&mut self, row: TaskRow, task: Task) -> Outcome<()> {
        Ok(super::tasks::put_row(self.db, row.rk, task, self.set.now)?)
    }

    async fn skip_task(&mut self, row: TaskRow, error: StoreError) -> Outcome<()> {
        self.pass_over(&row, &error)
    }

    async fn show_delayed_tasks(&mut self) -> Outcome<bool> {
        self.make_visible()
    }

    async fn due_timers(&mut self, limit: usize) -> Outcome<Due<(RunRef, CallId)>> {
        let sql = "SELECT rk, call_id FROM timers WHERE due <= ?1 ORDER BY due, rk, call_id LIMIT ?2";
        let params = params![self.set.now.0 as i64, sql_limit(limit)];
        let mut due: Vec<(i64, Vec<u8>)> = self.db.all(sql, params, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let more = due.len() > limit;
        due.truncate(limit);
        let mut found = Vec::new();
        for (rk, call_id) in due {
            found.extend(self.armed(rk, &call_id).await?);
        }
        Ok(Due { found, more })
    }

    async fn due_tasks(&mut self, limit: usize) -> Outcome<Due<(RunRef, QueuedTask)>> {
        let (due, more) = self.expired_tasks(limit)?;
        let mut found = Vec::new();
        for row in due {
            match (self.read_task(&row), self.run_of(row.rk).await) {
                (Ok(task), Ok(Some(run))) => found.push((run, QueuedTask { task, order: 0 })),
                (Ok(_), Ok(None)) => self.remove_task(&row)?,
                (Err(error), Ok(_)) | (_, Err(OpError::Refused(error))) => self.pass_over(&row, &error)?,
                (_, Err(error)) => return Err(error),
            }
        }
        Ok(Due { found, more })
    }

    /// Ends expired sessions. An unreadable run stays unleased and does not block the others.
    async fn end_sessions(&mut self, limit: usize) -> Outcome<(Due<RunRef>, usize)> {
        let (free, ended, more) = self.shared.leases.end_sessions(self.batch.steady, limit);
        let mut found = Vec::new();
        for (rk, lease) in free {
            match self.run_of(rk).await {
                Ok(Some(run)) => {
                    // The lease is gone already, and the run is in no queue.
                    let loaded = self.set.change(run);
                    (loaded.own.is_leased, loaded.own.is_queued, loaded.ready) = (false, false, None);
                    (loaded.head.epoch, loaded.lease) = (lease.epoch, Some(lease.worker.clone()));
                    let key = loaded.head.key.clone();
                    self.undo_later(Undo::Dropped(key, rk, lease));
                    found.push(run);
                }
                Err(error @ (OpError::Sql(_) | OpError::Panicked(_))) => return Err(error),
                _ => self.repair_wanted = true,
            }
        }
        Ok((Due { found, more }, ended))
    }

    /// Saves the runs that an operation changed, and forgets the rows that it read.
    async fn save(&mut self) -> Outcome<()> {
        let mut touched = std::mem::take(&mut self.set.touched);
        for run in touched.drain(..) {
            if self.set.runs[run].is_changed {
                self.save_run(run)?;
            }
            self.forget_rows(run);
        }
        self.set.touched = touched;
        for (from, message) in std::mem::take(&mut self.set.outbox) {
            let own = &mut self.set.runs[from].own;
            own.is_bare = false;
            let root = own.root;
            self.put_message(root, message)?;
        }
        for (worker, until) in std::mem::take(&mut self.set.sessions) {
            if self.shared.leases.begin_session(&worker, self.batch.steady.after(SESSION_DEFAULT)) {
                self.set.announce_due(until);
            }
        }
        if let Some(at) = self.set.due.take() {
            self.announce_due(at);
        }
        Ok(())
    }
}

/// Returns one more than the limit, which shows whether there is more.
pub(super) fn sql_limit(limit: usize) -> i64 {
    number(limit.saturating_add(1))
}

/// Returns the idempotency record with this key, if any; fails if it is damaged.
fn read_slot(db: &Connection, run: &RunKey, root: i64, key: &str) -> Outcome<Option<TakenSlot>> {
    let sql = "SELECT token, idx, at, crc IS row_crc(root, key, token, idx, at) FROM idempotency WHERE root = ?1 AND key = ?2";
    let read = |row: &rusqlite::Row<'_>| match row.get(3)? {
        true => {
            let (index, at) = (row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64);
            Ok(Some(TakenSlot { token: row.get(0)?, index: Index(index), at: onward_core::Timestamp(at) }))
        }
        false => Ok(None),
    };
    match db.one(sql, params![root, key], read).map_err(read_error)? {
        None => Ok(None),
        Some(Some(slot)) => Ok(Some(slot)),
        Some(None) => Err(damaged_row(run, "an idempotency record").into()),
    }
}

/// Returns the open wait at `call_id`, without its large payloads.
fn read_wait(db: &Connection, rk: i64, call_id: &CallId) -> Outcome<Option<Wait>> {
    let sql = "SELECT data FROM waits WHERE rk = ?1 AND call_id = ?2";
    let data = db.one(sql, params![rk, call_id_key(call_id)], |row| row.get::<_, Vec<u8>>(0)).map_err(read_error)?;
    data.map(|data| unseal("a wait", &data).map_err(OpError::Damaged)).transpose()
}

/// Returns the timers of a run. Fails if a row is damaged: a changed due time would get a fresh checksum (I2).
fn read_timers(db: &Connection, key: &RunKey, rk: i64) -> Outcome<Vec<(CallId, Timer)>> {
    let sql = "SELECT call_id, due, crc IS row_crc(rk, call_id, due) FROM timers WHERE rk = ?1";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![rk])?;
    let mut timers = Vec::new();
    while let Some(row) = rows.next()? {
        let damaged = || OpError::Damaged(damaged_row(key, "a timer"));
        let due = row.get_ref(1)?.as_i64().ok().filter(|_| row.get::<_, bool>(2).unwrap_or_default()).ok_or_else(damaged)?;
        let call_id = row.get_ref(0)?.as_blob().ok().and_then(|key| read_call_id(key).ok()).ok_or_else(damaged)?;
        let is_frozen = due >= NEVER;
        let due_at = onward_core::Timestamp((due - if is_frozen { NEVER } else { 0 }) as u64);
        timers.push((call_id, Timer { due_at, is_frozen }));
    }
    Ok(timers)
}

/// Returns the open children of a run, or of one of its generations, in key order.
pub(super) fn read_open_children(db: &Connection, parent: &RunKey, generation: Option<u32>) -> Outcome<Vec<RunHead>> {
    let sql = "SELECT head FROM runs WHERE parent_id = ?1 AND parent_ns = ?2 AND status < 4 AND current = 1
           AND (?3 IS NULL OR parent_generation = ?3) ORDER BY ns, id";
    let params = params![parent.id.as_str(), parent.namespace.as_str(), generation];
    // The end of a child's log does not matter here. A child with a damaged row must not be missed: the row is repaired first.
    let rows = db.all(sql, params, |row| row.get::<_, Vec<u8>>(0))?;
    rows.iter().map(|row| unseal::<RunHead>("a child's row", row).map_err(OpError::Damaged)).collect()
}
