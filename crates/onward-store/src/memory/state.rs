//! The maps of the memory store.

use std::collections::{BTreeMap, BTreeSet};

use onward_core::ledger::{LedgerKey, LedgerSum};
use onward_core::queue::{QueueStarts, Turn};
use onward_core::run::{OutboxMessage, Wait};
use onward_core::task::{Task, TaskState};
use onward_core::{CallId, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Timestamp, WorkerId};

use crate::admission::TakenSlot;
use crate::unit_of_work::{QueuedTask, SharedQueue, Timer};
use crate::{Change, DeletedRun, OutboxId, shown};

#[derive(Default)]
pub struct MemoryState {
    pub runs: BTreeMap<RunKey, StoredRun>,
    /// The runs that are not closed. Only these have timers, tasks and waits.
    pub open: BTreeSet<RunKey>,
    /// End of each worker's session.
    pub sessions: BTreeMap<WorkerId, Timestamp>,
    /// With the run that sent each message.
    pub outbox: BTreeMap<OutboxId, (RunKey, OutboxMessage)>,
    /// Oldest first.
    pub deleted: Vec<DeletedRun>,
    /// In list order.
    pub kinds: Vec<KindSchemas>,
    pub ledger: BTreeMap<LedgerKey, LedgerSum>,
    /// Changes not yet delivered to listeners.
    pub changes: Vec<Change>,
    /// The earliest due time announced to listeners.
    pub announced_due: Option<Timestamp>,
    /// Tasks that become visible later and are not announced yet.
    pub delayed: BTreeSet<(Timestamp, RunKey, CallId)>,
    /// By queue and key; `None` for a queue as a whole.
    pub starts: BTreeMap<(QueueName, Option<Name>), QueueStarts>,
    pub turns: BTreeMap<QueueName, Turn>,
    /// The last number given to something that must keep its order of arrival.
    pub last_number: i64,
}

/// A queue of a namespace.
pub type QueueName = (Namespace, Option<Name>);

#[derive(Default)]
pub struct StoredRun {
    /// By generation number; the last one is current.
    pub generations: Vec<Generation>,
    /// Idempotency records, kept over all generations (L11).
    pub slots: BTreeMap<String, TakenSlot>,
    pub lease: Option<WorkerId>,
    /// Counter value since which the run is claimable.
    pub ready: Option<i64>,
    pub timers: BTreeMap<CallId, Timer>,
    pub tasks: BTreeMap<CallId, QueuedTask>,
    pub waits: BTreeMap<CallId, Wait>,
}

pub struct Generation {
    pub head: RunHead,
    pub records: Vec<Record>,
}

impl StoredRun {
    pub fn current(&self) -> &Generation {
        self.generations.last().expect("a run has at least one generation")
    }

    pub fn head(&self) -> &RunHead {
        &self.current().head
    }

    pub fn shown_head(&self) -> RunHead {
        shown(self.head().clone(), self.lease.is_some())
    }
}

impl MemoryState {
    pub fn open_runs(&self) -> impl Iterator<Item = &StoredRun> {
        self.open.iter().filter_map(|key| self.runs.get(key))
    }

    pub fn open_heads(&self) -> impl Iterator<Item = &RunHead> {
        self.open_runs().map(StoredRun::head)
    }

    pub fn children<'a>(&'a self, parent: &'a RunKey) -> impl Iterator<Item = &'a RunHead> {
        self.open_heads().filter(|child| child.parent.as_ref().is_some_and(|link| link.run == *parent))
    }

    pub fn open_tasks(&self) -> impl Iterator<Item = &QueuedTask> {
        self.open_runs().flat_map(|run| run.tasks.values())
    }

    pub fn tasks_of_queue<'a>(
        &'a self,
        namespace: &'a Namespace,
        queue: Option<&'a Name>,
    ) -> impl Iterator<Item = &'a QueuedTask> {
        let is_there = move |task: &Task| task.id.run.namespace == *namespace && task.options.queue.as_ref() == queue;
        self.open_tasks().filter(move |queued| is_there(&queued.task))
    }

    /// Counts the slots that the leases of a key hold.
    pub fn held(&self, shared: &SharedQueue, key: &Option<Name>) -> u32 {
        let of_queue = self.tasks_of_queue(&shared.namespace, shared.queue.as_ref());
        let held = of_queue.filter(|queued| queued.task.state == TaskState::Leased && queued.task.options.key == *key);
        held.fold(0, |sum: u32, queued| sum.saturating_add(queued.task.options.slots()))
    }

    /// Notifies listeners if `at` is earlier than the announced due time.
    pub fn announce(&mut self, at: Timestamp) {
        if self.announced_due.is_none_or(|known| at < known) {
            self.announced_due = Some(at);
            self.changes.push(Change::DueAt(at));
        }
    }

    pub fn earliest_due(&self, now: Timestamp) -> Option<Timestamp> {
        let timers = self.open_runs().flat_map(|run| run.timers.values()).filter(|timer| !timer.is_frozen);
        let timers = timers.map(|timer| timer.due_at);
        let tasks = self.open_tasks().filter_map(|queued| queued.task.due_at());
        let is_delayed = |queued: &&QueuedTask| queued.task.waits_its_turn() && queued.task.visible_at > now;
        let visible = self.open_tasks().filter(is_delayed).map(|queued| queued.task.visible_at);
        timers.chain(tasks).chain(visible).chain(self.sessions.values().copied()).min()
    }
}
