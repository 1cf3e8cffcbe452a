//! Operations for the writer, and their queue.
//!
//! Owns the order of writes: that of submission, except that large writes do not block small ones
//! ([`onward_store::durable::lanes`]). Must never lose an operation: each one that was accepted gets a reply.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_core::run::{Commit, Committed, Input};
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, KindSchemas, RunKey, Timestamp};
use onward_store::sync;
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Delete, Expired, OutboxId, Restored, Started, StoreError,
};

use onward_store::durable::lanes::WAITING_MAX;
use onward_store::durable::reply::{Pending, Slot};
use onward_store::durable::{Body, ClaimRun, Lanes, RestoreWork, StartRun, Waits};

type To<T> = Arc<Slot<T>>;

pub(crate) enum Op {
    Commit(Box<(Commit, Body)>, To<Committed>),
    Start(Box<StartRun>, To<Started>),
    Restore(Box<RestoreWork>, To<Restored>),
    Input(Box<(RunKey, Input, Body)>, To<Appended>),
    ClaimRuns(ClaimRuns, To<Vec<ClaimedRun>>),
    ClaimRun(Box<ClaimRun>, To<ClaimedOne>),
    Release(RunKey, Epoch, To<()>),
    ClaimTasks(ClaimTasks, To<Vec<Task>>),
    Report(Box<(TaskId, u64, TaskReport, Duration)>, To<()>),
    RetryTask(TaskId, To<()>),
    Expire(usize, To<Expired>),
    FinishDeliveries(Vec<OutboxId>, To<()>),
    Delete(Delete, To<u64>),
    RegisterKinds(Vec<KindSchemas>, To<()>),
    /// Notifies listeners of an earlier due time.
    Announce(Timestamp, To<()>),
    /// A reader met damage that the writer may repair.
    Mend(To<()>),
    /// Checks whether there is space again.
    TryWrite(To<()>),
}

impl Op {
    pub fn pending(&self) -> Arc<dyn Pending> {
        match self {
            Op::Commit(_, to) => to.clone(),
            Op::Start(_, to) => to.clone(),
            Op::Restore(_, to) => to.clone(),
            Op::Input(_, to) => to.clone(),
            Op::ClaimRuns(_, to) => to.clone(),
            Op::ClaimRun(_, to) => to.clone(),
            Op::Release(_, _, to)
            | Op::Report(_, to)
            | Op::RetryTask(_, to)
            | Op::FinishDeliveries(_, to)
            | Op::RegisterKinds(_, to)
            | Op::Announce(_, to)
            | Op::Mend(to)
            | Op::TryWrite(to) => to.clone(),
            Op::ClaimTasks(_, to) => to.clone(),
            Op::Expire(_, to) => to.clone(),
            Op::Delete(_, to) => to.clone(),
        }
    }
}

impl Waits for Op {
    fn runs(&self) -> Vec<&RunKey> {
        match self {
            Op::Commit(work, _) => vec![&work.0.key],
            Op::Start(start, _) => {
                let parent = start.run.started.parent.as_ref().map(|link| &link.run);
                parent.into_iter().chain([&start.run.key]).collect()
            }
            Op::Restore(work, _) => vec![&work.restore.key],
            Op::Input(work, _) => vec![&work.0],
            Op::ClaimRun(work, _) => vec![&work.run],
            Op::Release(key, ..) => vec![key],
            Op::Report(work, _) => vec![&work.0.run],
            Op::RetryTask(task, _) => vec![&task.run],
            Op::Delete(Delete::Run { key, .. }, _) => vec![key],
            _ => Vec::new(),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Op::Commit(work, _) => work.1.weight(),
            Op::Start(start, _) => start.body.weight() + start.signal_body.weight(),
            Op::Input(work, _) => work.2.weight(),
            Op::ClaimRun(work, _) => work.input.as_ref().map_or(0, |(_, body)| body.weight()),
            Op::Report(work, _) => match work.2.without_cost() {
                TaskReport::Completed(output) => output.data().len(),
                _ => 0,
            },
            // A whole log.
            Op::Restore(..) => usize::MAX,
            _ => 0,
        }
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
