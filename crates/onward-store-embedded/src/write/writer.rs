//! The writer thread.
//!
//! Owns the write connection, the batch and its outcome: many operations, one transaction, one sync, then all replies, then the
//! listeners. The operations are in [`crate::write`].
//!
//! Invariants:
//! - T1: no reply is sent and no listener called before COMMIT has returned.
//! - T2: a refused operation has written nothing; any other error undoes the whole batch, in the file and in memory.
//! - T3: after a failed write or sync nothing is written again (F7). A full disk is no failed write: SQLite undoes the batch and
//!   later ones may succeed (F6).

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use onward_core::queue::Turn;
use onward_core::quota::QuotaSettings;
use onward_core::spend::PicoDollars;
use onward_core::{Epoch, KindSchemas, Name, Namespace, RunKey, Timestamp};
use onward_store::StoreError;
use onward_store::durable::reply::{Pending, Slot};
use onward_store::durable::{Body, Replies};
use onward_store::sync::panic_message;
use onward_store::unit_of_work::{self, WorkingSet, block_on_ready};
use rusqlite::{Connection, Statement};

use crate::clock_jumps::ClockJumps;
use crate::error::{Failure, OpError, Outcome, being_repaired, is_repairable};
use crate::file::failpoint;
use crate::file::schema::keep_log;
use crate::file::synced::MarkFile;
use crate::leases::Lease;
use crate::read::past;
use crate::ready::Ready;
use crate::shared::WriterShared;
use crate::write::maintenance::{LogLength, Maintenance};
use crate::write::op::Op;
use crate::write::rows::EmbeddedRun;

/// A queue of a namespace.
pub(crate) type QueueName = (Namespace, Option<Name>);

pub(crate) struct Writer<'c> {
    pub db: &'c Connection,
    pub shared: Arc<WriterShared>,
    /// The cached runs, and what the current operation changes.
    pub set: WorkingSet<EmbeddedRun, Body>,
    /// The epoch of a run that was not claimed since the store was opened: no worker has it.
    pub unclaimed: Epoch,
    /// Numbers and epochs of runs that were cached before a batch was rolled back.
    pub stale_epochs: HashMap<RunKey, (i64, Epoch)>,
    pub ready: Ready,
    /// Whose turn it is in queues that are shared out.
    pub turns: HashMap<QueueName, Turn>,
    /// Quotas that were read; none for a namespace without.
    pub quotas: HashMap<Namespace, Option<QuotaSettings>>,
    /// Costs of days that were read, with what was recorded since.
    pub spent: HashMap<(Namespace, u32), PicoDollars>,
    /// Never reused while the store is open, not even after a rollback: queues may contain old numbers.
    pub next_rk: i64,
    pub next_message: i64,
    pub last_epoch: Epoch,
    /// Prepared once: a plain step uses nothing else.
    pub insert_event: Statement<'c>,
    begin: Statement<'c>,
    commit: Statement<'c>,
    /// Something that a log contains turned out to be damaged.
    pub repair_wanted: bool,
    pub maintenance: Maintenance,
    pub clock_jumps: ClockJumps,
    pub mark: MarkFile,
    log: &'c LogLength,
    pub batch: Batch,
}

/// State of the current batch.
#[derive(Default)]
pub(crate) struct Batch {
    /// The time of the batch by the steady clock.
    pub steady: Timestamp,
    pending: Vec<Arc<dyn Pending>>,
    pub undo: Vec<Undo>,
    /// Rows of quotas that it changes, for the limits of payloads.
    pub quotas: Vec<KindSchemas>,
    /// Number of inserted records, and their bytes.
    pub events: u64,
    pub event_bytes: u64,
}

/// A change in memory that a rollback reverts.
pub(crate) enum Undo {
    Granted(RunKey, i64),
    Dropped(RunKey, i64, Lease),
    /// The last epoch before the raise: the counter on disk is rolled back.
    Raised(Epoch),
}

/// Initial state of a writer, read before the store accepts operations: damage here refuses the opening.
pub(crate) struct InitialState {
    boot: u64,
    /// An earlier process left its write-ahead log (I10).
    is_log_inherited: bool,
    ready: Ready,
    next_rk: i64,
    next_message: i64,
}

