//! State that the store's threads and its callers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use onward_store::sync;
use onward_store::{Clock, Listener};

use crate::leases::Leases;
use crate::write::op::OpQueue;

pub(crate) struct WriterShared {
    pub clock: Arc<dyn Clock>,
    pub queue: OpQueue,
    pub leases: Leases,
    pub counters: Counters,
    /// The earliest due time announced to listeners.
    pub announced_due: AtomicU64,
    /// The last repair failed: callers get the error of the damage itself.
    pub mended_in_vain: AtomicBool,
    /// The last batch was refused for lack of space.
    pub is_full: AtomicBool,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
}

impl WriterShared {
    pub fn new(clock: Arc<dyn Clock>) -> WriterShared {
        WriterShared {
            clock,
            queue: OpQueue::default(),
            leases: Leases::default(),
            counters: Counters::default(),
            announced_due: AtomicU64::new(u64::MAX),
            mended_in_vain: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            listeners: RwLock::default(),
        }
    }

    /// Returns whether a call that met repairable damage should be retried: the writer has repaired it or is about to.
    pub fn may_mend(&self) -> bool {
        !self.mended_in_vain.load(Ordering::Relaxed) && self.queue.stopped().is_none()
    }

    pub fn subscribe(&self, listener: Arc<dyn Listener>) {
        sync::write(&self.listeners).push(listener);
    }

    /// Returns a copy, so that no listener is called under the lock.
    pub fn listeners(&self) -> Vec<Arc<dyn Listener>> {
        sync::read(&self.listeners).clone()
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

/// Statistics of the writer since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Transactions, each with one sync.
    pub batches: u64,
    pub operations: u64,
    /// Rows of logs: one per input or commit.
    pub events: u64,
    pub event_bytes: u64,
    /// Time spent waiting for work.
    pub idle: Duration,
    /// Time spent deciding and writing rows.
    pub sql: Duration,
    /// Time spent in COMMIT: writing pages and the sync.
    pub sync: Duration,
    /// Time spent replying and notifying listeners.
    pub reply: Duration,
    pub checkpoints: u64,
    pub checkpoint: Duration,
    /// Indexes and rows that were found damaged and rebuilt.
    pub mended: u64,
    /// Pages returned to the file system.
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
