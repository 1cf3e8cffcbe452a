//! Operations of the appenders, and their queues.
//!
//! Owns the order of appends of this process: operations on one run are executed in the order of their submission, because all go
//! to the same appender, and there in the order of the lanes ([`onward_store::durable::lanes`]). Must never lose an operation: every
//! accepted one gets a response.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use onward_core::run::{Commit, Committed, Input};
use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, RunKey};
use onward_store::durable::lanes::WAITING_MAX;
use onward_store::durable::reply::{Pending, Slot};
use onward_store::durable::{Body, ClaimRun, Lanes, RestoreWork, StartRun, Waits};
use onward_store::sync;
use onward_store::{Appended, ClaimedOne, Expired, Restored, Started, StoreError};
use tokio::sync::Notify;

type To<T> = Arc<Slot<T>>;

/// Operations that may append to logs.
pub(crate) enum Op {
    Commit(Box<(Commit, Body)>, To<Committed>),
    Start(Box<StartRun>, To<Started>),
    Restore(Box<RestoreWork>, To<Restored>),
    Input(Box<(RunKey, Input, Body)>, To<Appended>),
    ClaimRun(Box<ClaimRun>, To<ClaimedOne>),
    Release(RunKey, Epoch, To<()>),
    Report(Box<Report>, To<()>),
    RetryTask(TaskId, To<()>),
    Expire(usize, To<Expired>),
}

pub(crate) struct Report {
    pub task: TaskId,
    pub claim: u64,
    pub report: TaskReport,
    pub lease: Duration,
}

impl Op {
    pub fn pending(&self) -> Arc<dyn Pending> {
        match self {
            Op::Commit(_, to) => to.clone(),
            Op::Start(_, to) => to.clone(),
            Op::Restore(_, to) => to.clone(),
            Op::Input(_, to) => to.clone(),
            Op::ClaimRun(_, to) => to.clone(),
            Op::Release(_, _, to) | Op::Report(_, to) | Op::RetryTask(_, to) => to.clone(),
            Op::Expire(_, to) => to.clone(),
        }
    }

    /// Returns the runs that the operation decides about; all are locked first.
    pub fn keys(&self) -> Vec<RunKey> {
        match self {
            Op::Commit(work, _) => vec![work.0.key.clone()],
            // With the parent: whether it has ended must not change meanwhile (L19).
            Op::Start(work, _) => {
                let parent = work.run.started.parent.as_ref().map(|link| link.run.clone());
                parent.into_iter().chain([work.run.key.clone()]).collect()
            }
            Op::Restore(work, _) => vec![work.restore.key.clone()],
            Op::Input(work, _) => vec![work.0.clone()],
            Op::ClaimRun(work, _) => vec![work.run.clone()],
            Op::Release(key, ..) => vec![key.clone()],
            Op::Report(work, _) => vec![work.task.run.clone()],
            Op::RetryTask(task, _) => vec![task.run.clone()],
            Op::Expire(..) => Vec::new(),
        }
    }

    /// Returns the run that selects the appender; none for an operation that finds its runs itself.
    fn home(&self) -> Option<&RunKey> {
        Some(match self {
            Op::Commit(work, _) => &work.0.key,
            Op::Start(work, _) => &work.run.key,
            Op::Restore(work, _) => &work.restore.key,
            Op::Input(work, _) => &work.0,
            Op::ClaimRun(work, _) => &work.run,
            Op::Release(key, ..) => key,
            Op::Report(work, _) => &work.task.run,
            Op::RetryTask(task, _) => &task.run,
            Op::Expire(..) => return None,
        })
    }

    /// Returns approximately how many bytes it writes.
    fn weight(&self) -> usize {
        match self {
            Op::Commit(work, _) => work.1.weight(),
            Op::Input(work, _) => work.2.weight(),
            Op::Start(work, _) => work.body.weight() + work.signal_body.weight(),
            Op::ClaimRun(work, _) => work.input.as_ref().map_or(0, |(_, body)| body.weight()),
            Op::Report(work, _) => match work.report.without_cost() {
                TaskReport::Completed(output) => output.data().len(),
                _ => 0,
            },
            // A whole log gets its own transaction, or nearly.
            Op::Restore(..) => BATCH_BYTES_MAX,
            Op::Release(..) | Op::RetryTask(..) | Op::Expire(..) => 0,
        }
    }

    /// Returns whether the operation finds its runs itself and therefore needs its own transaction.
    pub fn is_alone(&self) -> bool {
        matches!(self, Op::Expire(..))
    }

    pub fn makes_run(&self) -> bool {
        matches!(self, Op::Start(..) | Op::Restore(..))
    }
}

impl Waits for Op {
    fn runs(&self) -> Vec<&RunKey> {
        let parent = match self {
            Op::Start(work, _) => work.run.started.parent.as_ref().map(|link| &link.run),
            _ => None,
        };
        parent.into_iter().chain(self.home()).collect()
    }

    fn bytes(&self) -> usize {
        self.weight()
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
        let number = op.home().map_or(appenders, |key| {
            let mut hasher = DefaultHasher::new();
            key.hash(&mut hasher);
            (hasher.finish() % appenders as u64) as usize
        });
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
                    let mut bytes = 0;
                    return state.ops.take(max, |op| {
                        let is_first = bytes == 0;
                        bytes += op.weight();
                        !op.is_alone() && (is_first || bytes <= BATCH_BYTES_MAX)
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