impl InitialState {
    pub fn read(db: &Connection, boot: u64, is_log_inherited: bool) -> rusqlite::Result<InitialState> {
        let next = |sql| db.query_row(sql, [], |row| row.get::<_, i64>(0));
        Ok(InitialState {
            boot,
            is_log_inherited,
            ready: Ready::load(db)?,
            // From the indexes, which cannot lose a row undetected; a run's number is not reused while its log exists.
            next_rk: next(
                "SELECT max((SELECT coalesce(max(rk), 0) FROM runs), (SELECT coalesce(max(rk), 0) FROM past),
                   (SELECT coalesce(max(rk), 0) FROM events INDEXED BY events_run)) + 1",
            )?,
            next_message: next("SELECT coalesce(max(id), 0) + 1 FROM outbox INDEXED BY outbox_id")?,
        })
    }
}

/// Runs until the queue is closed.
pub(crate) fn run(
    db: &Connection,
    shared: Arc<WriterShared>,
    initial_state: InitialState,
    log: &LogLength,
    mark: MarkFile,
) -> rusqlite::Result<()> {
    let mut writer = Writer::new(db, shared, initial_state, log, mark)?;
    let mut ops = Vec::new();
    let mut checkpoint_at = log.checkpoint_pages;
    loop {
        writer.shrink_while_idle();
        let started = Instant::now();
        if !writer.shared.queue.take(&mut ops, writer.maintenance.wal_truncation.due_in()) {
            writer.close();
            return Ok(());
        }
        if ops.is_empty() {
            continue; // woken for maintenance
        }
        writer.shared.count(|stats| stats.idle += started.elapsed());
        writer.run_batch(&mut ops);
        if std::mem::take(&mut writer.repair_wanted) | past::take_missed() {
            writer.repair();
        }
        let pages = log.pages();
        if pages < log.checkpoint_pages {
            checkpoint_at = log.checkpoint_pages;
        } else if pages >= checkpoint_at {
            // A reader may keep the log from being reset; then the next attempt comes after as many pages again.
            checkpoint_at = pages + log.checkpoint_pages;
            writer.checkpoint();
        }
    }
}

