//! The unit of work of one transaction.
//!
//! Owns the working set of a batch: the locked runs, the rows that were read, and the changes. Operations are decided one after
//! the other, as if each had the database alone, and written together at the end ([`crate::write::save`]).
//!
//! Invariants:
//! - DB1: nothing is decided about a run whose row this transaction has not locked; its timers, tasks, waits and slots change
//!   only under that lock, or (a task that is claimed) under their own.
//! - DB2: an operation that is refused has changed nothing here.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use onward_core::ledger::{LedgerKey, LedgerSum};
use onward_core::run::{OutboxMessage, Wait};
use onward_core::task::Task;
use onward_core::{Attribute, CallId, Epoch, Hash, Index, Name, RunHead, RunKey, Status, Timestamp, WorkerId};
use onward_store::admission::TakenSlot;
use onward_store::durable::{Blobs, Body, OwnedChange};
use onward_store::{SESSION_DEFAULT, StoreError};

use crate::connection::sql::Db;
use crate::connection::transaction::Aftermath;
use crate::error::{Outcome, damaged_row};
use crate::restore_guard::Sight;
use crate::row::seal_delivery;
use crate::write::table::Table;

pub(crate) struct UnitOfWork<'c> {
    pub db: &'c Db,
    /// The time of the store's clock, read after the locks were taken.
    pub now: Timestamp,
    /// The state of the restore guard, read after the locks.
    pub sight: Sight,
    /// The next number for rows that must keep their order.
    order: i64,
    /// Reserved numbers for new runs.
    pub fresh: VecDeque<i64>,
    pub seats: HashMap<RunKey, Option<Box<LockedRun>>>,
    /// Number of records and runs added so far: an operation that is refused has added none (DB2).
    pub changes: usize,
    pub keys: HashMap<i64, RunKey>,
    /// Runs with a damaged row, and their numbers.
    pub damaged: HashMap<RunKey, i64>,
    /// Runs of which another damaged row was reported to a caller.
    pub hurt: BTreeSet<RunKey>,
    pub news: Vec<OwnedChange>,
    /// The earliest time at which this batch makes something due.
    pub due: Option<Timestamp>,
    pub outbox: Vec<(i64, Vec<u8>)>,
    pub blobs: Vec<(i64, Blobs)>,
    /// Workers that got a run here; those without a session get one.
    pub greeted: BTreeMap<WorkerId, Timestamp>,
}

/// A locked run.
pub(crate) struct LockedRun {
    pub rk: i64,
    pub head: RunHead,
    /// Hash of the input with which the run was first started.
    pub input_hash: Hash,
    pub worker: Option<WorkerId>,
    /// Order number since which the run is claimable.
    pub ready: Option<i64>,
    pub is_changed: bool,
    /// The stored columns; none if the run is new.
    pub stored: Option<Stored>,
    pub events: Vec<NewEvent>,
    pub past: Vec<RunHead>,
    pub slots: Table<String, TakenSlot>,
    pub waits: Table<CallId, Wait>,
    pub timers: Table<CallId, Timer>,
    pub tasks: Table<CallId, Queued>,
    pub ledger: Table<LedgerKey, LedgerSum>,
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

pub(crate) struct NewEvent {
    pub generation: u32,
    pub index: Index,
    pub at: Timestamp,
    pub body: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timer {
    pub due_at: Timestamp,
    /// Its run is paused; the timer keeps its remaining time.
    pub is_frozen: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub task: Task,
    /// Order of scheduling, for tasks that became visible in the same millisecond.
    pub order: i64,
}

/// Number of order numbers per microsecond of the database clock.
pub(crate) const ORDERS_PER_MICROSECOND: i64 = 1024;

impl LockedRun {
    /// Creates a new run; all its tables are known to be empty.
    pub fn new(rk: i64, head: RunHead, input_hash: Hash) -> Box<LockedRun> {
        Box::new(LockedRun {
            slots: Table::empty(),
            waits: Table::empty(),
            timers: Table::empty(),
            tasks: Table::empty(),
            children: Some(Vec::new()),
            is_changed: true,
            ..*LockedRun::found(rk, head, input_hash, None, None)
        })
    }

    pub fn found(rk: i64, head: RunHead, input_hash: Hash, worker: Option<WorkerId>, ready: Option<i64>) -> Box<LockedRun> {
        Box::new(LockedRun {
            rk,
            head,
            input_hash,
            worker,
            ready,
            is_changed: false,
            stored: None,
            events: Vec::new(),
            past: Vec::new(),
            slots: Table::default(),
            waits: Table::default(),
            timers: Table::default(),
            tasks: Table::default(),
            ledger: Table::default(),
            children: None,
        })
    }

