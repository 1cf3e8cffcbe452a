//! Operations on runs that their callers name: checked and encoded by the caller, executed in a batch.
//!
//! Owns the execution of these operations for all durable stores. Must never clone the work of an operation that is executed
//! once.

use std::sync::Arc;
use std::time::Duration;

use onward_core::projection::Projection;
use onward_core::run::{Commit, Committed, Input, NewRun};
use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, Hash, RunKey, WorkerId};

use super::Body;
use super::reply::{Pending, Slot};
use crate::unit_of_work::{self, Rows};
use crate::{Appended, ClaimedOne, RestoreRun, Restored, Started, StoreError, check_restore, payloads};

type ReplySlot<T> = Arc<Slot<T>>;

/// An operation on a run, with the slot of its reply. Clones share the work, so that a batch can be executed again.
#[derive(Clone)]
pub enum RunOp {
    Commit(Arc<(Commit, Body)>, ReplySlot<Committed>),
    Start(Arc<StartRun>, ReplySlot<Started>),
    Restore(Arc<RestoreWork>, ReplySlot<Restored>),
    Input(Arc<(RunKey, Input, Body)>, ReplySlot<Appended>),
    ClaimRun(Arc<ClaimRun>, ReplySlot<ClaimedOne>),
    Release(RunKey, Epoch, ReplySlot<()>),
    Lose(RunKey, Epoch, ReplySlot<()>),
    Report(Arc<Report>, ReplySlot<()>),
    RetryTask(TaskId, ReplySlot<()>),
}

/// A store that keeps the replies of a batch until it is durable.
pub trait Replies: Rows {
    /// What a reply means for its batch.
    type Settled;

    /// Stores a value or a refusal as the reply; any other error fails the batch.
    fn settle<T: Send>(&mut self, to: &Slot<T>, outcome: Result<T, Self::Error>) -> Result<Self::Settled, Self::Error>;
}

impl RunOp {
    pub fn pending(&self) -> Arc<dyn Pending> {
        match self {
            RunOp::Commit(_, to) => to.clone(),
            RunOp::Start(_, to) => to.clone(),
            RunOp::Restore(_, to) => to.clone(),
            RunOp::Input(_, to) => to.clone(),
            RunOp::ClaimRun(_, to) => to.clone(),
            RunOp::Release(_, _, to) | RunOp::Lose(_, _, to) | RunOp::Report(_, to) | RunOp::RetryTask(_, to) => to.clone(),
        }
    }

    pub fn key(&self) -> &RunKey {
        match self {
            RunOp::Commit(work, _) => &work.0.key,
            RunOp::Start(start, _) => &start.run.key,
            RunOp::Restore(work, _) => &work.restore.key,
            RunOp::Input(work, _) => &work.0,
            RunOp::ClaimRun(claim, _) => &claim.run,
            RunOp::Release(key, ..) | RunOp::Lose(key, ..) => key,
            RunOp::Report(report, _) => &report.task.run,
            RunOp::RetryTask(task, _) => &task.run,
        }
    }

    /// Returns the runs that the operation decides about: its own and, for a start, the parent, whose end matters (L19).
    pub fn runs(&self) -> Vec<&RunKey> {
        let parent = match self {
            RunOp::Start(start, _) => start.run.started.parent.as_ref().map(|link| &link.run),
            _ => None,
        };
        parent.into_iter().chain([self.key()]).collect()
    }

    /// Returns the approximate number of bytes it writes.
    pub fn bytes(&self) -> usize {
        match self {
            RunOp::Commit(work, _) => work.1.weight(),
            RunOp::Start(start, _) => start.body.iter().chain(&start.signal_body).map(Body::weight).sum(),
            RunOp::Input(work, _) => work.2.weight(),
            RunOp::ClaimRun(claim, _) => claim.input.iter().filter_map(|(_, body)| body.as_ref()).map(Body::weight).sum(),
            RunOp::Report(report, _) => match report.report.without_cost() {
                TaskReport::Completed(output) => output.data().len(),
                _ => 0,
            },
            // A whole log.
            RunOp::Restore(..) => usize::MAX,
            RunOp::Release(..) | RunOp::Lose(..) | RunOp::RetryTask(..) => 0,
        }
    }

