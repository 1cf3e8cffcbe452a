//! Session of one remote worker.
//!
//! Invariants:
//! - Q1 (V2): no more runs and tasks are sent than the worker has requested on its current connection.
//! - Q2 (S4): a worker commits, releases and pauses only runs that this session has given to it, and reports only such tasks. A
//!   repeated commit of a closed run gets the first reply.
//! - Q3: of two connections of one worker the later one is served; the earlier one ends, and its frames are ignored.
//! - Q4: a worker that was silent for its lease has lost everything, whether it is connected or not (F13).
//! - Q5 (S6): a worker belongs to the namespace of its connection; a run of another namespace does not exist for it.
//! - Q6: whatever ends the worker's hold of a run also ends the runtime's: its permit is released and its inbox is closed (W2).
//! - Q7: a task that a server gave to a worker stays with the worker over a restart of the server, as long as the store has it
//!   so. A task that the worker's next hello no longer lists is given back, also while it is being adopted. A task that the
//!   worker has taken along to another server no longer belongs to this session (K10), until the worker comes back with it.
//! - Q8: the store's leases on runs belong to the session and end with it, however long the worker lives.
//! - Q9 (S5): a session belongs to the credential that opened it. Another credential gets no connection of it, adopts no task and
//!   releases no run that a session of this one was given, at any server and under any worker id. The same worker id with
//!   another credential is another worker, with a session of its own.

mod connection;
mod frames;
mod hello;
mod memos;
mod offers;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, ErrorCode, Name, NameError, Namespace, RunKey};
use onward_runtime::{LocalConnection, Question, Runtime, WorkerConnection, WorkerProfile};
use onward_wire::worker as wire;
use onward_wire::worker::ServerFrame;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub(crate) use connection::Connection;
pub(crate) use hello::NotServed;

use crate::auth::bounds::Bounds;
use crate::verbs::Principal;
use crate::{Problem, new_id};
use offers::{give_questions, give_runs, give_tasks};

/// Maximum number of frames in the queue. A worker that does not read is disconnected; after reconnecting it reads the log
/// instead.
const QUEUE_MAX: usize = 100_000;
const QUEUE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// Number of records per read.
const PAGE: usize = 1_000;

pub(crate) struct Session {
    /// Distinguishes sessions of the same worker.
    id: u64,
    local: LocalConnection,
    /// For tasks that are started from the store's own thread.
    tokio: tokio::runtime::Handle,
    namespace: Namespace,
    /// Credential that opened the session (Q9).
    credential: Option<String>,
    state: Mutex<SessionState>,
    /// Notified when there are frames to send or the connection is over.
    outgoing: Notify,
    credit_came: Notify,
    /// Notified when another connection is served than before, or none.
    served_changed: Notify,
    next_question: AtomicU64,
    watching: OnceLock<AbortHandle>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get() {
            watching.abort(); // it holds the worker's port
        }
    }
}

#[derive(Default)]
struct SessionState {
    outgoing: VecDeque<ServerFrame>,
    /// Size of their payloads in bytes.
    outgoing_bytes: usize,
    runs: HashMap<RunKey, Epoch>,
    tasks: BTreeMap<TaskId, GivenTask>,
    /// Number of tasks offered in this session, and the number of the last offer that was handed to a connection.
    offered: u64,
    sent: u64,
    /// Tasks of the latest hello: whether this session has them, or may adopt them, is not known yet (Q7).
    unconfirmed: BTreeSet<(TaskId, u64)>,
    run_credit: u32,
    task_credit: u32,
    questions: HashMap<u64, Question>,
    connections: u64,
    /// Number of the served connection, the latest (Q3). Without one, no frames are queued: the next hello of the worker contains
    /// its state.
    served: Option<u64>,
    /// Highest connection count that a hello contained.
    counted: u64,
    /// The worker reports steps of runs that are watched.
    reports_steps: bool,
    /// Kinds and queues of the key, as of the latest request (BK3).
    bounds: Bounds,
    over: bool,
    /// The session is over and will queue no more frames.
    finished: bool,
}

/// Task that the worker was given.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GivenTask {
    claim: u64,
    /// Number of its offer; 0 for a task that an earlier session offered.
    offer: u64,
}