impl<'c> Writer<'c> {
    fn new(
        db: &'c Connection,
        shared: Arc<WriterShared>,
        initial_state: InitialState,
        log: &'c LogLength,
        mark: MarkFile,
    ) -> rusqlite::Result<Writer<'c>> {
        let unclaimed = Epoch(initial_state.boot << 32);
        let mut maintenance = Maintenance::default();
        if initial_state.is_log_inherited {
            maintenance.wal_truncation.request();
        }
        let mut set = WorkingSet::new(Timestamp(0));
        set.pause_after_lost_workers = shared.pause_after_lost_workers;
        Ok(Writer {
            db,
            shared,
            set,
            unclaimed,
            stale_epochs: HashMap::new(),
            ready: initial_state.ready,
            turns: HashMap::new(),
            quotas: HashMap::new(),
            spent: HashMap::new(),
            next_rk: initial_state.next_rk,
            next_message: initial_state.next_message,
            last_epoch: unclaimed,
            insert_event: db
                .prepare("INSERT INTO events(rk, idx, at, n, last, crc, body, blobs) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")?,
            begin: db.prepare("BEGIN IMMEDIATE")?,
            commit: db.prepare("COMMIT")?,
            repair_wanted: false,
            maintenance,
            clock_jumps: ClockJumps::default(),
            mark,
            log,
            batch: Batch::default(),
        })
    }

    /// Executes operations in one transaction; once it is durable, releases their replies and then calls the listeners.
    fn run_batch(&mut self, ops: &mut Vec<Op>) {
        failpoint::hit("before_batch");
        let started = Instant::now();
        let listeners = self.shared.listeners();
        let (now, steady) = (self.shared.clock.now(), self.shared.clock.steady());
        self.clock_jumps.observe(now, steady);
        self.batch = Batch { steady, ..Batch::default() };
        (self.set.now, self.set.has_listeners) = (now, !listeners.is_empty());
        self.batch.pending.reserve(ops.len());
        let mut rest = ops.drain(..);
        let mut written = self.begin.raw_execute().map(drop).map_err(OpError::from);
        if written.is_ok() {
            for op in rest.by_ref() {
                written = self.execute(op);
                if written.is_err() {
                    break;
                }
            }
            // Operations behind the failed one have not started and are put back.
            self.shared.queue.put_back(rest);
        } else {
            self.batch.pending.extend(rest.map(|op| op.pending()));
        }
        failpoint::hit("before_commit");
        let sql_done = Instant::now();
        let failure = match written {
            Err(error) => {
                self.repair_wanted |= error.is_repairable();
                Some(Failure::of(&error))
            }
            Ok(()) => self.commit.raw_execute().err().map(|error| Failure::of_commit(&error)),
        };
        let sync_done = Instant::now();
        self.count_batch(failure.as_ref(), sql_done - started, sync_done - sql_done);
        if let Some(failure) = failure {
            self.fail_batch(failure);
        } else {
            failpoint::hit("after_commit");
            self.mark.note(self.log.commits(), self.log.pages());
            failpoint::hit("before_reply");
            if !self.batch.quotas.is_empty() {
                self.shared.payload_limits.note(&self.batch.quotas);
            }
            self.batch.pending.drain(..).for_each(|pending| pending.release()); // T1
            failpoint::hit("after_reply");
            for change in &self.set.changes {
                listeners.iter().for_each(|listener| listener.changed(change));
            }
            self.set.changes.clear();
        }
        self.shared.count(|stats| stats.reply += sync_done.elapsed());
        self.trim();
    }

    /// Adds the batch to the statistics, and notes whether the disk is full.
    fn count_batch(&self, failure: Option<&Failure>, sql: Duration, sync: Duration) {
        self.shared.count(|stats| {
            stats.batches += 1;
            stats.operations += self.batch.pending.len() as u64;
            stats.events += self.batch.events;
            stats.event_bytes += self.batch.event_bytes;
            stats.sql += sql;
            stats.sync += sync;
        });
        let is_full = failure == Some(&Failure::Full);
        // A batch without writes does not show whether there is space.
        if is_full || (failure.is_none() && self.mark.has_grown(self.log.commits())) {
            self.shared.is_full.store(is_full, Ordering::Relaxed);
        }
    }

    /// Undoes the batch and fails all of its operations (T2, T3).
    fn fail_batch(&mut self, failure: Failure) {
        let undone = self.db.is_autocommit() || self.db.execute_batch("ROLLBACK").is_ok();
        let undo = std::mem::take(&mut self.batch.undo);
        undo.into_iter().rev().for_each(|undo| self.take_back(undo));
        self.forget_runs();
        self.shared.announced_due.store(u64::MAX, Ordering::Relaxed);
        let pending = std::mem::take(&mut self.batch.pending);
        let failure = match failure {
            Failure::Damaged(why) if undone && std::mem::take(&mut self.repair_wanted) && self.repair() => {
                Failure::Busy(format!("damaged rows or indexes were rebuilt, retry: {why}"))
            }
            failure => failure,
        };
        match failure {
            Failure::Full if undone => pending.iter().for_each(|pending| pending.fail(StoreError::DiskFull)),
            Failure::Busy(why) if undone => {
                pending.iter().for_each(|pending| pending.fail(StoreError::Unavailable { why: why.clone() }));
            }
            Failure::Damaged(why) if undone => {
                let Some((culprit, neighbors)) = pending.split_last() else { return };
                culprit.fail(StoreError::Corrupt { why: why.clone() });
                let why = format!("rolled back together with another operation that failed: {why}");
                neighbors.iter().for_each(|pending| pending.fail(StoreError::Unavailable { why: why.clone() }));
            }
            Failure::Io(why) | Failure::Damaged(why) | Failure::Busy(why) => self.stop(&pending, &why),
            Failure::Full => self.stop(&pending, "a batch could not be rolled back on a full disk"),
        }
    }

    /// Stops the store after a failed write or fsync (T3): fails the pending operations and refuses all later ones.
    fn stop(&mut self, pending: &[Arc<dyn Pending>], why: &str) {
        self.refuse_writes(why);
        pending.iter().for_each(|pending| pending.fail(StoreError::Stopped { why: why.to_owned() }));
    }

    /// Refuses all further operations; closing must not copy the log into the database either (T3).
    pub fn refuse_writes(&mut self, why: &str) {
        // If this fails, the copy only contains what was synced before: untidy, not unsafe.
        let _ = keep_log(self.db, true);
        self.shared.queue.stop(why);
    }

    fn take_back(&mut self, undo: Undo) {
        let leases = &self.shared.leases;
        let (key, rk, free) = match undo {
            Undo::Granted(key, rk) => (key, rk, leases.drop(rk, None).is_some()),
            Undo::Dropped(key, rk, lease) => {
                let is_free = !leases.restore(rk, &key, &lease);
                (key, rk, is_free)
            }
            Undo::Raised(from) => return self.last_epoch = from,
        };
        if let Some(run) = self.set.runs.get(&key).filter(|_| free) {
            self.ready.push(&self.set.runs[run].head, rk);
        }
    }

    /// Allocates a few pages and frees them, to check for space.
    fn try_write(&mut self) -> Outcome<()> {
        self.db.execute("INSERT INTO payloads(data) VALUES (zeroblob(65536))", [])?;
        self.db.execute("DELETE FROM payloads WHERE seq = last_insert_rowid()", [])?;
        Ok(())
    }

    pub fn undo_later(&mut self, undo: Undo) {
        self.batch.undo.push(undo);
    }

    /// Executes one operation and stores its reply.
    fn execute(&mut self, op: Op) -> Outcome<()> {
        self.batch.pending.push(op.pending());
        let before = self.db.total_changes();
        // A panic is a violated invariant: it undoes the batch, and the store continues.
        let settled = catch_unwind(AssertUnwindSafe(|| match op {
            // Pinned here, so that the future of the largest operation is not moved for each of them.
            Op::Run(op) => block_on_ready(pin!(op.execute(self))),
            Op::ClaimRuns(request, to) => self.reply(&to, |writer| block_on_ready(unit_of_work::claim_runs(writer, &request))),
            Op::ClaimTasks(request, to) => {
                self.clock_jumps.lease_given(request.lease);
                self.reply(&to, |writer| block_on_ready(unit_of_work::claim_tasks(writer, &request)))
            }
            Op::Expire(limit, to) => self.reply(&to, |writer| writer.expire(limit)),
            Op::FinishDeliveries(done, to) => self.reply(&to, |writer| writer.finish_deliveries(&done)),
            Op::LoseLeases(lost, to) => self.reply(&to, |writer| block_on_ready(writer.lose_leases(&lost))),
            Op::Delete(delete, to) => self.reply(&to, |writer| writer.delete_runs(&delete)),
            Op::RegisterKinds(kinds, to) => self.reply(&to, |writer| writer.register_kinds(kinds)),
            Op::TryWrite(to) => self.reply(&to, Writer::try_write),
            Op::Announce(at, to) => self.reply(&to, |writer| {
                writer.announce_due(at);
                Ok(())
            }),
            Op::Repair(repaired, to) => {
                self.repair_wanted |= self.shared.stats().repaired == repaired;
                self.settle(&to, Ok(()))
            }
        }));
        let settled = settled.unwrap_or_else(|panic| Err(OpError::Panicked(panic_message(&*panic))))?;
        failpoint::hit("after_operation");
        self.repair_wanted |= settled == Settled::Damaged;
        let is_unchanged = self.forget_touched() && self.db.total_changes() == before;
        if settled != Settled::Done && !is_unchanged {
            return Err(OpError::Panicked("an operation was refused after it had written".to_owned())); // T2
        }
        Ok(())
    }

    fn reply<T: Send>(&mut self, to: &Slot<T>, work: impl FnOnce(&mut Self) -> Outcome<T>) -> Outcome<Settled> {
        let outcome = work(self);
        self.settle(to, outcome)
    }
}

/// Result of an operation that did not fail its batch.
#[derive(PartialEq, Eq)]
pub(crate) enum Settled {
    Done,
    Refused,
    /// Refused because of damage that may be repairable.
    Damaged,
}

impl Replies for Writer<'_> {
    type Settled = Settled;

    fn settle<T: Send>(&mut self, to: &Slot<T>, outcome: Outcome<T>) -> Outcome<Settled> {
        let (answer, settled) = match outcome {
            Ok(value) => (Ok(value), Settled::Done),
            Err(OpError::Refused(error)) if is_repairable(&error) => {
                (Err(if self.shared.may_repair() { being_repaired(&error) } else { error }), Settled::Damaged)
            }
            Err(OpError::Refused(error)) => (Err(error), Settled::Refused),
            Err(error) => return Err(error),
        };
        to.put(answer);
        Ok(settled)
    }
}
