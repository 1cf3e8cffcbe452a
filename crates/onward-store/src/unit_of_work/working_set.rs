//! The rows that a unit of work has loaded and changed.
//!
//! Must never decide: `onward-core` does, and the functions of [`crate::unit_of_work`] apply the decisions here.

use std::collections::{BTreeMap, HashMap};

use onward_core::ledger::{LedgerKey, LedgerSum};
use onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS;
use onward_core::run::{OutboxMessage, Wait};
use onward_core::task::Task;
use onward_core::{CallId, Event, Hash, Index, Record, RunHead, RunKey, Timestamp, WorkerId};

use super::table::Table;
use crate::admission::TakenSlot;
use crate::durable::Body;
use crate::{Change, SESSION_DEFAULT, shown};

/// The loaded runs of one operation or batch, and everything it adds. `X` is what the store keeps with a run, `B` the stored form
/// of a record.
pub struct WorkingSet<X, B> {
    /// The time of the store's clock.
    pub now: Timestamp,
    pub runs: Runs<X, B>,
    /// Runs of which rows were loaded or changed since the last save.
    pub touched: Vec<RunRef>,
    /// Messages to other runs, with their senders.
    pub outbox: Vec<(RunRef, OutboxMessage)>,
    /// Changes for listeners, in order.
    pub changes: Vec<Change>,
    /// False if there are no listeners: then no changes are collected.
    pub has_listeners: bool,
    /// The earliest time at which something becomes due.
    pub due: Option<Timestamp>,
    /// Workers that got a run; those without a session get one until the given time (DB5).
    pub sessions: BTreeMap<WorkerId, Timestamp>,
    /// Number of records added so far: an operation that is refused has added none (UW1).
    pub record_count: usize,
    /// The last number given to rows that must keep their order.
    pub order: i64,
    /// The number of workers that a run loses in a row before it is paused; 0 is no limit.
    pub pause_after_lost_workers: u32,
}

/// The stored form of a record.
pub trait RecordBody {
    /// Encodes a record, unless it was encoded before.
    fn of(record: &Record, encoded: Option<Body>) -> Self;
}

impl RecordBody for Body {
    fn of(record: &Record, encoded: Option<Body>) -> Body {
        encoded.unwrap_or_else(|| Body::of_record(record))
    }
}

impl RecordBody for Record {
    fn of(record: &Record, _encoded: Option<Body>) -> Record {
        record.clone()
    }
}

/// A run and those of its rows that were loaded.
pub struct LoadedRun<X, B> {
    pub own: X,
    pub head: RunHead,
    /// The worker that holds the run.
    pub lease: Option<WorkerId>,
    /// Order number since which the run is claimable.
    pub ready: Option<i64>,
    pub is_changed: bool,
    pub is_touched: bool,
    /// The head changed without a record: its workers were lost or found (CW4).
    pub is_head_changed: bool,
    pub records: Vec<NewRecord<B>>,
    /// The final heads of generations that ended since the last save.
    pub past: Vec<RunHead>,
    /// Hash of the input that the run was first started with, once it was loaded.
    pub input_hash: Option<Hash>,
    /// The final head of the earlier generation that was loaded last, if it exists.
    pub past_head: Option<RunHead>,
    /// The open children that were loaded last.
    pub children: Vec<RunHead>,
    pub slots: Table<String, TakenSlot>,
    pub waits: Table<CallId, Wait>,
    pub timers: Table<CallId, Timer>,
    pub tasks: Table<CallId, QueuedTask>,
    pub ledger: Table<LedgerKey, LedgerSum>,
}

/// A record to append.
pub struct NewRecord<B> {
    pub generation: u32,
    pub index: Index,
    pub at: Timestamp,
    /// Number of commits of the log up to this record.
    pub commit_count: u64,
    /// Index of the last commit up to this record.
    pub last_commit: Option<Index>,
    pub body: B,
    /// The run's head keeps something of it that later records do not repeat.
    pub is_kept_in_head: bool,
    pub sets_attributes: bool,
    /// The engine of an external run set a new state.
    pub sets_external_state: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    pub due_at: Timestamp,
    /// Its run is paused; the timer keeps its remaining time.
    pub is_frozen: bool,
}

