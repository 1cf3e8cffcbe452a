//! A worker's link over a network.
//!
//! Owns what must outlive a connection: requests without an answer, the runs the worker holds, and what came for runs whose inbox is
//! not open yet. One task keeps a stream open and comes back when it is lost; everything else only looks at this state.
//!
//! Invariants:
//! - Y1 (V3): a request is answered by the server, or sent again on the next connection; it is never dropped.
//! - Y2: `hello` names every run and task the worker holds, so that the server can tell which of them are lost.
//! - Y3 (V2): what the worker asked for and did not get is asked for again after a lost connection, and no more.
//! - Y4 (V6): a worker that cannot know that the server heard it for two thirds of its lease has lost everything it holds, and stops;
//!   it greets the server anew, which otherwise would keep for it what it has let go.
//! - Y5: what is not awaited by anybody (emitted values, what tasks say, answers to questions) goes to the connection it belongs to or nowhere; it
//!   never piles up.

mod drive;
mod shared;
mod stream;
mod taken;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use onward_core::event::RunPaused;
use onward_core::run::{Commit, Committed};
use onward_core::stream::Speech;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Index, Record, RunKey};
use onward_runtime::{Delivery, Emitted, Inbox, Link, LinkFuture, Question, RuntimeError, WorkerProfile};
use onward_store::{ClaimedOne, ClaimedRun, StoreError, StoreFuture, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::{Said, WorkerFrame};
use tokio::task::JoinHandle;

use super::Channel;
use super::problem::unreachable;
use shared::{Greeting, Shared, To};

/// How long the first connection may take before whoever starts the worker is told; it goes on being tried.
const WELCOME_MAX: Duration = Duration::from_secs(10);

/// How long a worker that leaves waits for the server to know it.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// How many frames may wait for the network before emitted values are dropped.
const OUTGOING_MAX: usize = 10_000;

/// How many frames may wait for the network before what tasks say waits with the tasks.
const SPEECHES_MAX: usize = 256;

pub(crate) struct RemoteLink {
    shared: Arc<Shared>,
    /// None for a process that offers nothing: it only asks, and needs no stream.
    connection: Option<JoinHandle<()>>,
    /// For what is asked beside the stream.
    channel: Channel,
}

impl RemoteLink {
    pub fn connect(
        channel: Channel,
        profile: WorkerProfile,
        kinds: Vec<wire::KindOffer>,
        task_schemas: Vec<wire::TaskSchemas>,
        on_demand: bool,
    ) -> RemoteLink {
        let works = on_demand || !kinds.is_empty() || !profile.task_kinds.is_empty();
        let shared = Arc::new(Shared::new(profile, kinds, task_schemas));
        let connection = works.then(|| tokio::spawn(stream::keep_open(channel.clone(), shared.clone())));
        RemoteLink { shared, connection, channel }
    }

    /// Waits until the server has welcomed the worker for the first time, or says why it does not.
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

impl Drop for RemoteLink {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

impl Link for RemoteLink {
    fn next_runs(&self, limit: usize) -> LinkFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move {
            let want = || self.shared.want(limit, 0);
            self.shared.next(&self.shared.runs_came, want, |state| take(&mut state.runs, limit)).await
        })
    }

    fn claim_run(&self, key: RunKey, delivery: Delivery) -> LinkFuture<'_, Result<ClaimedOne, RuntimeError>> {
        Box::pin(async move { drive::claim_run(&self.shared, &self.channel, key, delivery).await })
    }

    fn next_tasks(&self, limit: usize) -> LinkFuture<'_, Vec<Task>> {
        Box::pin(async move {
            let want = || self.shared.want(0, limit);
            self.shared.next(&self.shared.tasks_came, want, |state| take(&mut state.tasks, limit)).await
        })
    }

    fn next_questions(&self) -> LinkFuture<'_, Vec<Question>> {
        Box::pin(self.shared.next(&self.shared.questions_came, || {}, |state| state.questions.drain(..).collect()))
    }

    fn open_inbox(&self, key: &RunKey, epoch: Epoch, inbox: Arc<dyn Inbox>) {
        let kept = {
            let mut state = self.shared.lock();
            match state.held.get_mut(key).filter(|held| held.epoch == epoch) {
                None => None,
                // Under the lock until all is handed over: what comes next must not overtake it.
                Some(held) => {
                    if let To::Kept(records) = &mut held.to {
                        std::mem::take(records).into_iter().for_each(|record| inbox.push(record));
                    }
                    held.to = To::Inbox(inbox.clone());
                    Some(())
                }
            }
        };
        if kept.is_none() {
            inbox.lost();
        }
    }

    /// Tells the server too: otherwise the run would keep its seat there for as long as this worker lives.
    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        let held = self.shared.lock().let_go(key, epoch);
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
                let asked = shared.ask(|request| WorkerFrame::ReadLog(wire::ReadLog { request, ..read }));
                let Said::Log(wire::Log { records: page, more }) = asked.said().await? else {
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
        let bytes = payloads::weigh(&commit.events);
        let asked = self.shared.ask_if_small(bytes, |request| WorkerFrame::Commit(wire::CommitRun { request, commit }));
        Box::pin(async move {
            let Said::Committed(committed) = asked?.said().await? else { return Err(not_an_answer("a commit")) };
            if committed.status.is_closed() {
                drop(shared.lock().let_go(&key, epoch)); // the server let it go too
            }
            Ok(committed)
        })
    }

    /// Nobody waits for the answer: whoever gives a run back must be rid of it also while there is no connection.
    fn release(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        let held = self.shared.lock().let_go(&run, epoch);
        drop(held); // outside of the lock: it wakes somebody
        self.shared.release(run, epoch);
        Box::pin(std::future::ready(Ok(())))
    }

    fn pause(&self, run: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()> {
        let asked = self.shared.ask(|request| WorkerFrame::Pause(wire::PauseRun { request, run, generation, epoch, report }));
        Box::pin(async move { asked.said().await.map(drop) })
    }

    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport) -> StoreFuture<'_, ()> {
        let ends = report.ends();
        let key = task.clone();
        let asked = self.shared.ask(|request| WorkerFrame::Report(wire::ReportTask { request, task, claim, report }));
        Box::pin(async move {
            let answer = asked.said().await.map(drop);
            let over = matches!(&answer, Err(error) if error.code() == "task_attempt_over");
            if over || (ends && answer.is_ok()) {
                self.shared.end_task(key, claim);
            }
            answer
        })
    }

    fn task_over(&self, id: TaskId, claim: u64) -> LinkFuture<'_, ()> {
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
        let Emitted { name, value } = emitted;
        let connection = {
            let state = self.shared.lock();
            if state.outgoing.len() >= OUTGOING_MAX {
                return; // whoever listens misses what there is no room for
            }
            state.connection
        };
        self.shared.send_on(connection, WorkerFrame::Emit(wire::Emit { run: key.clone(), name, value }));
    }

    fn speak(&self, speech: Speech) -> Option<Speech> {
        let mut state = self.shared.lock();
        // While others wait, it waits where more can be put to it.
        if !state.welcomed || state.outgoing.len() >= SPEECHES_MAX {
            return Some(speech);
        }
        state.outgoing.push_back(WorkerFrame::Speak(speech));
        drop(state);
        self.shared.outgoing.notify_one();
        None
    }

    fn leave(&self) -> LinkFuture<'_, ()> {
        Box::pin(async move {
            self.shared.lock().is_leaving = true;
            if self.connection.is_none() {
                return;
            }
            // A server that does not hear of it notices by our silence.
            drop(tokio::time::timeout(LEAVE_MAX, self.give_back()).await);
            self.shared.lock().has_left = true;
        })
    }
}

impl RemoteLink {
    /// Gives back what was on its way, and goes.
    async fn give_back(&self) {
        let (runs, tasks, received) = {
            let mut state = self.shared.lock();
            state.takes_no_tasks = true; // what arrives from now on is not started (V7)
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks), state.received.clone())
        };
        for run in runs {
            drop(self.release(run.head.key, run.head.epoch).await);
        }
        for task in tasks {
            self.shared.give_back_task(task).await;
        }
        let left = self.shared.ask(|request| WorkerFrame::Leave(wire::Leave { request, received }));
        drop(left.said().await);
    }
}

fn take<T>(from: &mut VecDeque<T>, limit: usize) -> Vec<T> {
    let count = from.len().min(limit.max(1));
    from.drain(..count).collect()
}

fn not_an_answer(wanted: &str) -> StoreError {
    StoreError::Unavailable { why: format!("the server answered something else than {wanted}") }
}
