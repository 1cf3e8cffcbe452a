//! What is asked of the appender, and the queue in front of it.
//!
//! Owns the order of appends of this process: the order in which they were submitted. Must never lose one: every operation that was
//! taken is answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_core::run::{Commit, Committed, Input};
use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, RunKey};
use onward_store::kept::reply::{Pending, Slot};
use onward_store::kept::{Body, ClaimRun, RestoreWork, StartRun};
use onward_store::{Appended, ClaimedOne, Expired, Restored, Started, StoreError};
use tokio::sync::Notify;

type To<T> = Arc<Slot<T>>;

/// What appends to logs, or may. All of it goes through one connection, so that listeners hear of a run's records in order.
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
    pub claim: u32,
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

    /// The runs that are decided upon, all of them locked before anything is.
    pub fn keys(&self) -> Vec<RunKey> {
        match self {
            Op::Commit(work, _) => vec![work.0.key.clone()],
            // With its parent: whether that has ended must not change meanwhile (L19).
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

    /// About how many bytes it writes.
    fn weight(&self) -> usize {
        match self {
            Op::Commit(work, _) => weigh(&work.1),
            Op::Input(work, _) => weigh(&work.2),
            Op::Start(work, _) => weigh(&work.body) + weigh(&work.signal_body),
            Op::ClaimRun(work, _) => work.input.as_ref().map_or(0, |(_, body)| weigh(body)),
            Op::Report(work, _) => match &work.report {
                TaskReport::Completed(output) => output.data().len(),
                _ => 0,
            },
            // A whole log has a transaction to itself, or nearly.
            Op::Restore(..) => BATCH_BYTES_MAX,
            Op::Release(..) | Op::RetryTask(..) | Op::Expire(..) => 0,
        }
    }

    /// Whether the operation finds its runs itself and therefore has a transaction of its own.
    pub fn is_alone(&self) -> bool {
        matches!(self, Op::Expire(..))
    }

    pub fn makes_run(&self) -> bool {
        matches!(self, Op::Start(..) | Op::Restore(..))
    }
}

fn weigh(body: &Body) -> usize {
    body.bytes.len() + body.stash.blobs.iter().map(|(_, data)| data.len()).sum::<usize>()
}

/// How many bytes share one transaction, more or less: a statement has a limit, and so has everybody's patience.
const BATCH_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many operations may wait. More than this and the database is not keeping up: whoever comes is told so at once.
const WAITING_MAX: usize = 65_536;

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Op>,
    is_closing: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn submit(&self, op: Op) {
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
        state.ops.push_back(op);
        drop(state);
        self.wake.notify_one();
    }

    /// Waits for work and takes what there is, up to `max`; nothing when the queue is closed and empty. An operation that has a
    /// transaction of its own comes alone.
    pub async fn take(&self, max: usize) -> Vec<Op> {
        loop {
            let wait = self.wake.notified();
            {
                let mut state = self.lock();
                if !state.ops.is_empty() {
                    let mut bytes = 0;
                    let fits = |op: &&Op| {
                        let is_first = bytes == 0;
                        bytes += op.weight();
                        !op.is_alone() && (is_first || bytes <= BATCH_BYTES_MAX)
                    };
                    let shared = state.ops.iter().take(max).take_while(fits).count();
                    return state.ops.drain(..shared.max(1)).collect();
                }
                if state.is_closing {
                    return Vec::new();
                }
            }
            wait.await;
        }
    }

    pub fn close(&self) {
        self.lock().is_closing = true;
        self.wake.notify_one();
    }
}