#[derive(Debug, Clone)]
pub struct QueuedTask {
    pub task: Task,
    /// Order of scheduling, for tasks that became visible in the same millisecond.
    pub order: i64,
}

impl<X, B> LoadedRun<X, B> {
    /// Creates a run as it was loaded.
    pub fn stored(own: X, head: RunHead, lease: Option<WorkerId>, ready: Option<i64>) -> Box<LoadedRun<X, B>> {
        Box::new(LoadedRun {
            own,
            head,
            lease,
            ready,
            is_changed: false,
            is_touched: false,
            is_head_changed: false,
            records: Vec::new(),
            past: Vec::new(),
            input_hash: None,
            past_head: None,
            children: Vec::new(),
            slots: Table::default(),
            waits: Table::default(),
            timers: Table::default(),
            tasks: Table::default(),
            ledger: Table::default(),
        })
    }

    /// Creates a new run, which has no stored rows except perhaps in the ledger.
    pub fn new(own: X, head: RunHead, input_hash: Hash) -> Box<LoadedRun<X, B>> {
        let mut run = LoadedRun::stored(own, head, None, None);
        run.input_hash = Some(input_hash);
        (run.slots, run.waits) = (Table::empty(), Table::empty());
        (run.timers, run.tasks) = (Table::empty(), Table::empty());
        run
    }

    /// Returns true if rows in tables were read or changed: not so after a plain step.
    pub fn has_rows(&self) -> bool {
        let is_plain = self.slots.is_untouched()
            && self.waits.is_untouched()
            && self.timers.is_untouched()
            && self.tasks.is_untouched()
            && self.ledger.is_untouched();
        !is_plain
    }

    /// Returns the head as callers see it.
    pub fn shown(&self) -> RunHead {
        shown(self.head.clone(), self.lease.is_some())
    }
}

impl<X, B> WorkingSet<X, B> {
    pub fn new(now: Timestamp) -> WorkingSet<X, B> {
        WorkingSet {
            now,
            runs: Runs::default(),
            touched: Vec::new(),
            outbox: Vec::new(),
            changes: Vec::new(),
            has_listeners: true,
            due: None,
            sessions: BTreeMap::new(),
            record_count: 0,
            order: 0,
            pause_after_lost_workers: PAUSE_AFTER_LOST_WORKERS,
        }
    }

    /// Returns a number for a row that must keep its order.
    pub fn next_order(&mut self) -> i64 {
        self.order += 1;
        self.order
    }

    /// Marks a run whose rows were loaded.
    pub fn touch(&mut self, run: RunRef) {
        if !std::mem::replace(&mut self.runs[run].is_touched, true) {
            self.touched.push(run);
        }
    }

    /// Returns a run to be changed.
    pub fn change(&mut self, run: RunRef) -> &mut LoadedRun<X, B> {
        self.touch(run);
        let loaded = &mut self.runs[run];
        loaded.is_changed = true;
        loaded
    }

    /// Adds a change for listeners, if there are any.
    pub fn notify(&mut self, change: impl FnOnce(&Self) -> Change) {
        if self.has_listeners {
            let change = change(self);
            self.changes.push(change);
        }
    }

    pub fn announce_due(&mut self, at: Timestamp) {
        self.due = Some(self.due.map_or(at, |known| known.min(at)));
    }

    /// Announces that a task is claimable, or when it becomes due. The store itself lets runs in when something is due.
    pub fn announce_task(&mut self, task: &Task) {
        if task.is_slot() {
            if task.waits_its_turn() {
                self.announce_due(task.visible_at.max(self.now));
            }
            return;
        }
        if task.may_be_claimed(self.now) {
            self.notify(|_| Change::TaskQueued { task: Box::new(task.clone()) });
        } else if task.waits_its_turn() {
            self.announce_due(task.visible_at);
        }
        if let Some(due) = task.due_at() {
            self.announce_due(due);
        }
    }

