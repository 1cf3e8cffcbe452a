//! One remote worker.
//!
//! Invariants:
//! - Q1 (V2): no more runs and tasks are sent than the worker has asked for on its present connection.
//! - Q2 (S4): a worker commits, releases and pauses only runs that this session has given to it, and reports only such tasks. What
//!   it repeats about a run that is closed gets the first answer.
//! - Q3: of two connections of one worker the later one is served; the earlier one ends, and nothing that it brings or has counts.
//! - Q4: a worker that was silent for its lease has lost everything, whether it is connected or not (F13).
//! - Q5 (S6): a worker belongs to the namespace of its connection; for what it says about runs of others, there is no such run.
//! - Q6: whatever ends the worker's hold of a run also ends the runtime's: its seat is free and its inbox is closed (W2).
//! - Q7: a task that a server gave to a worker stays the worker's over a restart of the server, as long as the store says so. One that
//!   the worker's next hello no longer has goes back, also while it is being taken up. One that the worker has taken along to another
//!   server is not this session's any more (K10), until the worker comes back with it.
//! - Q8: the store's leases on runs belong to the session and end with it, however long the worker lives.
//! - Q9 (S5): a session belongs to the credential that has opened it. Another one gets no connection of it, and takes up no task and
//!   releases no run that a session of this one was given, at whatever server and under whatever worker id.

mod asked;
mod connection;
mod given;
mod hello;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use onward_core::task::{TaskId, TaskReport};
use onward_core::{Epoch, Hash, Name, NameError, Namespace, RunKey, WorkerId};
use onward_runtime::{Question, Runtime, WorkerPort, WorkerProfile};
use onward_wire::worker as wire;
use onward_wire::worker::ServerFrame;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

pub(crate) use connection::Connection;
pub(crate) use hello::NotServed;

use crate::auth::Caller;
use crate::http::problem::RequestError;
use crate::{Problem, new_id};
use given::{give_questions, give_runs, give_tasks};

/// How many frames may wait for a worker. One that does not read is cut off: it comes back and reads the log instead.
const QUEUE_MAX: usize = 100_000;
const QUEUE_BYTES_MAX: usize = 128 * 1024 * 1024;

/// How many records are read at a time.
const PAGE: usize = 1_000;

pub(crate) struct Session {
    /// Tells it apart from other sessions of the same worker.
    id: u64,
    port: WorkerPort,
    /// For what has to be done when the store's own thread tells something.
    tokio: tokio::runtime::Handle,
    namespace: Namespace,
    /// The credential that has opened it (Q9).
    credential: Option<String>,
    state: Mutex<State>,
    /// There is something to send, or the connection is over.
    outgoing: Notify,
    credit_came: Notify,
    /// Another connection is served than before, or none.
    served_changed: Notify,
    next_question: AtomicU64,
    watching: OnceLock<AbortHandle>,
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get() {
            watching.abort(); // it holds the membership
        }
    }
}

#[derive(Default)]
struct State {
    outgoing: VecDeque<ServerFrame>,
    /// The bytes of the payloads in them.
    outgoing_bytes: usize,
    runs: HashMap<RunKey, Epoch>,
    tasks: BTreeMap<TaskId, GivenTask>,
    /// How many tasks were offered in this session, and up to which number the offers were handed to a connection for sending.
    offered: u64,
    sent: u64,
    /// What the latest hello held and this session had not given: it may be taken up (Q7).
    doubtful: BTreeSet<(TaskId, u64)>,
    run_credit: u32,
    task_credit: u32,
    questions: HashMap<u64, Question>,
    connections: u64,
    /// The connection that is served, the latest (Q3). While there is none, nothing is kept for the worker: when it comes back it says
    /// where it stands.
    served: Option<u64>,
    /// The highest count that a hello brought.
    counted: u64,
    over: bool,
    /// The session is over and has nothing more to say.
    finished: bool,
}

/// A task that the worker was given.
#[derive(Clone, Copy, PartialEq, Eq)]
struct GivenTask {
    claim: u64,
    /// The number of its offer; 0 for a task that an earlier session offered.
    offer: u64,
}

/// Why a session ends.
enum Ending {
    /// The worker has said so, and which offers it has received.
    Left(Option<wire::Received>),
    /// Its key is not valid any more, or it has nothing to do.
    Stopped,
    /// The worker was silent for its lease.
    Silent,
}

