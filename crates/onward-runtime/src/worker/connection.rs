//! The worker connection: the interface between a worker and its runtime, local or remote.
//!
//! [`LocalConnection`] implements it inside one process; a remote connection implements it over the network with the same behavior.
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

use crate::Emitted;
use crate::worker::inbox::Inbox;
use crate::worker::local::LocalConnection;
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

/// A worker's connection to its runtime. The methods are documented at [`LocalConnection`].
pub trait WorkerConnection: Send + Sync {
    fn next_runs(&self, limit: usize) -> ConnectionFuture<'_, Vec<ClaimedRun>>;
    fn claim_run(&self, key: RunKey, delivery: DriveInput) -> ConnectionFuture<'_, Result<ClaimedOne, RuntimeError>>;
    fn next_tasks(&self, limit: usize) -> ConnectionFuture<'_, Vec<Task>>;
    fn next_questions(&self) -> ConnectionFuture<'_, Vec<Question>>;
    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>);
    fn close_inbox(&self, key: &RunKey, epoch: Epoch);
    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>>;
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed>;
    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()>;
    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()>;
    fn report_task(&self, id: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()>;
    fn task_over(&self, id: TaskId, claim: u64) -> ConnectionFuture<'_, ()>;
    fn emit(&self, key: &RunKey, emitted: Emitted);
    /// Adds frames of an attempt to the stream of its run; returns them if the send buffer is full.
    fn speak(&self, speech: Speech) -> Option<Speech>;
    /// Returns the maximum size of a payload.
    fn payload_bytes_max(&self) -> usize;
    fn leave(&self) -> ConnectionFuture<'_, ()>;
}

impl WorkerConnection for LocalConnection {
    fn next_runs(&self, limit: usize) -> ConnectionFuture<'_, Vec<ClaimedRun>> {
        Box::pin(LocalConnection::next_runs(self, limit))
    }

    fn claim_run(&self, key: RunKey, delivery: DriveInput) -> ConnectionFuture<'_, Result<ClaimedOne, RuntimeError>> {
        Box::pin(async move { LocalConnection::claim_run(self, &key, delivery).await })
    }

    fn next_tasks(&self, limit: usize) -> ConnectionFuture<'_, Vec<Task>> {
        Box::pin(LocalConnection::next_tasks(self, limit))
    }

    fn next_questions(&self) -> ConnectionFuture<'_, Vec<Question>> {
        Box::pin(LocalConnection::next_questions(self))
    }

    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        LocalConnection::open_inbox(self, key, epoch, inbox);
    }

    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        LocalConnection::close_inbox(self, key, epoch);
    }

    fn read_log(&self, key: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>> {
        let store = self.runtime().store().clone();
        Box::pin(async move { store.read_log(key, generation, from, limit).await })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        LocalConnection::commit(self, commit)
    }

    fn release(&self, key: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        let port = self.clone();
        Box::pin(async move { LocalConnection::release(&port, &key, epoch).await })
    }

    fn pause(&self, key: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()> {
        let port = self.clone();
        Box::pin(async move { LocalConnection::pause(&port, &key, generation, epoch, report).await.map(drop) })
    }

    fn report_task(&self, id: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()> {
        Box::pin(LocalConnection::report_task(self, id, claim, report))
    }

    fn task_over(&self, id: TaskId, claim: u64) -> ConnectionFuture<'_, ()> {
        Box::pin(async move { LocalConnection::task_over(self, &id, claim).await })
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

    fn leave(&self) -> ConnectionFuture<'_, ()> {
        Box::pin(LocalConnection::leave(self))
    }
}