    /// Stores an open task and announces it.
    pub fn put_task(&mut self, run: RunRef, queued: QueuedTask) {
        self.announce_task(&queued.task);
        self.change(run).tasks.put(queued.task.id.call_id.clone(), queued);
    }

    pub fn put_timer(&mut self, run: RunRef, call_id: CallId, timer: Timer) {
        if !timer.is_frozen {
            self.announce_due(timer.due_at);
        }
        self.change(run).timers.put(call_id, timer);
    }

    /// Adds a record to the log of a run whose head has it already, with the commits of that head.
    pub fn put_record(&mut self, run: RunRef, record: &Record, body: B) {
        self.record_count += 1;
        let loaded = self.change(run);
        loaded.records.push(NewRecord {
            generation: loaded.head.generation,
            index: record.index,
            at: record.at,
            commit_count: loaded.head.next_commit,
            last_commit: loaded.head.last_commit.map(|last| last.index),
            body,
            is_kept_in_head: record.events.iter().any(Event::is_kept_in_head),
            sets_attributes: record.events.iter().any(|event| matches!(event, Event::AttributeSet(_))),
            sets_external_state: record.sets_external_state(),
        });
    }

    pub fn send(&mut self, from: RunRef, message: OutboxMessage) {
        self.touch(from);
        self.outbox.push((from, message));
        self.notify(|_| Change::OutboxGrew);
    }

    /// Opens a session for a worker that got a run, unless it has one. The store announces the end of a new session.
    pub fn open_session(&mut self, worker: &WorkerId) {
        self.sessions.insert(worker.clone(), self.now.after(SESSION_DEFAULT));
    }
}

/// The position of a loaded run; valid until the run is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunRef(usize);

/// Loaded runs by key and position.
pub struct Runs<X, B> {
    index: HashMap<RunKey, RunRef>,
    runs: Vec<Option<Box<LoadedRun<X, B>>>>,
    free: Vec<RunRef>,
}

impl<X, B> Default for Runs<X, B> {
    fn default() -> Runs<X, B> {
        Runs { index: HashMap::new(), runs: Vec::new(), free: Vec::new() }
    }
}

impl<X, B> Runs<X, B> {
    pub fn get(&self, key: &RunKey) -> Option<RunRef> {
        self.index.get(key).copied()
    }

    /// Adds a run; one with the same key is replaced at its position.
    pub fn insert(&mut self, run: Box<LoadedRun<X, B>>) -> RunRef {
        let at = self.get(&run.head.key).unwrap_or_else(|| {
            let at = self.free.pop().unwrap_or_else(|| {
                self.runs.push(None);
                RunRef(self.runs.len() - 1)
            });
            self.index.insert(run.head.key.clone(), at);
            at
        });
        self.runs[at.0] = Some(run);
        at
    }

    pub fn remove(&mut self, key: &RunKey) -> Option<Box<LoadedRun<X, B>>> {
        let at = self.index.remove(key)?;
        self.free.push(at);
        self.runs[at.0].take()
    }

    pub fn iter(&self) -> impl Iterator<Item = &LoadedRun<X, B>> {
        self.runs.iter().filter_map(Option::as_deref)
    }

    /// Removes all runs and returns them.
    pub fn take(&mut self) -> Vec<Box<LoadedRun<X, B>>> {
        std::mem::take(self).runs.into_iter().flatten().collect()
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

impl<X, B> std::ops::Index<RunRef> for Runs<X, B> {
    type Output = LoadedRun<X, B>;
    fn index(&self, run: RunRef) -> &LoadedRun<X, B> {
        self.runs[run.0].as_deref().expect("a position is not used after its run is removed")
    }
}

impl<X, B> std::ops::IndexMut<RunRef> for Runs<X, B> {
    fn index_mut(&mut self, run: RunRef) -> &mut LoadedRun<X, B> {
        self.runs[run.0].as_deref_mut().expect("a position is not used after its run is removed")
    }
}
