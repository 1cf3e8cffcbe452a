//! Operations of the appenders, and their queues.
//!
//! Owns the order of appends of this process: operations on one run are executed in the order of their submission, because all go
//! to the same appender, and there in the order of the lanes ([`onward_store::durable::lanes`]). Must never lose an operation: every
//! accepted one gets a response.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use onward_core::RunKey;
use onward_store::durable::lanes::WAITING_MAX;
use onward_store::durable::reply::{Pending, Slot};
use onward_store::durable::{Lanes, RunOp, Waits};
use onward_store::sync;
use onward_store::{Expired, StoreError};
use tokio::sync::Notify;

/// Operations that may append to logs.
pub(crate) enum Op {
    Run(RunOp),
    /// Finds its runs itself and therefore needs its own transaction.
    Expire(usize, Arc<Slot<Expired>>),
}

impl Op {
    pub fn pending(&self) -> Arc<dyn Pending> {
        match self {
            Op::Run(op) => op.pending(),
            Op::Expire(_, to) => to.clone(),
        }
    }
}

impl Waits for Op {
    fn runs(&self) -> Vec<&RunKey> {
        if let Op::Run(op) = self { op.runs() } else { Vec::new() }
    }

    fn bytes(&self) -> usize {
        if let Op::Run(op) = self { op.bytes() } else { 0 }
    }
}

/// Approximate limit of bytes in one transaction: statements have a size limit, and other operations wait.
pub(crate) const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// One queue for each appender, and a last one for operations that find their runs themselves: expiry has its own connection, so
/// no request waits behind it (F26).
pub(crate) struct Queues(Vec<OpQueue>);

impl Queues {
    pub fn new(appenders: usize) -> Queues {
        Queues((0..appenders.max(1) + 1).map(|_| OpQueue::default()).collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, number: usize) -> &OpQueue {
        &self.0[number]
    }

    pub fn submit(&self, op: Op) {
        let appenders = self.0.len() - 1;
        let number = match &op {
            Op::Run(op) => {
                let mut hasher = DefaultHasher::new();
                op.key().hash(&mut hasher);
                (hasher.finish() % appenders as u64) as usize
            }
            Op::Expire(..) => appenders,
        };
        self.0[number].submit(op);
    }

    pub fn close(&self) {
        self.0.iter().for_each(OpQueue::close);
    }
}

#[derive(Default)]
pub(crate) struct OpQueue {
    state: Mutex<QueueState>,
    wake: Notify,
}

#[derive(Default)]
struct QueueState {
    ops: Lanes<Op>,
    is_closing: bool,
}

impl OpQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        sync::lock(&self.state)
    }

    fn submit(&self, op: Op) {
        let mut state = self.lock();
        let refused = match () {
            () if state.is_closing => Some("the store is closed"),
            () if state.ops.len() >= WAITING_MAX => Some("too many writes are waiting for the database"),
            () => None,
        };
        if let Some(why) = refused {
            drop(state);
            return op.pending().fail(StoreError::Unavailable { why: why.to_owned() });
        }
        state.ops.push(op);
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for operations and takes up to `max` of them; returns none when the queue is closed and empty. An operation that
    /// needs its own transaction comes alone.
    pub async fn take(&self, max: usize) -> Vec<Op> {
        loop {
            let wait = self.wake.notified();
            {
                let mut state = self.lock();
                if !state.ops.is_empty() {
                    let mut bytes = 0_usize;
                    return state.ops.take(max, |op| {
                        let is_first = bytes == 0;
                        bytes = bytes.saturating_add(op.bytes());
                        matches!(op, Op::Run(_)) && (is_first || bytes <= BATCH_BYTES_MAX)
                    });
                }
                if state.is_closing {
                    return Vec::new();
                }
            }
            wait.await;
        }
    }

    fn close(&self) {
        self.lock().is_closing = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests;
