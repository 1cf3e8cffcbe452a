//! The worker connection over a network.
//!
//! Owns the state that outlives a connection: requests without a response, the runs that the worker holds, and records for runs
//! whose inbox is not open yet. One task keeps a stream open and reconnects when it is lost; everything else only uses this
//! state.
//!
//! Invariants:
//! - Y1 (V3): a request is answered by the server, or sent again on the next connection; it is never dropped.
//! - Y2: `hello` lists every run and task that the worker holds, so that the server can report which of them are lost.
//! - Y3 (V2): runs and tasks that the worker requested and did not receive are requested again after a lost connection, and no
//!   more.
//! - Y4 (V6): without a confirmed heartbeat for two thirds of its lease, the worker treats everything it holds as lost and stops;
//!   it sends a new `hello`, because the server would otherwise keep for it what it has dropped.
//! - Y5: frames without a response (emitted values, stream frames of tasks, answers to queries) are sent on the connection that
//!   they belong to or dropped; they never accumulate.

mod shared;
mod stream;
mod taken;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onward_core::event::RunPaused;
use onward_core::live::StepsReport;
use onward_core::run::{Commit, Committed};
use onward_core::stream::TaskFrames;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, ErrorCode, Index, Record, RunKey};
use onward_runtime::{ConnectionFuture, DriveInput, Emitted, Inbox, Question, RuntimeError, WorkerConnection, WorkerProfile};
use onward_store::{ClaimedOne, ClaimedRun, StoreError, StoreFuture, payloads};
use onward_wire::api::{Call, DecideRequest, DriveRequest, Reply};
use onward_wire::worker as wire;
use onward_wire::worker::{ReplyOutcome, WorkerFrame};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Channel;
use super::problem::unreachable;
use shared::{Greeting, RecordSink, Shared};

/// Time after which `start` reports that the first connection has failed; connecting continues in the background.
pub(super) const WELCOME_MAX: Duration = Duration::from_secs(10);

/// Time limit for the notification of the server that the worker leaves.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// Number of queued frames from which emitted values are dropped.
const OUTGOING_MAX: usize = 10_000;

/// Number of queued frames from which stream frames stay with their tasks.
const SPEECHES_MAX: usize = 256;

/// The largest commit: the server's message limit, minus overhead.
const COMMIT_BYTES_MAX: usize = 60 * 1024 * 1024;

/// Time limit for a granted run to arrive. Otherwise it was lost with the connection, and the server takes it back.
const ARRIVE_MAX: Duration = Duration::from_secs(10);

pub(crate) struct RemoteConnection {
    shared: Arc<Shared>,
    /// `None` for a process that registers nothing: it only sends requests and needs no stream.
    connection: Option<JoinHandle<()>>,
    /// The connection for requests outside of the stream.
    channel: Channel,
}

impl RemoteConnection {
    pub fn connect(
        channel: Channel,
        profile: WorkerProfile,
        kinds: Vec<wire::KindOffer>,
        task_schemas: Vec<wire::TaskSchemas>,
        on_demand: bool,
    ) -> RemoteConnection {
        let works = on_demand || !kinds.is_empty() || !profile.task_kinds.is_empty();
        let shared = Arc::new(Shared::new(profile, kinds, task_schemas));
        let connection = works.then(|| tokio::spawn(stream::keep_open(channel.clone(), shared.clone())));
        RemoteConnection { shared, connection, channel }
    }

    /// Waits until the server has accepted the worker for the first time; fails with the reason if it does not.
    pub async fn welcomed(&self, url: &str) -> Result<(), RuntimeError> {
        if self.connection.is_none() {
            return Ok(());
        }
        let came = self.shared.greeted.notified();
        let mut came = std::pin::pin!(came);
        came.as_mut().enable();
        if matches!(self.shared.lock().greeting, Greeting::Awaited) {
            drop(tokio::time::timeout(WELCOME_MAX, came).await);
        }
        let mut state = self.shared.lock();
        match std::mem::replace(&mut state.greeting, Greeting::Welcomed) {
            Greeting::Awaited => {
                let why = state.trouble.take();
                Err(unreachable(why.unwrap_or_else(|| format!("no server answers at {url}"))))
            }
            Greeting::Welcomed => Ok(()),
            Greeting::Refused(error) => Err(error),
        }
    }
}

