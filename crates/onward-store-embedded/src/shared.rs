//! What the store's threads and its callers have in common.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use onward_store::{Clock, Listener};

use crate::leases::Leases;
use crate::write::op::Queue;

pub(crate) struct Shared {
    pub clock: Arc<dyn Clock>,
    pub queue: Queue,
    pub leases: Leases,
    pub counters: Counters,
    /// The earliest moment that listeners know of.
    pub announced_due: AtomicU64,
    /// What was damaged when the writer looked last could not be made again: whoever meets it is told what it is.
    pub mended_in_vain: AtomicBool,
    /// The last batch was refused for lack of space.
    pub is_full: AtomicBool,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
}

impl Shared {
    pub fn new(clock: Arc<dyn Clock>) -> Shared {
        Shared {
            clock,
            queue: Queue::default(),
            leases: Leases::default(),
            counters: Counters::default(),
            announced_due: AtomicU64::new(u64::MAX),
            mended_in_vain: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            listeners: RwLock::default(),
        }
    }

    /// Whether damage that may be mended is worth another try: the writer is about to look after it, or has done so.
    pub fn may_mend(&self) -> bool {
        !self.mended_in_vain.load(Ordering::Relaxed) && self.queue.stopped().is_none()
    }

    pub fn subscribe(&self, listener: Arc<dyn Listener>) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// A copy, so that nobody is called under the lock.
    pub fn listeners(&self) -> Vec<Arc<dyn Listener>> {
        self.listeners.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub batches: AtomicU64,
    pub operations: AtomicU64,
    pub events: AtomicU64,
    pub event_bytes: AtomicU64,
    pub idle_nanos: AtomicU64,
    pub sql_nanos: AtomicU64,
    pub sync_nanos: AtomicU64,
    pub reply_nanos: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_nanos: AtomicU64,
    pub mended: AtomicU64,
    pub pages_returned: AtomicU64,
}

/// What the writer has done since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions, each with one sync.
    pub batches: u64,
    pub operations: u64,
    /// Rows of logs: one per input or commit.
    pub events: u64,
    pub event_bytes: u64,
    /// Waiting for work.
    pub idle: Duration,
    /// Deciding and writing rows.
    pub sql: Duration,
    /// In COMMIT: writing pages and the sync.
    pub sync: Duration,
    /// Answering and telling listeners.
    pub reply: Duration,
    pub checkpoints: u64,
    pub checkpoint: Duration,
    /// Indexes and rows that were found damaged and made again.
    pub mended: u64,
    /// Pages that were given back to the disk.
    pub pages_returned: u64,
}

impl Counters {
    pub fn stats(&self) -> Stats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let span = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        Stats {
            batches: read(&self.batches),
            operations: read(&self.operations),
            events: read(&self.events),
            event_bytes: read(&self.event_bytes),
            idle: span(&self.idle_nanos),
            sql: span(&self.sql_nanos),
            sync: span(&self.sync_nanos),
            reply: span(&self.reply_nanos),
            checkpoints: read(&self.checkpoints),
            checkpoint: span(&self.checkpoint_nanos),
            mended: read(&self.mended),
            pages_returned: read(&self.pages_returned),
        }
    }

    pub fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    pub fn add_span(counter: &AtomicU64, span: Duration) {
        counter.fetch_add(span.as_nanos() as u64, Ordering::Relaxed);
    }
}