    /// Decides the operation and stores its reply.
    pub async fn execute<R: Replies>(self, rows: &mut R) -> Result<R::Settled, R::Error> {
        match self {
            RunOp::Commit(work, to) => {
                let (commit, body) = Arc::unwrap_or_clone(work);
                let committed = unit_of_work::commit(rows, commit, Some(body)).await;
                rows.settle(&to, committed)
            }
            RunOp::Start(start, to) => {
                let started = unit_of_work::start_run(rows, Arc::unwrap_or_clone(start)).await;
                rows.settle(&to, started)
            }
            RunOp::Restore(work, to) => {
                let restored = unit_of_work::restore_run(rows, &work).await;
                rows.settle(&to, restored)
            }
            RunOp::Input(work, to) => {
                let (key, input, body) = Arc::unwrap_or_clone(work);
                let appended = unit_of_work::append_input(rows, &key, input, Some(body)).await;
                rows.settle(&to, appended)
            }
            RunOp::ClaimRun(claim, to) => {
                let claimed = unit_of_work::claim_run(rows, Arc::unwrap_or_clone(claim)).await;
                rows.settle(&to, claimed)
            }
            RunOp::Release(key, epoch, to) => {
                let released = unit_of_work::release_run(rows, &key, epoch).await;
                rows.settle(&to, released)
            }
            RunOp::Lose(key, epoch, to) => {
                let lost = unit_of_work::lose_run(rows, &key, epoch).await;
                rows.settle(&to, lost)
            }
            RunOp::Report(report, to) => {
                let reported = unit_of_work::report_task(rows, Arc::unwrap_or_clone(report)).await;
                rows.settle(&to, reported)
            }
            RunOp::RetryTask(task, to) => {
                let retried = unit_of_work::retry_task(rows, &task).await;
                rows.settle(&to, retried)
            }
        }
    }
}

/// A start of a run. The bodies of its records are encoded if the store needs that.
#[derive(Clone)]
pub struct StartRun {
    pub run: NewRun,
    pub claim: Option<WorkerId>,
    pub input_hash: Hash,
    pub body: Option<Body>,
    pub signal_body: Option<Body>,
}

impl StartRun {
    /// Checks a start, without encoding it.
    pub fn check(run: NewRun, claim: Option<WorkerId>, payload_bytes_max: usize) -> Result<StartRun, StoreError> {
        payloads::check_new_run(&run, payload_bytes_max)?;
        let input_hash = Hash::of(&run.started.input);
        Ok(StartRun { run, claim, input_hash, body: None, signal_body: None })
    }

    /// Checks and encodes a start.
    pub fn encode(run: NewRun, claim: Option<WorkerId>, payload_bytes_max: usize) -> Result<Arc<StartRun>, StoreError> {
        let start = StartRun::check(run, claim, payload_bytes_max)?;
        let body = Some(Body::encode(None, &mut vec![start.run.started.clone().into()]));
        let signal_body = start.run.signal.as_ref().map(|signal| Body::encode(None, &mut vec![signal.event.clone()]));
        Ok(Arc::new(StartRun { body, signal_body, ..start }))
    }
}

/// A claim of one run by key, with an input appended in the same write.
#[derive(Clone)]
pub struct ClaimRun {
    pub run: RunKey,
    pub worker: WorkerId,
    pub input: Option<(Input, Option<Body>)>,
}

impl ClaimRun {
    /// Checks and encodes the input of a claim.
    pub fn encode(
        run: RunKey,
        worker: WorkerId,
        input: Option<Input>,
        payload_bytes_max: usize,
    ) -> Result<Arc<ClaimRun>, StoreError> {
        let input = input.map(|input| encode_input(input, payload_bytes_max)).transpose()?;
        Ok(Arc::new(ClaimRun { run, worker, input: input.map(|(input, body)| (input, Some(body))) }))
    }
}

/// A worker's report on a task.
#[derive(Clone)]
pub struct Report {
    pub task: TaskId,
    /// The number of the claim.
    pub claim: u64,
    pub report: TaskReport,
    /// The time by which a heartbeat extends the lease.
    pub lease: Duration,
}

impl Report {
    /// Fails if the report has a payload over the limit.
    pub fn check(self, payload_bytes_max: usize) -> Result<Report, StoreError> {
        payloads::check_report(&self.report, payload_bytes_max).map(|()| self)
    }
}

/// A run's logs with the projection of each.
pub struct RestoreWork {
    pub restore: RestoreRun,
    pub projections: Vec<Projection>,
}

impl RestoreWork {
    pub fn new(restore: RestoreRun, payload_bytes_max: usize) -> Result<Arc<RestoreWork>, StoreError> {
        let projections = check_restore(&restore, payload_bytes_max)?;
        Ok(Arc::new(RestoreWork { restore, projections }))
    }
}

/// Checks and encodes an input.
pub fn encode_input(input: Input, payload_bytes_max: usize) -> Result<(Input, Body), StoreError> {
    payloads::check_input(&input, payload_bytes_max)?;
    let body = Body::encode(None, &mut vec![input.event.clone()]);
    Ok((input, body))
}

/// Checks and encodes a commit.
pub fn encode_commit(mut commit: Commit, payload_bytes_max: usize) -> Result<Arc<(Commit, Body)>, StoreError> {
    payloads::check_commit(&commit, payload_bytes_max)?;
    let body = Body::encode(Some(commit.header()), &mut commit.events);
    Ok(Arc::new((commit, body)))
}
