//! Operations for the writer, and their queue.
//!
//! Owns the order of writes: that of submission, except that large writes do not block small ones
//! ([`onward_store::durable::lanes`]). Must never lose an operation: each one that was accepted gets a reply.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_core::task::Task;
use onward_core::{KindSchemas, RunKey, Timestamp};
use onward_store::durable::lanes::WAITING_MAX;
use onward_store::durable::reply::{Pending, Slot};
use onward_store::durable::{Lanes, RunOp, Waits};
use onward_store::sync;
use onward_store::{ClaimRuns, ClaimTasks, ClaimedRun, Delete, Expired, OutboxId, Registration, StoreError};

use crate::file::lease_file::LostLease;

type ReplySlot<T> = Arc<Slot<T>>;

pub(crate) enum Op {
    Run(RunOp),
    ClaimRuns(ClaimRuns, ReplySlot<Vec<ClaimedRun>>),
    ClaimTasks(ClaimTasks, ReplySlot<Vec<Task>>),
    Expire(usize, ReplySlot<Expired>),
    /// Counts the workers that died with the process before.
    LoseLeases(Vec<LostLease>, ReplySlot<()>),
    FinishDeliveries(Vec<OutboxId>, ReplySlot<()>),
    Delete(Delete, ReplySlot<u64>),
    RegisterKinds(Vec<KindSchemas>, Registration, ReplySlot<Timestamp>),
    /// Notifies listeners of an earlier due time.
    Announce(Timestamp, ReplySlot<()>),
    /// A reader met damage that the writer may repair, after this number of repairs.
    Repair(u64, ReplySlot<()>),
    /// Checks whether there is space again.
    TryWrite(ReplySlot<()>),
}

impl Op {
    pub fn pending(&self) -> Arc<dyn Pending> {
        match self {
            Op::Run(op) => op.pending(),
            Op::ClaimRuns(_, to) => to.clone(),
            Op::ClaimTasks(_, to) => to.clone(),
            Op::Expire(_, to) => to.clone(),
            Op::Delete(_, to) => to.clone(),
            Op::RegisterKinds(_, _, to) => to.clone(),
            Op::FinishDeliveries(_, to) | Op::LoseLeases(_, to) | Op::Announce(_, to) | Op::Repair(_, to) | Op::TryWrite(to) => {
                to.clone()
            }
        }
    }
}

impl Waits for Op {
    fn runs(&self) -> Vec<&RunKey> {
        match self {
            Op::Run(op) => op.runs(),
            Op::Delete(Delete::Run { key, .. }, _) => vec![key],
            _ => Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        if let Op::Run(op) = self { op.bytes() } else { 0 }
    }
}

/// Maximum number of operations that share one sync.
pub(crate) const BATCH_MAX: usize = 1024;

#[derive(Default)]
pub(crate) struct OpQueue {
    state: Mutex<QueueState>,
    wake: Condvar,
}

#[derive(Default)]
struct QueueState {
    ops: Lanes<Op>,
    sleeping: bool,
    /// The queue is closed: the writer finishes what is queued and ends.
    closing: bool,
    /// Reason why no operation is accepted any more.
    stopped: Option<String>,
}

impl OpQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        sync::lock(&self.state)
    }

    pub fn submit(&self, op: Op) {
        let mut state = self.lock();
        if let Some(why) = state.stopped.clone() {
            drop(state);
            return op.pending().fail(StoreError::Stopped { why });
        }
        if state.ops.len() >= WAITING_MAX {
            drop(state);
            return op.pending().fail(StoreError::Unavailable { why: "too many writes are waiting for the disk".to_owned() });
        }
        state.ops.push(op);
        let wake = std::mem::take(&mut state.sleeping);
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Waits for work and takes the next batch, up to [`BATCH_MAX`]; returns `false` when the queue is closed and empty.
    pub fn take(&self, batch: &mut Vec<Op>, patience: Option<Duration>) -> bool {
        let mut state = self.lock();
        while state.ops.is_empty() {
            if state.closing {
                return false;
            }
            state.sleeping = true;
            let Some(patience) = patience else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let waited = self.wake.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner);
            state = waited.0;
            if waited.1.timed_out() && state.ops.is_empty() && !state.closing {
                state.sleeping = false;
                return true;
            }
        }
        state.sleeping = false;
        batch.extend(state.ops.take(BATCH_MAX, |_| true));
        true
    }

    /// Puts operations that were not started back in front.
    pub fn put_back(&self, ops: impl DoubleEndedIterator<Item = Op>) {
        self.lock().ops.put_back(ops);
    }

    pub fn is_empty(&self) -> bool {
        self.lock().ops.is_empty()
    }

    pub fn close(&self) {
        self.lock().closing = true;
        self.wake.notify_one();
    }

    /// Refuses all queued and later operations.
    pub fn stop(&self, why: &str) {
        let ops = {
            let mut state = self.lock();
            state.stopped.get_or_insert_with(|| why.to_owned());
            state.ops.drain()
        };
        ops.iter().for_each(|op| op.pending().fail(StoreError::Stopped { why: why.to_owned() }));
    }

    pub fn stopped(&self) -> Option<String> {
        self.lock().stopped.clone()
    }
}

#[cfg(test)]
mod tests;