impl Session {
    pub fn begin(runtime: &Runtime, namespace: Namespace, caller: &Caller, hello: &wire::Hello) -> Result<Arc<Session>, Problem> {
        let invalid = |error: NameError| Problem::new("name_invalid", error.to_string(), None);
        let version = |version: &String| -> Result<Option<Name>, Problem> {
            if version.is_empty() { Ok(None) } else { Name::new(version).map(Some).map_err(invalid) }
        };
        let mut knows = BTreeMap::new();
        for kind in &hello.kinds {
            knows.insert(kind.kind.clone(), kind.versions.iter().map(version).collect::<Result<Vec<_>, _>>()?);
        }
        let id = new_id::random_u64() >> 11; // JSON readers have 53 bits for a number
        let profile = WorkerProfile {
            id: known_as(&namespace, &hello.worker, caller.credential.as_deref(), id),
            namespace: namespace.clone(),
            knows: Arc::new(knows),
            current: Arc::new(hello.kinds.iter().filter_map(|kind| Some((kind.kind.clone(), kind.current.clone()?))).collect()),
            task_kinds: Arc::new(hello.task_kinds.clone()),
            task_limits: Arc::new(hello.task_limits.iter().map(|said| (said.kind.clone(), said.limit.clone())).collect()),
            queues: hello.queues.iter().map(version).collect::<Result<Vec<_>, _>>()?,
            runs_max: hello.runs_max.max(1) as usize,
            is_remote: true,
        };
        let session = Arc::new(Session {
            id,
            port: runtime.join_worker(profile),
            tokio: tokio::runtime::Handle::current(),
            namespace,
            credential: caller.credential.clone(),
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
        let watching = tokio::spawn(watch(weak, session.port.clone()));
        drop(session.watching.set(watching.abort_handle()));
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.lock().over
    }

    /// Refuses a caller with another credential than the one that has opened the session (Q9).
    pub fn check_owner(&self, caller: &Caller, worker: &WorkerId) -> Result<(), RequestError> {
        if self.credential == caller.credential {
            return Ok(());
        }
        Err(RequestError::WorkerIdTaken { worker: worker.to_string() })
    }

    /// Whether the worker has a connection.
    pub fn is_served(&self) -> bool {
        self.lock().served.is_some()
    }

    pub fn port(&self) -> &WorkerPort {
        &self.port
    }

    /// The server ends: nothing more is given or taken. What the worker holds is lost with its lease.
    pub fn stop(&self) {
        self.lock().over = true;
        self.credit_came.notify_waiters();
        self.finish();
    }

    fn runtime(&self) -> &Runtime {
        self.port.runtime()
    }

    pub fn push(&self, frame: ServerFrame) {
        let mut state = self.lock();
        if state.served.is_none() {
            return; // the next hello says what the worker has not got
        }
        state.enqueue(frame);
        let too_many = state.outgoing.len() > QUEUE_MAX || state.outgoing_bytes > QUEUE_BYTES_MAX;
        if too_many {
            // Whoever is connected ends, and begins again with what the log says.
            state.cut_off();
            self.port.set_present(false);
        }
        drop(state);
        if too_many {
            self.outgoing.notify_waiters();
            self.served_changed.notify_waiters();
        }
        self.outgoing.notify_one();
    }

    fn forget(&self, run: &RunKey, epoch: Epoch) {
        let mut state = self.lock();
        if state.runs.get(run) == Some(&epoch) {
            state.runs.remove(run);
        }
    }

    /// The runtime has given the run up for the worker: tells it, and gives the lease back. The store may remember the worker for
    /// longer than we do, and would keep the run from others until then.
    pub fn lose(self: &Arc<Session>, run: &RunKey, epoch: Epoch) {
        self.forget(run, epoch);
        let (session, run) = (self.clone(), run.clone());
        self.push(ServerFrame::RunLost(wire::RunLost { run: run.clone(), epoch }));
        self.tokio.spawn(async move { session.port.release(&run, epoch).await });
    }

    fn forget_task(&self, task: &TaskId, claim: u64) -> bool {
        let mut state = self.lock();
        let held = state.holds_task(task, claim);
        if held {
            state.tasks.remove(task);
        }
        held
    }

    /// Sends a question to the worker; gives it back when nobody is connected.
    pub fn ask(&self, question: Question) -> Result<(), Question> {
        let number = self.next_question.fetch_add(1, Ordering::Relaxed);
        let Question { run, name, input, .. } = &question;
        let frame = wire::Question { question: number, run: run.clone(), name: name.clone(), input: input.clone() };
        let mut state = self.lock();
        if state.served.is_none() {
            return Err(question);
        }
        // Who no longer waits for an answer need not be remembered.
        state.questions.retain(|_, question| !question.answer.is_closed());
        state.questions.insert(number, question);
        drop(state);
        self.push(ServerFrame::Question(frame));
        Ok(())
    }

    /// The worker is gone for good: what it held goes to others at once, and its attempts end: those that may have begun as such (V7).
    /// Returns the runs it had not given back.
    async fn end(&self, ending: Ending) -> HashMap<RunKey, Epoch> {
        let (runs, tasks, not_started) = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.over, true) {
                return HashMap::new();
            }
            state.questions.clear(); // dropped, they are asked elsewhere
            let received = if let Ending::Left(received) = &ending { received.as_ref() } else { None };
            let not_started = state.not_started(self.id, received);
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks), not_started)
        };
        self.credit_came.notify_waiters();
        for (run, epoch) in &runs {
            drop(self.port.release(run, *epoch).await);
        }
        for (task, GivenTask { claim, .. }) in tasks {
            drop(match ending {
                _ if not_started.contains(&(task.clone(), claim)) => self.port.give_back_task(task, claim).await,
                Ending::Silent => self.port.report_for_worker(task, claim, TaskReport::WorkerLost).await,
                Ending::Left(_) | Ending::Stopped => self.port.report_for_worker(task, claim, TaskReport::Interrupted).await,
            });
        }
        self.port.leave().await;
        runs
    }

    /// Lets the connection go once it has sent everything: whoever is still there begins anew (Q4).
    fn finish(&self) {
        self.lock().finished = true;
        self.outgoing.notify_waiters();
        self.outgoing.notify_one();
    }
}

