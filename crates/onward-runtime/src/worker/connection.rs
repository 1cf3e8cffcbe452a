//! The worker connection: the interface between a worker and its runtime, local or remote.
//!
//! [`LocalConnection`](crate::LocalConnection) implements it inside one process; a remote connection implements it over the
//! network with the same behavior. It transports runs and tasks to the worker and results back, and knows no user code.

use std::pin::Pin;
use std::sync::Arc;

use onward_core::event::RunPaused;
use onward_core::live::StepsReport;
use onward_core::run::{Commit, Committed};
use onward_core::stream::TaskFrames;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Failure, Index, Name, Payload, Record, RunKey};
use onward_store::{ClaimedOne, ClaimedRun, StoreFuture};
use tokio::sync::oneshot;

use crate::Emitted;
use crate::worker::inbox::Inbox;
use crate::{DriveInput, RuntimeError};

pub type ConnectionFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A query to a run's code; not recorded.
#[derive(Debug)]
pub struct Question {
    pub run: RunKey,
    pub name: Name,
    pub input: Payload,
    /// `None` if the code has no such query. If it is dropped, the query is retried elsewhere.
    pub answer: oneshot::Sender<Option<Result<Payload, Failure>>>,
}

/// A worker's connection to its runtime.
pub trait WorkerConnection: Send + Sync {
    /// Waits for runs to execute, at most `limit`. Each has an inbox slot already: inputs that arrive from now on are buffered
    /// until [`open_inbox`](Self::open_inbox), and the run counts against `runs_max` until [`close_inbox`](Self::close_inbox).
    /// If `records` is missing, read the log first.
    ///
    /// Cancel-safe: claimed runs wait for the next call.
    fn next_runs(&self, limit: usize) -> ConnectionFuture<'_, Vec<ClaimedRun>>;

    /// Claims the run, of any kind, and appends the delivered input in one write. A run that a worker holds is left unchanged
    /// and fails with `run_busy`. Without a lease in the result, the run had nothing to do.
    ///
    /// Cancel-safe: the input is then recorded or not, and the lease is given back.
    fn claim_run(&self, key: RunKey, delivery: DriveInput) -> ConnectionFuture<'_, Result<ClaimedOne, RuntimeError>>;

    /// Waits for tasks to execute, at most `limit`. Their leases are extended until they are reported, but a task with a
    /// heartbeat timeout has to send its own heartbeats.
    ///
    /// Cancel-safe: claimed tasks wait for the next call.
    fn next_tasks(&self, limit: usize) -> ConnectionFuture<'_, Vec<Task>>;

    /// Waits for queries for runs that no worker holds, of kinds that the worker has code for.
    ///
    /// Cancel-safe: waiting queries are returned by the next call.
    fn next_questions(&self) -> ConnectionFuture<'_, Vec<Question>>;

    /// Delivers the inputs buffered since the claim of `epoch` and later ones to `inbox`; calls `lost` at once if the claim is
    /// lost.
    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>);

    /// Closes the inbox: the worker no longer has the run in memory. No error if it is closed or lost already.
    fn close_inbox(&self, key: &RunKey, epoch: Epoch);

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>>;
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed>;

    /// Releases a lease and closes the inbox. No error if the lease is lost already.
    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()>;

    /// Pauses the run with a report, unless another worker holds it by now, which the same write checks.
    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()>;

    /// Reports the result or a heartbeat of claim number `claim` of a task.
    fn report_task(&self, id: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()>;

    /// Waits until the attempt has ended: reported, canceled, timed out, or claimed by another worker. Stop executing it then.
    fn task_over(&self, id: TaskId, claim: u64) -> ConnectionFuture<'_, ()>;

    fn emit(&self, key: &RunKey, emitted: Emitted);

    /// Reports steps of a run that is watched. Not recorded.
    fn report_steps(&self, report: StepsReport);

    /// Adds frames of an attempt to the stream of its run; returns them if the send buffer is full.
    fn push_frames(&self, task_frames: TaskFrames) -> Option<TaskFrames>;

    /// Returns the maximum size of a payload.
    fn payload_bytes_max(&self) -> usize;

    /// Ends the membership: no more runs, tasks and heartbeats. The caller has released what it received; this releases the
    /// work on its way.
    fn leave(&self) -> ConnectionFuture<'_, ()>;
}
