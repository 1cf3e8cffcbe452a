//! Work for a worker: runs, tasks and questions.

use std::sync::{Arc, Weak};
use std::time::Duration;

use onward_core::task::{Task, TaskId};
use onward_core::{Epoch, Record, RunKey};
use onward_runtime::{Inbox, Question, WorkerConnection};
use onward_store::{ClaimedRun, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::ServerFrame;

use super::{GivenTask, Session, SessionState};

/// Maximum number of runs or tasks per claim.
const CLAIM_MAX: usize = 64;

/// Maximum size of a log that is sent with its run; the worker reads a larger one in pages.
const LOG_MAX: usize = 1_000;
const LOG_BYTES_MAX: usize = 1024 * 1024;

/// Gives runs to the worker as long as there is credit (Q1).
pub(super) async fn give_runs(session: Weak<Session>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let credit = session.credit(|state| state.run_credit).await;
        if credit == 0 {
            continue;
        }
        let next = session.local.next_runs((credit as usize).min(CLAIM_MAX));
        let Ok(claimed) = tokio::time::timeout(Duration::from_secs(1), next).await else { continue };
        for run in claimed {
            session.give_run(run, 1).await;
        }
    }
}

pub(super) async fn give_tasks(session: Weak<Session>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let credit = session.credit(|state| state.task_credit).await;
        if credit == 0 {
            continue;
        }
        let next = session.local.next_tasks((credit as usize).min(CLAIM_MAX));
        let Ok(tasks) = tokio::time::timeout(Duration::from_secs(1), next).await else { continue };
        for task in tasks {
            session.give_task(task).await;
        }
    }
}

pub(super) async fn give_questions(session: Weak<Session>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let Ok(questions) = tokio::time::timeout(Duration::from_secs(1), session.local.next_questions()).await else { continue };
        for question in questions {
            drop(session.ask(question));
        }
    }
}

impl Session {
    /// Waits for credit, at most a second.
    async fn credit(&self, of: impl Fn(&SessionState) -> u32) -> u32 {
        let came = self.credit_came.notified();
        let mut came = std::pin::pin!(came);
        came.as_mut().enable();
        let credit = of(&self.lock());
        if credit > 0 {
            return credit;
        }
        drop(tokio::time::timeout(Duration::from_secs(1), came).await);
        of(&self.lock())
    }

    /// Records the run and queues it in one step, so that no hello comes in between. Releases the run if there is no connection.
    /// A run that the worker claimed by id uses no `credit`.
    pub async fn give_run(self: &Arc<Session>, claimed: ClaimedRun, credit: u32) {
        let ClaimedRun { head, records } = claimed;
        let (run, epoch) = (head.key.clone(), head.epoch);
        let small = |records: &Vec<Record>| {
            records.len() <= LOG_MAX && payloads::payload_bytes(records.iter().flat_map(|record| &record.events)) <= LOG_BYTES_MAX
        };
        let log = records.filter(small).map(|records| wire::Log { records, more: false });
        let given = self.give(|state| {
            state.run_credit = state.run_credit.saturating_sub(credit);
            state.runs.insert(run.clone(), epoch);
            ServerFrame::Run(wire::Run { head, log })
        });
        if !given {
            drop(self.local.release(run, epoch).await);
            return;
        }
        // The inbox is opened after the run is queued, so that inputs follow it.
        let inbox = RemoteInbox { session: Arc::downgrade(self), run: run.clone(), epoch };
        self.local.open_inbox(&run, epoch, Arc::new(inbox));
    }

    async fn give_task(self: &Arc<Session>, task: Task) {
        let (id, claim) = (task.id.clone(), task.claim);
        let mut before = None;
        let given = self.give(|state| {
            state.task_credit = state.task_credit.saturating_sub(1);
            state.offered += 1;
            let number = state.offered;
            before = state.tasks.insert(id.clone(), GivenTask { claim, offer: number });
            ServerFrame::Task(wire::TaskOffer { task, number })
        });
        if let Some(before) = before {
            // Its attempt timed out, and this worker got the next one, too.
            self.push(ServerFrame::TaskOver(wire::TaskOver { task: id.clone(), claim: before.claim }));
        }
        if !given {
            drop(self.local.give_back_task(id, claim).await);
            return;
        }
        self.watch_task(id, claim);
    }

    /// Notifies the worker when the attempt has ended otherwise.
    pub(super) fn watch_task(self: &Arc<Session>, task: TaskId, claim: u64) {
        let session = self.clone();
        tokio::spawn(async move {
            session.local.task_over(task.clone(), claim).await;
            // A task that is being adopted again was with another session meanwhile; the adoption decides whether it is over
            // (K10).
            let is_unconfirmed = session.lock().unconfirmed.contains(&(task.clone(), claim));
            if session.forget_task(&task, claim) && !is_unconfirmed {
                session.push(ServerFrame::TaskOver(wire::TaskOver { task, claim }));
            }
        });
    }

    /// Records what is given and queues its frame; returns false if there is no connection.
    fn give(&self, note: impl FnOnce(&mut SessionState) -> ServerFrame) -> bool {
        let mut state = self.lock();
        if state.served.is_none() || state.over {
            return false;
        }
        let frame = note(&mut state);
        state.enqueue(frame);
        drop(state);
        self.outgoing.notify_one();
        true
    }
}

/// Inbox of a run that a remote worker holds.
struct RemoteInbox {
    /// Weak, because the runtime holds the inbox and the session holds the runtime.
    session: Weak<Session>,
    run: RunKey,
    epoch: Epoch,
}

impl Inbox for RemoteInbox {
    fn push(&self, record: Record) {
        if let Some(session) = self.session.upgrade() {
            session.push(ServerFrame::Input(wire::Input { run: self.run.clone(), epoch: self.epoch, record }));
        }
    }

    fn lost(&self) {
        if let Some(session) = self.session.upgrade() {
            session.lose(&self.run, self.epoch);
        }
    }

    fn watch(&self, on: bool) -> bool {
        self.session.upgrade().is_some_and(|session| session.watch(&self.run, on))
    }

    fn ask(&self, question: Question) -> Result<(), Question> {
        match self.session.upgrade() {
            Some(session) => session.ask(question),
            None => Err(question),
        }
    }
}
