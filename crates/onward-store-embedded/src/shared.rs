//! State that the store's threads and its callers share.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use onward_store::durable::limits::PayloadLimits;
use onward_store::durable::reply::{Slot, Waiting};
use onward_store::sync;
use onward_store::{Clock, Listener};

use crate::file::lease_file::LostLease;
use crate::leases::Leases;
use crate::write::op::{Op, OpQueue};

pub(crate) struct WriterShared {
    pub clock: Arc<dyn Clock>,
    pub queue: OpQueue,
    pub leases: Leases,
    /// Limits of payloads by namespace.
    pub payload_limits: PayloadLimits,
    /// The number of workers that a run loses in a row before it is paused; 0 is no limit.
    pub pause_after_lost_workers: u32,
    stats: Mutex<Stats>,
    /// The earliest due time announced to listeners.
    pub announced_due: AtomicU64,
    /// The last repair failed: callers get the error of the damage itself.
    pub repair_failed: AtomicBool,
    /// The last batch was refused for lack of space.
    pub is_full: AtomicBool,
    listeners: RwLock<Vec<Arc<dyn Listener>>>,
}

impl WriterShared {
    pub fn new(clock: Arc<dyn Clock>, leases: Leases, pause_after_lost_workers: u32) -> WriterShared {
        WriterShared {
            clock,
            queue: OpQueue::default(),
            leases,
            payload_limits: PayloadLimits::default(),
            pause_after_lost_workers,
            stats: Mutex::default(),
            announced_due: AtomicU64::new(u64::MAX),
            repair_failed: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            listeners: RwLock::default(),
        }
    }

    /// Counts the workers that died with the process before, and waits until that is durable. If it fails, the next process counts
    /// them (LF2).
    pub fn lose_leases(&self, lost: &[LostLease]) {
        let count = || {
            let slot = Slot::new();
            self.queue.submit(Op::LoseLeases(lost.to_vec(), slot.clone()));
            sync::block_on(Waiting(slot))
        };
        if lost.is_empty() || count().is_ok() {
            self.leases.forget_before();
        }
    }

    /// Returns whether a call that met repairable damage should be retried: the writer has repaired it or is about to.
    pub fn may_repair(&self) -> bool {
        !self.repair_failed.load(Ordering::Relaxed) && self.queue.stopped().is_none()
    }

    /// Requests a repair for a read that met damage; returns whether the read should be retried. `repaired` is the number of
    /// repairs before the read began: damage that was repaired since needs no other repair, which would find nothing.
    pub fn request_repair(&self, repaired: u64) -> bool {
        if self.stats().repaired != repaired {
            return true;
        }
        let may_repair = self.may_repair();
        self.queue.submit(Op::Repair(repaired, Slot::new()));
        may_repair
    }

    pub fn stats(&self) -> Stats {
        *sync::lock(&self.stats)
    }

    pub fn count(&self, add: impl FnOnce(&mut Stats)) {
        add(&mut sync::lock(&self.stats));
    }

    pub fn subscribe(&self, listener: Arc<dyn Listener>) {
        sync::write(&self.listeners).push(listener);
    }

    /// Returns a copy, so that no listener is called under the lock.
    pub fn listeners(&self) -> Vec<Arc<dyn Listener>> {
        sync::read(&self.listeners).clone()
    }
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
    pub repaired: u64,
    /// Pages returned to the file system.
    pub pages_returned: u64,
}