    pub fn columns(&self) -> Columns {
        let head = &self.head;
        (head.status, head.kind.clone(), head.version.clone(), head.created_at, head.ended_at, self.ready, self.worker.clone())
    }

    /// Returns the head as callers see it: a pending run that a worker holds is running.
    pub fn shown(&self) -> RunHead {
        let mut head = self.head.clone();
        if head.status == Status::Pending && self.worker.is_some() {
            head.status = Status::Running;
        }
        head
    }
}

impl<'c> UnitOfWork<'c> {
    pub fn new(db: &'c Db, now: Timestamp, sight: Sight) -> UnitOfWork<'c> {
        UnitOfWork {
            db,
            now,
            sight,
            order: sight.micros * ORDERS_PER_MICROSECOND,
            fresh: VecDeque::new(),
            seats: HashMap::new(),
            changes: 0,
            keys: HashMap::new(),
            damaged: HashMap::new(),
            hurt: BTreeSet::new(),
            news: Vec::new(),
            due: None,
            outbox: Vec::new(),
            blobs: Vec::new(),
            greeted: BTreeMap::new(),
        }
    }

    pub fn find(&self, key: &RunKey) -> Option<&LockedRun> {
        debug_assert!(self.seats.contains_key(key), "DB1: {key} was not locked");
        self.seats.get(key).and_then(Option::as_deref)
    }

    /// Fails if the row of the run is damaged, which must not look like a missing run (DB3).
    pub fn check(&self, key: &RunKey) -> Outcome<()> {
        match self.damaged.get(key) {
            Some(_) => Err(damaged_row(key, "the run").into()),
            None => Ok(()),
        }
    }

    pub fn require(&self, key: &RunKey) -> Outcome<&LockedRun> {
        self.check(key)?;
        self.find(key).ok_or_else(|| StoreError::RunNotFound { key: key.clone() }.into())
    }

    /// Returns a run that is known to exist.
    pub fn locked(&mut self, key: &RunKey) -> &mut LockedRun {
        self.seats.get_mut(key).and_then(Option::as_deref_mut).expect("the caller has seen the run")
    }

    pub fn add(&mut self, locked: Box<LockedRun>) {
        self.keys.insert(locked.rk, locked.head.key.clone());
        self.seats.insert(locked.head.key.clone(), Some(locked));
    }

    /// Returns the next epoch: a time by the database clock, so that none is assigned twice, neither to the run nor to another
    /// incarnation, nor by a restored database (DB9).
    pub fn epoch_after(&self, last: Epoch) -> Epoch {
        Epoch((last.0 + 1).max(self.sight.micros.max(self.sight.floor) as u64))
    }

    pub fn next_order(&mut self) -> i64 {
        self.order += 1;
        self.order
    }

    /// Updates the lease and claimability of a run after a change. The last act of every change.
    pub fn settle(&mut self, key: &RunKey) {
        let order = self.next_order();
        let locked = self.locked(key);
        let status = locked.head.status;
        if status.is_closed() {
            locked.worker = None;
        }
        locked.is_changed = true;
        let claimable = status == Status::Pending && locked.worker.is_none();
        if !claimable {
            locked.ready = None;
        } else if locked.ready.is_none() {
            locked.ready = Some(order);
            let head = locked.head.clone();
            self.news.push(OwnedChange::RunPending { head });
        }
    }

    pub fn announce_due(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |known| known.min(at)));
    }

    /// Adds an encoded record to the log of its run.
    pub fn put_event(&mut self, key: &RunKey, index: Index, at: Timestamp, body: &Body) {
        self.changes += 1;
        let locked = self.locked(key);
        let (rk, generation) = (locked.rk, locked.head.generation);
        locked.events.push(NewEvent { generation, index, at, body: body.bytes.clone() });
        if !body.blobs.blobs.is_empty() {
            self.blobs.push((rk, Blobs { blobs: body.blobs.blobs.clone() }));
        }
    }

    pub fn send(&mut self, from: &RunKey, mut delivery: OutboxMessage) {
        let rk = self.locked(from).rk;
        let blobs = Blobs::take(&mut delivery);
        self.outbox.push((rk, seal_delivery(&delivery)));
        self.blobs.push((rk, blobs));
        self.news.push(OwnedChange::OutboxGrew);
    }

    /// Takes what is published once the transaction is durable.
    pub fn aftermath(&mut self) -> Aftermath {
        Aftermath { news: std::mem::take(&mut self.news), due: self.due }
    }

    /// Creates a session for a worker that got a run, unless it has one.
    pub fn greet(&mut self, worker: &WorkerId) {
        let until = self.now.after(SESSION_DEFAULT);
        if self.greeted.insert(worker.clone(), until).is_none() {
            self.announce_due(until);
        }
    }
}