impl Drop for RemoteConnection {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

impl WorkerConnection for RemoteConnection {
    fn next_runs(&self, limit: usize) -> ConnectionFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move {
            let want = || self.shared.want(limit, 0);
            self.shared.next(&self.shared.runs_came, want, |state| take(&mut state.runs, limit)).await
        })
    }

    fn claim_run(&self, key: RunKey, delivery: DriveInput) -> ConnectionFuture<'_, Result<ClaimedOne, RuntimeError>> {
        Box::pin(claim_run(&self.shared, &self.channel, key, delivery))
    }

    fn next_tasks(&self, limit: usize) -> ConnectionFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let want = || self.shared.want(0, limit);
            self.shared.next(&self.shared.tasks_came, want, |state| take(&mut state.tasks, limit)).await
        })
    }

    fn next_questions(&self) -> ConnectionFuture<'_, Vec<Question>> {
        Box::pin(self.shared.next(&self.shared.questions_came, || {}, |state| state.questions.drain(..).collect()))
    }

    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        let kept = {
            let mut state = self.shared.lock();
            match state.held.get_mut(key).filter(|held| held.epoch == epoch) {
                None => None,
                // Under the lock until all records are passed on: later records must not overtake them.
                Some(held) => {
                    if let RecordSink::Buffer(records) = &mut held.sink {
                        std::mem::take(records).into_iter().for_each(|record| inbox.push(record));
                    }
                    held.sink = RecordSink::Inbox(inbox.clone());
                    Some(held.is_watched)
                }
            }
        };
        match kept {
            None => inbox.lost(),
            Some(is_watched) => {
                if is_watched {
                    inbox.watch(true);
                }
            }
        }
    }

    /// Closes the inbox and releases the run at the server, where it would otherwise occupy a permit for as long as this worker
    /// lives.
    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        let held = self.shared.lock().remove_held(key, epoch);
        if held.is_some() {
            self.shared.release(key.clone(), epoch);
        }
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let (mut records, mut from): (Vec<Record>, Index) = (Vec::new(), from);
            loop {
                let limit = u32::try_from(limit - records.len()).unwrap_or(u32::MAX);
                let read = wire::ReadLog { request: 0, run: run.clone(), generation, from, limit };
                let reply = shared.request(|request| WorkerFrame::ReadLog(wire::ReadLog { request, ..read }));
                let ReplyOutcome::Log(wire::Log { records: page, more }) = reply.outcome().await? else {
                    return Err(not_an_answer("a log"));
                };
                records.extend(page);
                match records.last() {
                    Some(last) if more => from = last.next_index(),
                    _ => return Ok(records),
                }
            }
        })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let (shared, key, epoch) = (self.shared.clone(), commit.key.clone(), commit.epoch);
        let (bytes, max) = (payloads::payload_bytes(&commit.events), COMMIT_BYTES_MAX);
        if bytes > max {
            return Box::pin(std::future::ready(Err(StoreError::PayloadTooLarge { bytes, max })));
        }
        let reply = self.shared.request(|request| WorkerFrame::Commit(wire::CommitRun { request, commit }));
        Box::pin(async move {
            let ReplyOutcome::Committed(committed) = reply.outcome().await? else { return Err(not_an_answer("a commit")) };
            if committed.status.is_closed() {
                drop(shared.lock().remove_held(&key, epoch)); // the server has dropped it, too
            }
            Ok(committed)
        })
    }

    /// Releases a run without waiting for the response, because this must also work without a connection.
    fn release(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        let held = self.shared.lock().remove_held(&run, epoch);
        drop(held); // outside of the lock: it wakes the driver
        self.shared.release(run, epoch);
        Box::pin(std::future::ready(Ok(())))
    }

    fn pause(&self, run: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()> {
        let reply = self.shared.request(|request| WorkerFrame::Pause(wire::PauseRun { request, run, generation, epoch, report }));
        Box::pin(async move { reply.outcome().await.map(drop) })
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()> {
        let ends = report.ends();
        let key = task.clone();
        let reply = self.shared.request(|request| WorkerFrame::Report(wire::ReportTask { request, task, claim, report }));
        Box::pin(async move {
            let answer = reply.outcome().await.map(drop);
            let over = matches!(&answer, Err(error) if error.code() == ErrorCode::TaskAttemptOver);
            if over || (ends && answer.is_ok()) {
                self.shared.end_task(key, claim);
            }
            answer
        })
    }

    fn task_over(&self, id: TaskId, claim: u64) -> ConnectionFuture<'_, ()> {
        let over = self.shared.lock().held_tasks.get(&(id, claim)).cloned();
        Box::pin(async move {
            if let Some(over) = over {
                over.notified().await;
            }
        })
    }

    fn payload_bytes_max(&self) -> usize {
        self.shared.payload_bytes_max.load(Ordering::Relaxed)
    }

    fn emit(&self, key: &RunKey, emitted: Emitted) {
        let Emitted { name, value, audience, meta } = emitted;
        let connection = {
            let state = self.shared.lock();
            if state.outgoing.len() >= OUTGOING_MAX {
                return; // listeners miss values that do not fit
            }
            state.connection
        };
        self.shared.send_on(connection, WorkerFrame::Emit(wire::Emit { run: key.clone(), name, value, audience, meta }));
    }

    fn report_steps(&self, report: StepsReport) {
        let connection = {
            let state = self.shared.lock();
            if state.outgoing.len() >= OUTGOING_MAX {
                return; // the next list has them
            }
            state.connection
        };
        self.shared.send_on(connection, WorkerFrame::Steps(report));
    }

    fn push_frames(&self, task_frames: TaskFrames) -> Option<TaskFrames> {
        let mut state = self.shared.lock();
        // While other frames are queued, it stays with the task, where more can be merged into it.
        if !state.welcomed || state.outgoing.len() >= SPEECHES_MAX {
            return Some(task_frames);
        }
        state.outgoing.push_back(WorkerFrame::TaskFrames(task_frames));
        drop(state);
        self.shared.outgoing.notify_one();
        None
    }

    fn leave(&self) -> ConnectionFuture<'_, ()> {
        Box::pin(async move {
            self.shared.lock().is_leaving = true;
            if self.connection.is_none() {
                return;
            }
            // If the server does not receive it, the lease expires.
            drop(tokio::time::timeout(LEAVE_MAX, self.give_back()).await);
            self.shared.lock().has_left = true;
        })
    }
}