/// Reason for the end of a session.
enum Ending {
    /// The worker left, and reported which offers it had received.
    Left(Option<wire::Received>),
    /// Its key is no longer valid, or it has nothing to do.
    Stopped,
    /// The worker was silent for its lease.
    Silent,
}

impl Session {
    pub fn begin(runtime: &Runtime, by: &Principal, hello: &wire::Hello) -> Result<Arc<Session>, Problem> {
        let (namespace, credential) = (by.namespace.clone(), by.caller.credential.clone());
        let invalid = |error: NameError| Problem::new(ErrorCode::NameInvalid, error.to_string(), None);
        let version = |version: &String| -> Result<Option<Name>, Problem> {
            if version.is_empty() { Ok(None) } else { Name::new(version).map(Some).map_err(invalid) }
        };
        let mut knows = BTreeMap::new();
        for kind in &hello.kinds {
            knows.insert(kind.kind.clone(), kind.versions.iter().map(version).collect::<Result<Vec<_>, _>>()?);
        }
        let id = new_id::random_u64() >> 11; // JSON numbers have 53 bits in many parsers
        let profile = WorkerProfile {
            id: hello.worker.in_session(&namespace, credential.as_deref(), id),
            namespace: namespace.clone(),
            knows: Arc::new(knows),
            current: Arc::new(hello.kinds.iter().filter_map(|kind| Some((kind.kind.clone(), kind.current.clone()?))).collect()),
            task_kinds: Arc::new(hello.task_kinds.clone()),
            task_limits: Arc::new(
                hello.task_limits.iter().map(|declared| (declared.kind.clone(), declared.limit.clone())).collect(),
            ),
            queues: hello.queues.iter().map(version).collect::<Result<Vec<_>, _>>()?,
            runs_max: hello.runs_max.max(1) as usize,
            is_remote: true,
        };
        let session = Arc::new(Session {
            id,
            local: runtime.join_worker(profile),
            tokio: tokio::runtime::Handle::current(),
            namespace,
            credential,
            state: Mutex::default(),
            outgoing: Notify::new(),
            credit_came: Notify::new(),
            served_changed: Notify::new(),
            next_question: AtomicU64::new(1),
            watching: OnceLock::new(),
        });
        let weak = Arc::downgrade(&session);
        tokio::spawn(give_runs(weak.clone()));
        tokio::spawn(give_tasks(weak.clone()));
        tokio::spawn(give_questions(weak.clone()));
        let watching = tokio::spawn(watch(weak, session.local.clone()));
        drop(session.watching.set(watching.abort_handle()));
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Returns whether the worker has a connection.
    pub fn is_served(&self) -> bool {
        self.lock().served.is_some()
    }

    pub fn local(&self) -> &LocalConnection {
        &self.local
    }

    /// Stops the session because the server ends. The worker's runs and tasks are lost when their leases expire.
    pub fn stop(&self) {
        self.lock().over = true;
        self.credit_came.notify_waiters();
        self.finish();
    }

    fn runtime(&self) -> &Runtime {
        self.local.runtime()
    }

    pub fn push(&self, frame: ServerFrame) {
        let mut state = self.lock();
        if state.served.is_none() {
            return; // the next hello shows what the worker is missing
        }
        state.enqueue(frame);
        let too_many = state.outgoing.len() > QUEUE_MAX || state.outgoing_bytes > QUEUE_BYTES_MAX;
        if too_many {
            // The connection ends; after reconnecting the worker reads the log.
            state.cut_off();
            self.local.set_present(false);
        }
        drop(state);
        if too_many {
            self.outgoing.notify_waiters();
            self.served_changed.notify_waiters();
        }
        self.outgoing.notify_one();
    }

    /// Passes to the worker whether a run is watched; returns false if it cannot report steps.
    pub fn watch(&self, run: &RunKey, on: bool) -> bool {
        let state = self.lock();
        let reports_steps = state.reports_steps && state.served.is_some();
        drop(state);
        if reports_steps {
            self.push(ServerFrame::Watch(wire::Watch { run: run.clone(), on }));
        }
        reports_steps
    }

    fn forget(&self, run: &RunKey, epoch: Epoch) {
        let mut state = self.lock();
        if state.runs.get(run) == Some(&epoch) {
            state.runs.remove(run);
        }
    }

    /// Handles the loss of a run in the runtime: notifies the worker and ends the lease, which would otherwise keep the run from
    /// other workers until it expires.
    pub fn lose(self: &Arc<Session>, run: &RunKey, epoch: Epoch) {
        self.forget(run, epoch);
        let (session, run) = (self.clone(), run.clone());
        self.push(ServerFrame::RunLost(wire::RunLost { run: run.clone(), epoch }));
        self.tokio.spawn(async move { session.local.end_claim(run, epoch).await });
    }

    fn forget_task(&self, task: &TaskId, claim: u64) -> bool {
        let mut state = self.lock();
        let held = state.holds_task(task, claim);
        if held {
            state.tasks.remove(task);
        }
        held
    }

    /// Sends a question to the worker; returns it if there is no connection.
    pub fn ask(&self, question: Question) -> Result<(), Question> {
        let number = self.next_question.fetch_add(1, Ordering::Relaxed);
        let Question { run, name, input, .. } = &question;
        let frame = wire::Question { question: number, run: run.clone(), name: name.clone(), input: input.clone() };
        let mut state = self.lock();
        if state.served.is_none() {
            return Err(question);
        }
        // Questions whose caller is gone are dropped.
        state.questions.retain(|_, question| !question.answer.is_closed());
        state.questions.insert(number, question);
        drop(state);
        self.push(ServerFrame::Question(frame));
        Ok(())
    }

    /// Ends the session for good: other workers get its runs and tasks at once. Attempts that may have begun are reported as
    /// ended (V7). Returns the runs that the worker had not released.
    async fn end(&self, ending: Ending) -> HashMap<RunKey, Epoch> {
        let (runs, tasks, not_started) = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.over, true) {
                return HashMap::new();
            }
            state.questions.clear(); // dropped questions are sent to another worker
            let received = if let Ending::Left(received) = &ending { received.as_ref() } else { None };
            let not_started = state.not_started(self.id, received);
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks), not_started)
        };
        self.credit_came.notify_waiters();
        for (run, epoch) in &runs {
            match ending {
                Ending::Silent => self.local.end_claim(run.clone(), *epoch).await,
                Ending::Left(_) | Ending::Stopped => drop(self.local.release(run.clone(), *epoch).await),
            }
        }
        for (task, GivenTask { claim, .. }) in tasks {
            drop(match ending {
                _ if not_started.contains(&(task.clone(), claim)) => self.local.give_back_task(task, claim).await,
                Ending::Silent => self.local.report_for_worker(task, claim, TaskReport::WorkerLost).await,
                Ending::Left(_) | Ending::Stopped => self.local.report_for_worker(task, claim, TaskReport::Interrupted).await,
            });
        }
        self.local.leave().await;
        runs
    }

    /// Ends the connection once everything is sent; a worker that is still connected begins a new session (Q4).
    fn finish(&self) {
        self.lock().finished = true;
        self.outgoing.notify_waiters();
        self.outgoing.notify_one();
    }
}

