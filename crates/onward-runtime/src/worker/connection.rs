//! The worker connection: the interface between a worker and its runtime, local or remote.
//!
//! [`WorkerPort`] implements it inside one process; a remote connection implements it over the network with the same behavior.
//! It transports runs and tasks to the worker and results back, and knows no user code.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use onward_core::event::RunPaused;
use onward_core::run::{Commit, Committed};
use onward_core::stream::Speech;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Failure, Index, Name, Payload, Record, RunKey};
use onward_store::{ClaimedOne, ClaimedRun, StoreFuture};
use tokio::sync::oneshot;

use crate::stream::emits::Emitted;
use crate::worker::inbox::Inbox;
use crate::worker::local::WorkerPort;
use crate::{Delivery, RuntimeError};

pub type LinkFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A query to a run's code; not recorded.
#[derive(Debug)]
pub struct Question {
    pub run: RunKey,
    pub name: Name,
    pub input: Payload,
    /// `None` if the code has no such query. If it is dropped, the query is retried elsewhere.
    pub answer: oneshot::Sender<Option<Result<Payload, Failure>>>,
}

/// A worker's connection to its runtime. The methods are documented at [`WorkerPort`].
pub trait Link: Send + Sync {
    fn next_runs(&self, limit: usize) -> LinkFuture<'_, Vec<ClaimedRun>>;
    fn claim_run(&self, key: RunKey, delivery: Delivery) -> LinkFuture<'_, Result<ClaimedOne, RuntimeError>>;
    fn next_tasks(&self, limit: usize) -> LinkFuture<'_, Vec<Task>>;
    fn next_questions(&self) -> LinkFuture<'_, Vec<Question>>;
    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>);
    fn close_inbox(&self, key: &RunKey, epoch: Epoch);
    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>>;
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed>;
    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()>;
    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()>;
    fn report_task(&self, id: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()>;
    fn task_over(&self, id: TaskId, claim: u64) -> LinkFuture<'_, ()>;
    fn emit(&self, key: &RunKey, emitted: Emitted);
    /// Adds frames of an attempt to the stream of its run; returns them if the send buffer is full.
    fn speak(&self, speech: Speech) -> Option<Speech>;
    /// Returns the maximum size of a payload.
    fn payload_bytes_max(&self) -> usize;
    fn leave(&self) -> LinkFuture<'_, ()>;
}

impl Link for WorkerPort {
    fn next_runs(&self, limit: usize) -> LinkFuture<'_, Vec<ClaimedRun>> {
        Box::pin(WorkerPort::next_runs(self, limit))
    }

    fn claim_run(&self, key: RunKey, delivery: Delivery) -> LinkFuture<'_, Result<ClaimedOne, RuntimeError>> {
        Box::pin(async move { WorkerPort::claim_run(self, &key, delivery).await })
    }

    fn next_tasks(&self, limit: usize) -> LinkFuture<'_, Vec<Task>> {
        Box::pin(WorkerPort::next_tasks(self, limit))
    }

    fn next_questions(&self) -> LinkFuture<'_, Vec<Question>> {
        Box::pin(WorkerPort::next_questions(self))
    }

    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        WorkerPort::open_inbox(self, key, epoch, inbox);
    }

    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        WorkerPort::close_inbox(self, key, epoch);
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>> {
        let store = self.runtime().store().clone();
        Box::pin(async move { store.read_log(key, generation, from, limit).await })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        WorkerPort::commit(self, commit)
    }

    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        let port = self.clone();
        Box::pin(async move { WorkerPort::release(&port, &key, epoch).await })
    }

    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()> {
        let port = self.clone();
        Box::pin(async move { WorkerPort::pause(&port, &key, generation, epoch, report).await.map(drop) })
    }

    fn report_task(&self, id: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()> {
        Box::pin(WorkerPort::report_task(self, id, claim, report))
    }

    fn task_over(&self, id: TaskId, claim: u64) -> LinkFuture<'_, ()> {
        Box::pin(async move { WorkerPort::task_over(self, &id, claim).await })
    }

    fn emit(&self, key: &RunKey, emitted: Emitted) {
        self.runtime().emit(key, emitted);
    }

    fn speak(&self, speech: Speech) -> Option<Speech> {
        self.runtime().speak(speech);
        None
    }

    fn payload_bytes_max(&self) -> usize {
        self.runtime().store().payload_bytes_max()
    }

    fn leave(&self) -> LinkFuture<'_, ()> {
        Box::pin(WorkerPort::leave(self))
    }
}