impl State {
    fn holds_task(&self, task: &TaskId, claim: u64) -> bool {
        self.tasks.get(task).is_some_and(|given| given.claim == claim)
    }

    /// Returns the tasks that the worker is known not to have started: their offers were never sent, or the worker says that they have
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
        // Dropped, they are asked once more, elsewhere.
        self.questions.clear();
    }
}

/// Returns what the store calls the worker in this session. It knows the workers of all namespaces by their ids; the same id in two
/// namespaces, or of two credentials, is two workers (Q9). A session that ended with its server has leases that nothing renews: they
/// must not last because the worker has another session (Q8).
pub(super) fn known_as(namespace: &Namespace, worker: &WorkerId, credential: Option<&str>, session: u64) -> WorkerId {
    let owner = credential.map(|id| format!("{}:", Hash::of_parts(&[id.as_bytes()]))).unwrap_or_default();
    let whole = format!("{}:{namespace}:{worker}:{owner}{session:016x}", namespace.as_str().len());
    WorkerId::new(whole).unwrap_or_else(|_| {
        // Names of which each is short enough may be too long together.
        let both = Hash::of_parts(&[namespace.as_str().as_bytes(), worker.as_str().as_bytes()]);
        WorkerId::new(format!("both:{both}:{owner}{session:016x}")).expect("hex digits are a name")
    })
}

/// Whether two ids of the store are those of one worker with one credential, in whatever sessions (Q9).
pub(super) fn is_same_owner(one: &WorkerId, other: &WorkerId) -> bool {
    let owner = |id: &WorkerId| id.as_str().rsplit_once(':').map(|(owner, _)| owner.to_owned());
    owner(one).is_some() && owner(one) == owner(other)
}

/// Ends the session of a worker that was silent for its lease (Q4).
async fn watch(session: Weak<Session>, port: WorkerPort) {
    port.fell_silent().await;
    let Some(session) = session.upgrade() else { return };
    for (run, epoch) in session.end(Ending::Silent).await {
        session.push(ServerFrame::RunLost(wire::RunLost { run, epoch })); // perhaps it can hear us
    }
    session.finish();
}