impl SessionState {
    fn holds_task(&self, task: &TaskId, claim: u64) -> bool {
        self.tasks.get(task).is_some_and(|given| given.claim == claim)
    }

    /// Returns the tasks that the worker cannot have started: their offers were never sent, or the worker reports that they have
    /// not arrived (V7).
    fn not_started(&self, session: u64, received: Option<&wire::Received>) -> BTreeSet<(TaskId, u64)> {
        let arrived = received.filter(|received| received.session == session).map_or(u64::MAX, |received| received.offer);
        let behind = self.sent.min(arrived);
        self.tasks.iter().filter(|(_, given)| given.offer > behind).map(|(task, given)| (task.clone(), given.claim)).collect()
    }

    fn cut_off(&mut self) {
        self.served = None;
        self.outgoing.clear();
        self.outgoing_bytes = 0;
        (self.run_credit, self.task_credit) = (0, 0);
        // Dropped questions are sent again, to another worker.
        self.questions.clear();
    }
}

/// Ends the session of a worker that was silent for its lease (Q4).
async fn watch(session: Weak<Session>, local: LocalConnection) {
    local.lease_expired().await;
    let Some(session) = session.upgrade() else { return };
    for (run, epoch) in session.end(Ending::Silent).await {
        session.push(ServerFrame::RunLost(wire::RunLost { run, epoch })); // it may still be connected
    }
    session.finish();
}