impl RemoteConnection {
    /// Returns runs and tasks that were not started, and leaves.
    async fn give_back(&self) {
        let (runs, tasks, received) = {
            let mut state = self.shared.lock();
            state.takes_no_tasks = true; // tasks that arrive from now on are not started (V7)
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks), state.received.clone())
        };
        for run in runs {
            drop(self.release(run.head.key, run.head.epoch).await);
        }
        for task in tasks {
            self.shared.give_back_task(task).await;
        }
        let reply = self.shared.request(|request| WorkerFrame::Leave(wire::Leave { request, received }));
        drop(reply.outcome().await);
    }
}

/// Claims one run by id: the request is a separate call, and the run arrives over the stream.
async fn claim_run(shared: &Shared, channel: &Channel, key: RunKey, delivery: DriveInput) -> Result<ClaimedOne, RuntimeError> {
    let (sender, arrives) = oneshot::channel();
    {
        let mut state = shared.lock();
        // A closed sender is left over from an abandoned request.
        if state.driving.get(&key).is_some_and(|other| !other.is_closed()) {
            return Err(StoreError::RunHeld { key }.into());
        }
        state.driving.insert(key.clone(), sender);
    }
    let reply = channel.call(Call::DriveRun(request(shared, &key, delivery))).await.map(|reply| match reply {
        Reply::DriveRun(reply) => reply,
        _ => unreachable!("the reply belongs to the call"),
    });
    if !reply.as_ref().is_ok_and(|reply| reply.is_given) {
        shared.lock().driving.remove(&key);
    }
    let reply = reply?;
    let claimed = if reply.is_given { Some(arrived(arrives).await?) } else { None };
    Ok(ClaimedOne { appended: reply.appended, head: reply.head, claimed })
}

async fn arrived(arrives: oneshot::Receiver<ClaimedRun>) -> Result<ClaimedRun, StoreError> {
    let lost = || StoreError::Unavailable { why: "the run did not arrive from the server".to_owned() };
    tokio::time::timeout(ARRIVE_MAX, arrives).await.ok().and_then(Result::ok).ok_or_else(lost)
}

fn request(shared: &Shared, key: &RunKey, delivery: DriveInput) -> DriveRequest {
    let (run, worker) = (key.clone(), shared.worker().clone());
    let (signal, decision) = match delivery {
        DriveInput::Nothing => (None, None),
        DriveInput::Signal(signal) => (Some(signal), None),
        DriveInput::Decision(call, decide) => {
            let (namespace, approval) = (key.namespace.clone(), call.to_string());
            (None, Some(DecideRequest { namespace, approval, decide }))
        }
    };
    DriveRequest { run, worker, signal, decision }
}

fn take<T>(from: &mut VecDeque<T>, limit: usize) -> Vec<T> {
    let count = from.len().min(limit.max(1));
    from.drain(..count).collect()
}

fn not_an_answer(wanted: &str) -> StoreError {
    StoreError::Unavailable { why: format!("the server sent another response than {wanted}") }
}
