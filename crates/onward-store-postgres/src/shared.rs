//! What the store's tasks and its callers have in common.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use onward_core::Timestamp;
use onward_store::kept::News;
use onward_store::{Change, Listener};

use crate::hints::Hints;
use crate::judge::Judge;
use crate::op::Queue;
use crate::pool::Jobs;
use crate::transaction::Aftermath;

pub(crate) struct Shared {
    pub judge: Judge,
    /// Tells this store from others on the same database.
    pub server: String,
    pub queue: Queue,
    pub jobs: Jobs,
    pub hints: Hints,
    pub counters: Counters,
    pub batch_max: usize,
    /// The earliest moment that listeners know of.
    announced_due: AtomicU64,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
    /// Locked while listeners are called, so that they hear of changes one after the other.
    telling: Mutex<()>,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub operations: AtomicU64,
    pub retries: AtomicU64,
    pub unknown: AtomicU64,
}

/// What the store has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions of the appender, and the operations in them.
    pub batches: u64,
    pub operations: u64,
    /// Transactions that were tried again because somebody was in the way or the connection was lost before the end.
    pub retries: u64,
    /// Operations whose outcome nobody knows, because the connection was lost while they were being committed.
    pub unknown: u64,
}

impl Counters {
    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            batches: read(&self.batches),
            operations: read(&self.operations),
            retries: read(&self.retries),
            unknown: read(&self.unknown),
        }
    }
}

impl Shared {
    pub fn new(judge: Judge, server: String, batch_max: usize) -> Shared {
        Shared {
            judge,
            server,
            queue: Queue::default(),
            jobs: Jobs::default(),
            hints: Hints::default(),
            counters: Counters::default(),
            batch_max,
            announced_due: AtomicU64::new(u64::MAX),
            listeners: RwLock::default(),
            telling: Mutex::default(),
        }
    }

    pub fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(listener);
        self.hints.wake();
    }

    pub fn has_listeners(&self) -> bool {
        !self.listeners.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Tells the listeners of this process what is durable by now, and whoever it may concern elsewhere.
    pub fn tell(&self, after: Aftermath) {
        self.hints.add(&after.news, after.due);
        self.tell_here(after.news, after.due);
    }

    pub fn tell_here(&self, mut news: Vec<News>, due: Option<Timestamp>) {
        if let Some(due) = due
            && self.announced_due.fetch_min(due.0, Ordering::SeqCst) > due.0
        {
            news.push(News::DueAt(due));
        }
        for item in &news {
            self.tell_change(item.as_change());
        }
    }

    pub fn tell_change(&self, change: Change<'_>) {
        // A copy, so that nobody is called under the lock.
        let listeners = self.listeners.read().unwrap_or_else(PoisonError::into_inner).clone();
        let _one_at_a_time = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(|listener| listener.changed(change));
    }

    /// What listeners know from now on.
    pub fn set_due(&self, due: Option<Timestamp>) {
        self.announced_due.store(due.map_or(u64::MAX, |due| due.0), Ordering::SeqCst);
    }
}
