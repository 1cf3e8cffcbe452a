//! State that the store's tasks and its callers share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use onward_core::Timestamp;
use onward_store::sync;
use onward_store::{Change, Listener};

use crate::clock::StoreClock;
use crate::connection::open::Connector;
use crate::connection::pool::Jobs;
use crate::connection::transaction::CommittedChanges;
use crate::notify::idle_cache::{IdleCache, WorkKind};
use crate::notify::listener::Notifications;
use crate::repair::RepairAttempts;
use crate::stats::Stats;
use crate::write::op::Queues;
use crate::write::queues::Turns;
use crate::write::quotas::KnownLimits;

pub(crate) struct ServerShared {
    pub clock: StoreClock,
    pub connector: Connector,
    /// Identifies this store among those on the same database.
    pub server: String,
    pub queues: Queues,
    pub jobs: Jobs,
    pub notifications: Notifications,
    pub idle_cache: IdleCache,
    /// Whose turn it is in queues that are shared out.
    pub turns: Arc<Turns>,
    /// Limits of payloads by namespace.
    pub payload_limits: KnownLimits,
    stats: Mutex<Stats>,
    pub repair_attempts: RepairAttempts,
    pub batch_max: usize,
    /// The number of workers that a run loses in a row before it is paused; 0 is no limit.
    pub pause_after_lost_workers: u32,
    /// The earliest due time that listeners know.
    announced_due: AtomicU64,
    /// The earliest due time that was announced since the last query for due work began.
    due_since_query: AtomicU64,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// Locked while listeners are called, so that they get changes one after the other.
    notifying: Mutex<()>,
}

impl ServerShared {
    pub fn new(
        clock: StoreClock,
        connector: Connector,
        repair_attempts: RepairAttempts,
        server: String,
        appenders: usize,
        batch_max: usize,
        pause_after_lost_workers: u32,
    ) -> ServerShared {
        ServerShared {
            clock,
            connector,
            server,
            queues: Queues::new(appenders),
            jobs: Jobs::default(),
            notifications: Notifications::default(),
            idle_cache: IdleCache::default(),
            turns: Arc::default(),
            payload_limits: KnownLimits::default(),
            stats: Mutex::default(),
            repair_attempts,
            batch_max,
            pause_after_lost_workers,
            announced_due: AtomicU64::new(u64::MAX),
            due_since_query: AtomicU64::new(u64::MAX),
            listeners: RwLock::default(),
            notifying: Mutex::default(),
        }
    }

    pub fn stats(&self) -> Stats {
        Stats { connections: self.connector.connections(), ..*sync::lock(&self.stats) }
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

    /// Returns whether a query can be skipped: the last query found nothing of this sort, and notifications arrive.
    pub fn is_quiet(&self, what: WorkKind) -> bool {
        self.notifications.can_receive() && self.idle_cache.is_quiet(what)
    }

    /// Publishes what is durable now to the listeners of this process, and queues notifications for other servers.
    pub fn publish(&self, after: CommittedChanges) {
        self.notifications.add(&after.changes, after.due);
        self.publish_local(after.changes, after.due);
    }

    pub fn publish_local(&self, mut changes: Vec<Change>, due: Option<Timestamp>) {
        if let Some(due) = due {
            self.due_since_query.fetch_min(due.0, Ordering::SeqCst);
            if self.announced_due.fetch_min(due.0, Ordering::SeqCst) > due.0 {
                changes.push(Change::DueAt(due));
            }
        }
        changes.iter().for_each(|change| self.notify_listeners(change));
    }

    pub fn notify_listeners(&self, change: &Change) {
        // A copy, so that listeners are not called under the lock.
        let listeners = sync::read(&self.listeners).clone();
        let _one_at_a_time = sync::lock(&self.notifying);
        listeners.iter().for_each(|listener| listener.changed(change));
    }

    /// Reports that all leases were revoked because the database was restored or replaced (DB9): workers here must check their
    /// runs.
    pub fn leases_revoked(&self) {
        self.count(|stats| stats.moves += 1);
        self.idle_cache.invalidate();
        self.notify_listeners(&Change::Missed);
    }

    /// Begins a query for due work; must be called before it is sent.
    pub fn begin_due_query(&self) {
        self.due_since_query.store(u64::MAX, Ordering::SeqCst);
    }

    /// Ends the query: records the earlier of the due time it found and those announced meanwhile, which it may have missed, as
    /// what listeners know. Returns it.
    pub fn end_due_query(&self, found: Option<Timestamp>) -> Option<Timestamp> {
        let since = self.due_since_query.load(Ordering::SeqCst);
        let due = found.map_or(u64::MAX, |due| due.0).min(since);
        self.announced_due.store(due, Ordering::SeqCst);
        (due != u64::MAX).then_some(Timestamp(due))
    }
}
