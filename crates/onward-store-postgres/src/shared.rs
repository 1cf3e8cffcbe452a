//! State that the store's tasks and its callers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use onward_core::Timestamp;
use onward_store::sync;
use onward_store::{Change, Listener};

use crate::clock::StoreClock;
use crate::connection::open::Entrance;
use crate::connection::pool::Jobs;
use crate::connection::transaction::Aftermath;
use crate::notify::listener::Notifications;
use crate::notify::pulse::{Pulse, WorkKind};
use crate::repair::RepairAttempts;
use crate::stats::Stats;
use crate::write::op::Queues;

pub(crate) struct ServerShared {
    pub clock: StoreClock,
    pub entrance: Entrance,
    /// Identifies this store among those on the same database.
    pub server: String,
    pub queues: Queues,
    pub jobs: Jobs,
    pub notifications: Notifications,
    pub pulse: Pulse,
    stats: Mutex<Stats>,
    pub repair_attempts: RepairAttempts,
    pub batch_max: usize,
    /// The earliest due time that listeners know.
    announced_due: AtomicU64,
    /// The earliest due time that was announced since the last look for due work began.
    due_since_look: AtomicU64,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// Locked while listeners are called, so that they get changes one after the other.
    telling: Mutex<()>,
}

impl ServerShared {
    pub fn new(
        clock: StoreClock,
        entrance: Entrance,
        repair_attempts: RepairAttempts,
        server: String,
        appenders: usize,
        batch_max: usize,
    ) -> ServerShared {
        ServerShared {
            clock,
            entrance,
            server,
            queues: Queues::new(appenders),
            jobs: Jobs::default(),
            notifications: Notifications::default(),
            pulse: Pulse::default(),
            stats: Mutex::default(),
            repair_attempts,
            batch_max,
            announced_due: AtomicU64::new(u64::MAX),
            due_since_look: AtomicU64::new(u64::MAX),
            listeners: RwLock::default(),
            telling: Mutex::default(),
        }
    }

    pub fn stats(&self) -> Stats {
        Stats { connections: self.entrance.connections(), ..*sync::lock(&self.stats) }
    }

    pub fn count(&self, add: impl FnOnce(&mut Stats)) {
        add(&mut sync::lock(&self.stats));
    }

    pub fn subscribe(&self, listener: Arc<dyn Listener>) {
        sync::write(&self.listeners).push(listener);
        self.notifications.wake();
    }

    pub fn has_listeners(&self) -> bool {
        !sync::read(&self.listeners).is_empty()
    }

    /// Returns whether a query can be skipped: the last look found nothing of this sort, and notifications arrive.
    pub fn is_quiet(&self, what: WorkKind) -> bool {
        self.notifications.can_receive() && self.pulse.is_quiet(what)
    }

    /// Publishes what is durable now to the listeners of this process, and queues notifications for other servers.
    pub fn tell(&self, after: Aftermath) {
        self.notifications.add(&after.changes, after.due);
        self.tell_here(after.changes, after.due);
    }

    pub fn tell_here(&self, mut changes: Vec<Change>, due: Option<Timestamp>) {
        if let Some(due) = due {
            self.due_since_look.fetch_min(due.0, Ordering::SeqCst);
            if self.announced_due.fetch_min(due.0, Ordering::SeqCst) > due.0 {
                changes.push(Change::DueAt(due));
            }
        }
        changes.iter().for_each(|change| self.tell_change(change));
    }

    pub fn tell_change(&self, change: &Change) {
        // A copy, so that listeners are not called under the lock.
        let listeners = sync::read(&self.listeners).clone();
        let _one_at_a_time = sync::lock(&self.telling);
        listeners.iter().for_each(|listener| listener.changed(change));
    }

    /// Reports that all leases were revoked because the database was restored or replaced (DB9): workers here must check their
    /// runs.
    pub fn moved(&self) {
        self.count(|stats| stats.moves += 1);
        self.pulse.stir();
        self.tell_change(&Change::Missed);
    }

    /// Begins a look for due work; must be called before the query.
    pub fn begin_look(&self) {
        self.due_since_look.store(u64::MAX, Ordering::SeqCst);
    }

    /// Ends the look: records the earlier of the due time it found and those announced meanwhile, which it may have missed, as
    /// what listeners know. Returns it.
    pub fn end_look(&self, found: Option<Timestamp>) -> Option<Timestamp> {
        let since = self.due_since_look.load(Ordering::SeqCst);
        let due = found.map_or(u64::MAX, |due| due.0).min(since);
        self.announced_due.store(due, Ordering::SeqCst);
        (due != u64::MAX).then_some(Timestamp(due))
    }
}
