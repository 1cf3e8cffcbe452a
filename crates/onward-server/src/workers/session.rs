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

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use onward_core::run::Commit;
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Name, NameError, Namespace, Record, RunKey, WorkerId};
use onward_runtime::{Emitted, Link, Question, Runtime, WorkerPort, WorkerProfile};
use onward_store::{ClaimedRun, StoreError, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::{Said, ServerFrame, WorkerFrame};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use super::inbox::RemoteInbox;
use crate::Problem;
use crate::grpc::problem::of_store;

/// How many runs and tasks are claimed at once.
const CLAIM_MAX: usize = 64;

/// How many frames may wait for a worker. One that does not read is cut off: it comes back and reads the log instead.
const QUEUE_MAX: usize = 100_000;

/// How many frames travel in one message, and how many bytes of payloads before it is full.
const FRAMES_MAX: usize = 512;
const FRAMES_BYTES: usize = 4 * 1024 * 1024;

/// How many records are read at a time.
const PAGE: usize = 1_000;

/// A log of more records or bytes than this is not sent with its run; the worker reads it in pages.
const LOG_MAX: usize = 1_000;
const LOG_BYTES_MAX: usize = 1024 * 1024;

/// Behind so many bytes of payloads a page of a log ends.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

pub(crate) struct Session {
    port: WorkerPort,
    /// For what has to be done when the store's own thread tells something.
    tokio: tokio::runtime::Handle,
    namespace: Namespace,
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
    runs: HashMap<RunKey, Epoch>,
    tasks: BTreeMap<TaskId, u32>,
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

/// One connection of a session. Dropped, the session waits for the next one.
pub(crate) struct Connection {
    session: Arc<Session>,
    number: u64,
}

/// Why a hello was not taken.
pub(crate) enum NotServed {
    /// The session is over.
    Over,
    /// A later hello has come already.
    Overtaken,
}

impl Session {
    pub fn begin(runtime: &Runtime, namespace: Namespace, hello: &wire::Hello) -> Result<Arc<Session>, Problem> {
        let invalid = |error: NameError| Problem::new("name_invalid", error.to_string(), None);
        let version = |version: &String| -> Result<Option<Name>, Problem> {
            if version.is_empty() { Ok(None) } else { Name::new(version).map(Some).map_err(invalid) }
        };
        let mut knows = BTreeMap::new();
        for kind in &hello.kinds {
            knows.insert(kind.kind.clone(), kind.versions.iter().map(version).collect::<Result<Vec<_>, _>>()?);
        }
        let profile = WorkerProfile {
            id: known_as(&namespace, &hello.worker).map_err(invalid)?,
            namespace: namespace.clone(),
            knows: Arc::new(knows),
            task_kinds: Arc::new(hello.task_kinds.clone()),
            queues: hello.queues.iter().map(version).collect::<Result<Vec<_>, _>>()?,
            runs_max: hello.runs_max.max(1) as usize,
            is_remote: true,
        };
        let session = Arc::new(Session {
            port: runtime.join_worker(profile),
            tokio: tokio::runtime::Handle::current(),
            namespace,
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

    /// The server ends: nothing more is given or taken. What the worker holds is lost with its lease.
    pub fn stop(&self) {
        self.lock().over = true;
        self.credit_came.notify_waiters();
        self.finish();
    }

    fn runtime(&self) -> &Runtime {
        self.port.runtime()
    }

    /// A worker has come, or come back: tells it what it has lost, and brings what it holds up to date.
    pub fn connect(self: &Arc<Session>, hello: &wire::Hello) -> Result<Connection, NotServed> {
        let mut state = self.lock();
        if state.over {
            return Err(NotServed::Over);
        }
        if hello.connection < state.counted {
            return Err(NotServed::Overtaken);
        }
        self.port.heard();
        state.connections += 1;
        let number = state.connections;
        (state.served, state.counted) = (Some(number), hello.connection);
        self.port.set_present(true);
        // What waited for an earlier connection may have been sent or not: the worker says where it stands.
        state.outgoing.clear();
        (state.run_credit, state.task_credit) = (0, 0);
        let lease_ms = u64::try_from(self.runtime().options().lease.as_millis()).unwrap_or(u64::MAX);
        let (protocol, server) = (onward_wire::PROTOCOL, concat!("onward ", env!("CARGO_PKG_VERSION")).to_owned());
        let payload_bytes_max = u64::try_from(self.runtime().store().payload_bytes_max()).ok();
        state.outgoing.push_back(ServerFrame::Welcome(wire::Welcome { protocol, lease_ms, server, payload_bytes_max }));
        let mut unknown: HashMap<RunKey, Epoch> = state.runs.clone();
        let mut stale = Vec::new();
        for held in &hello.runs {
            match state.runs.get(&held.run) {
                Some(epoch) if *epoch == held.epoch => {
                    unknown.remove(&held.run);
                    stale.push(held.clone());
                }
                _ => {
                    let lost = wire::RunLost { run: held.run.clone(), epoch: held.epoch };
                    state.outgoing.push_back(ServerFrame::RunLost(lost));
                }
            }
        }
        let mut lost_tasks = state.tasks.clone();
        for held in &hello.tasks {
            match state.tasks.get(&held.task) {
                Some(claim) if *claim == held.claim => drop(lost_tasks.remove(&held.task)),
                _ => {
                    let over = wire::TaskOver { task: held.task.clone(), claim: held.claim };
                    state.outgoing.push_back(ServerFrame::TaskOver(over));
                }
            }
        }
        // Questions were sent to a connection that is gone; dropped, they are asked once more.
        state.questions.clear();
        drop(state);
        let session = self.clone();
        tokio::spawn(async move {
            for held in stale {
                session.catch_up(held).await;
            }
            // Sent to a connection that did not get them through.
            for (run, epoch) in unknown {
                session.forget(&run, epoch);
                drop(session.port.release(&run, epoch).await);
            }
            for (task, claim) in lost_tasks {
                session.forget_task(&task, claim);
                drop(session.port.report_task(task, claim, TaskReport::Released).await);
            }
        });
        self.outgoing.notify_waiters();
        self.served_changed.notify_waiters();
        Ok(Connection { session: self.clone(), number })
    }

    /// Sends the inputs that the worker has not seen. If they cannot be read the run is given up: the worker would wait for ever.
    async fn catch_up(self: &Arc<Session>, held: wire::HeldRun) {
        if self.send_missed(&held).await.is_err() {
            let wire::HeldRun { run, epoch, .. } = held;
            self.forget(&run, epoch);
            drop(self.port.release(&run, epoch).await);
            self.push(ServerFrame::RunLost(wire::RunLost { run, epoch }));
        }
    }

    async fn send_missed(&self, held: &wire::HeldRun) -> Result<(), StoreError> {
        let wire::HeldRun { run, generation, epoch, next_index } = held;
        let mut from = *next_index;
        loop {
            let store = self.runtime().store();
            let records = store.read_log(run.clone(), Some(*generation), from, PAGE).await?;
            let full = records.len() == PAGE;
            let Some(last) = records.last() else { return Ok(()) };
            from = last.next_index();
            for record in records.into_iter().filter(|record| record.commit.is_none() && record.index >= *next_index) {
                self.push(ServerFrame::Input(wire::Input { run: run.clone(), epoch: *epoch, record }));
            }
            if !full {
                return Ok(());
            }
        }
    }

    pub fn push(&self, frame: ServerFrame) {
        let mut state = self.lock();
        if state.served.is_none() {
            return; // the next hello says what the worker has not got
        }
        state.outgoing.push_back(frame);
        let too_many = state.outgoing.len() > QUEUE_MAX;
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

    fn forget_task(&self, task: &TaskId, claim: u32) -> bool {
        let mut state = self.lock();
        let held = state.tasks.get(task) == Some(&claim);
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

    /// Does what one frame asks for. Answers come later, in any order.
    fn handle(self: &Arc<Session>, frame: WorkerFrame) {
        if let Some((run, request)) = about(&frame)
            && run.namespace != self.namespace
        {
            // Q5
            if let Some(request) = request {
                self.reply(request, Err(of_store(&StoreError::RunNotFound { key: run.clone() })));
            }
            return;
        }
        match frame {
            WorkerFrame::Hello(_) | WorkerFrame::Credit(_) => {} // taken by the connection
            WorkerFrame::Heartbeat(wire::Heartbeat { request }) => {
                if request != 0 {
                    self.reply(request, Ok(Said::Done(wire::Done {})));
                }
            }
            WorkerFrame::Commit(wire::CommitRun { request, commit }) => self.commit(request, commit),
            WorkerFrame::Release(wire::ReleaseRun { request, run, epoch }) => {
                if self.check(&run, epoch).is_err() {
                    return self.reply(request, Ok(Said::Done(wire::Done {}))); // lost already, which is no error
                }
                let released = Link::release(&self.port, run.clone(), epoch);
                self.answer(request, async move {
                    released.await?;
                    Ok((Said::Done(wire::Done {}), Some((run, epoch))))
                });
            }
            WorkerFrame::Pause(wire::PauseRun { request, run, generation, epoch, report }) => {
                if let Err(problem) = self.check(&run, epoch) {
                    return self.reply(request, Err(problem));
                }
                let paused = Link::pause(&self.port, run, generation, epoch, report);
                self.answer(request, async move { paused.await.map(|()| (Said::Done(wire::Done {}), None)) });
            }
            WorkerFrame::ReadLog(wire::ReadLog { request, run, generation, from, limit }) => {
                let limit = (limit as usize).clamp(1, PAGE);
                let records = Link::read_log(&self.port, run, generation, from, limit);
                self.answer(request, async move {
                    let mut records = records.await?;
                    let more = payloads::fit(&mut records, PAGE_BYTES);
                    Ok((Said::Log(wire::Log { records, more }), None))
                });
            }
            WorkerFrame::Report(wire::ReportTask { request, task, claim, report }) => {
                if self.lock().tasks.get(&task) != Some(&claim) {
                    let over = StoreError::from(onward_core::task::StaleReport);
                    return self.reply(request, Err(of_store(&over)));
                }
                let (session, ends) = (self.clone(), !matches!(report, TaskReport::Heartbeat { .. }));
                self.answer(request, async move {
                    let answer = session.port.report_task(task.clone(), claim, report).await;
                    if (ends && answer.is_ok()) || matches!(answer, Err(StoreError::TaskAttemptOver(_))) {
                        session.forget_task(&task, claim);
                    }
                    answer.map(|()| (Said::Done(wire::Done {}), None))
                });
            }
            WorkerFrame::Answer(wire::Answer { question, answer, is_passed_on }) => {
                let asked = self.lock().questions.remove(&question);
                if let Some(question) = asked.filter(|_| !is_passed_on) {
                    drop(question.answer.send(answer)); // who asked may have gone
                }
            }
            WorkerFrame::Emit(wire::Emit { run, name, value }) => {
                Link::emit(&self.port, &run, Emitted { name, value });
            }
            WorkerFrame::Leave(wire::Leave { request }) => {
                let session = self.clone();
                tokio::spawn(async move {
                    session.end().await;
                    session.reply(request, Ok(Said::Done(wire::Done {})));
                    session.finish();
                });
            }
        }
    }

    fn commit(self: &Arc<Session>, request: u64, commit: Commit) {
        let (key, generation, epoch) = (commit.key.clone(), commit.generation, commit.epoch);
        if self.holds(&key, epoch) {
            let committed = self.port.commit(commit);
            return self.answer(request, async move {
                let committed = committed.await?;
                Ok((Said::Committed(committed), committed.status.is_closed().then_some((key, epoch))))
            });
        }
        // Perhaps the answer to the run's last commit was lost. A closed run takes nothing, but knows what it took (V3).
        let session = self.clone();
        self.answer(request, async move {
            let head = session.runtime().store().read_run(key.clone(), Some(generation)).await?;
            if !head.is_some_and(|head| head.status.is_closed()) {
                return Err(fenced(key, epoch));
            }
            Ok((Said::Committed(session.port.commit(commit).await?), None))
        });
    }

    fn holds(&self, run: &RunKey, epoch: Epoch) -> bool {
        self.lock().runs.get(run) == Some(&epoch)
    }

    /// Whether this worker was given the run under this epoch (Q2).
    fn check(&self, run: &RunKey, epoch: Epoch) -> Result<(), onward_wire::Problem> {
        if self.holds(run, epoch) {
            return Ok(());
        }
        Err(of_store(&fenced(run.clone(), epoch)))
    }

    /// Answers when `work` is done; a run that it names is then no longer the worker's.
    fn answer(
        self: &Arc<Session>,
        request: u64,
        work: impl Future<Output = Result<(Said, Option<(RunKey, Epoch)>), StoreError>> + Send + 'static,
    ) {
        let session = self.clone();
        tokio::spawn(async move {
            let said = match work.await {
                Ok((said, gone)) => {
                    if let Some((run, epoch)) = gone {
                        session.forget(&run, epoch);
                        session.port.close_inbox(&run, epoch); // Q6
                    }
                    Ok(said)
                }
                Err(error) => Err(of_store(&error)),
            };
            session.reply(request, said);
        });
    }

    fn reply(&self, request: u64, said: Result<Said, onward_wire::Problem>) {
        let said = said.unwrap_or_else(Said::Problem);
        self.push(ServerFrame::Reply(wire::Reply { request, said }));
    }

    /// The worker is gone for good: what it held goes to others at once. Returns the runs it had not given back.
    async fn end(&self) -> HashMap<RunKey, Epoch> {
        let (runs, tasks) = {
            let mut state = self.lock();
            if std::mem::replace(&mut state.over, true) {
                return HashMap::new();
            }
            state.questions.clear(); // dropped, they are asked elsewhere
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks))
        };
        self.credit_came.notify_waiters();
        for (run, epoch) in &runs {
            drop(self.port.release(run, *epoch).await);
        }
        for (task, claim) in tasks {
            drop(self.port.report_task(task, claim, TaskReport::Released).await);
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
    fn cut_off(&mut self) {
        self.served = None;
        self.outgoing.clear();
        (self.run_credit, self.task_credit) = (0, 0);
        // Dropped, they are asked once more, elsewhere.
        self.questions.clear();
    }
}

/// What the store calls the worker. It knows the workers of all namespaces by their ids, and the same id in two of them is two workers.
pub(super) fn known_as(namespace: &Namespace, worker: &WorkerId) -> Result<WorkerId, NameError> {
    WorkerId::new(format!("{}:{namespace}:{worker}", namespace.as_str().len()))
}

/// The run that a frame is about, and the request that waits for an answer.
fn about(frame: &WorkerFrame) -> Option<(&RunKey, Option<u64>)> {
    match frame {
        WorkerFrame::Commit(frame) => Some((&frame.commit.key, Some(frame.request))),
        WorkerFrame::Release(frame) => Some((&frame.run, Some(frame.request))),
        WorkerFrame::Pause(frame) => Some((&frame.run, Some(frame.request))),
        WorkerFrame::ReadLog(frame) => Some((&frame.run, Some(frame.request))),
        WorkerFrame::Report(frame) => Some((&frame.task.run, Some(frame.request))),
        WorkerFrame::Emit(frame) => Some((&frame.run, None)),
        WorkerFrame::Hello(_)
        | WorkerFrame::Heartbeat(_)
        | WorkerFrame::Credit(_)
        | WorkerFrame::Answer(_)
        | WorkerFrame::Leave(_) => None,
    }
}

fn fenced(key: RunKey, epoch: Epoch) -> StoreError {
    onward_core::run::Refusal::Fenced { key, epoch, current: Epoch(0), n: 0, next: 0 }.into()
}

impl Connection {
    /// Takes one frame of the worker, unless a later connection is served by now (Q3).
    pub fn handle(&self, frame: WorkerFrame) {
        let session = &self.session;
        let mut state = session.lock();
        if state.served != Some(self.number) {
            return;
        }
        session.port.heard();
        if let WorkerFrame::Credit(wire::Credit { runs, tasks }) = frame {
            state.run_credit = state.run_credit.saturating_add(runs);
            state.task_credit = state.task_credit.saturating_add(tasks);
            drop(state);
            session.credit_came.notify_waiters();
            return;
        }
        drop(state);
        session.handle(frame);
    }

    /// What there is for the worker; `None` when the connection is over: a later one is served, or the session has ended.
    pub async fn next(&self) -> Option<Vec<ServerFrame>> {
        loop {
            let came = self.session.outgoing.notified();
            let mut came = std::pin::pin!(came);
            came.as_mut().enable();
            {
                let mut state = self.session.lock();
                if state.served != Some(self.number) {
                    return None; // Q3
                }
                if !state.outgoing.is_empty() {
                    return Some(state.next_message());
                }
                if state.finished {
                    return None;
                }
            }
            came.await;
        }
    }

    /// The worker may not go on: its session ends.
    pub async fn end(&self) {
        self.session.end().await;
        self.session.finish();
    }

    /// Whether the session has ended or a later connection is served.
    pub fn is_over(&self) -> bool {
        let state = self.session.lock();
        state.finished || state.served != Some(self.number)
    }

    /// Returns when the connection is over, also while its worker reads nothing.
    pub async fn over(&self) {
        loop {
            let changed = self.session.served_changed.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            if self.session.lock().served != Some(self.number) {
                return;
            }
            changed.await;
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let mut state = self.session.lock();
        if state.served == Some(self.number) {
            state.cut_off();
            self.session.port.set_present(false);
        }
    }
}

impl State {
    /// As many frames as fit into one message, one at least.
    fn next_message(&mut self) -> Vec<ServerFrame> {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while frames.len() < FRAMES_MAX
            && let Some(frame) = self.outgoing.pop_front_if(|frame| {
                bytes += weigh(frame);
                frames.is_empty() || bytes <= FRAMES_BYTES
            })
        {
            frames.push(frame);
        }
        frames
    }
}

/// The bytes of a frame's payloads.
fn weigh(frame: &ServerFrame) -> usize {
    let of_records = |records: &[Record]| payloads::weigh(records.iter().flat_map(|record| &record.events));
    match frame {
        ServerFrame::Run(run) => run.log.as_ref().map_or(0, |log| of_records(&log.records)),
        ServerFrame::Input(input) => of_records(std::slice::from_ref(&input.record)),
        ServerFrame::Task(offer) => offer.task.input.data().len(),
        ServerFrame::Question(question) => question.input.data().len(),
        ServerFrame::Reply(wire::Reply { said: Said::Log(log), .. }) => of_records(&log.records),
        _ => 0,
    }
}

/// Hands runs over as long as there is credit (Q1).
async fn give_runs(session: Weak<Session>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let credit = session.credit(|state| state.run_credit).await;
        if credit == 0 {
            continue;
        }
        let next = session.port.next_runs((credit as usize).min(CLAIM_MAX));
        let Ok(claimed) = tokio::time::timeout(Duration::from_secs(1), next).await else { continue };
        for run in claimed {
            session.give_run(run).await;
        }
    }
}

async fn give_tasks(session: Weak<Session>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let credit = session.credit(|state| state.task_credit).await;
        if credit == 0 {
            continue;
        }
        let next = session.port.next_tasks((credit as usize).min(CLAIM_MAX));
        let Ok(tasks) = tokio::time::timeout(Duration::from_secs(1), next).await else { continue };
        for task in tasks {
            session.give_task(task).await;
        }
    }
}

async fn give_questions(session: Weak<Session>) {
    while let Some(session) = session.upgrade().filter(|session| !session.is_over()) {
        let Ok(questions) = tokio::time::timeout(Duration::from_secs(1), session.port.next_questions()).await else { continue };
        for question in questions {
            drop(session.ask(question));
        }
    }
}

/// Ends the session of a worker that was silent for its lease (Q4).
async fn watch(session: Weak<Session>, port: WorkerPort) {
    port.fell_silent().await;
    let Some(session) = session.upgrade() else { return };
    for (run, epoch) in session.end().await {
        session.push(ServerFrame::RunLost(wire::RunLost { run, epoch })); // perhaps it can hear us
    }
    session.finish();
}

impl Session {
    /// Waits for credit, a second at most.
    async fn credit(&self, of: impl Fn(&State) -> u32) -> u32 {
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

    /// The run is the worker's and on its way to it in one step, so that no hello comes in between. Nobody there: it goes back.
    async fn give_run(self: &Arc<Session>, claimed: ClaimedRun) {
        let ClaimedRun { head, records } = claimed;
        let (run, epoch) = (head.key.clone(), head.epoch);
        let small = |records: &Vec<Record>| {
            records.len() <= LOG_MAX && payloads::weigh(records.iter().flat_map(|record| &record.events)) <= LOG_BYTES_MAX
        };
        let log = records.filter(small).map(|records| wire::Log { records, more: false });
        let given = self.give(|state| {
            state.run_credit = state.run_credit.saturating_sub(1);
            state.runs.insert(run.clone(), epoch);
            ServerFrame::Run(wire::Run { head, log })
        });
        if !given {
            drop(self.port.release(&run, epoch).await);
            return;
        }
        // First the run, then what came for it since.
        let inbox = RemoteInbox { session: Arc::downgrade(self), run: run.clone(), epoch };
        self.port.open_inbox(&run, epoch, Arc::new(inbox));
    }

    async fn give_task(self: &Arc<Session>, task: Task) {
        let (id, claim) = (task.id.clone(), task.claim);
        let mut before = None;
        let given = self.give(|state| {
            state.task_credit = state.task_credit.saturating_sub(1);
            before = state.tasks.insert(id.clone(), claim);
            ServerFrame::Task(wire::TaskOffer { task })
        });
        if let Some(before) = before {
            // Its attempt timed out, and this worker got the next one too.
            self.push(ServerFrame::TaskOver(wire::TaskOver { task: id.clone(), claim: before }));
        }
        if !given {
            drop(self.port.report_task(id, claim, TaskReport::Released).await);
            return;
        }
        let session = self.clone();
        tokio::spawn(async move {
            session.port.task_over(&id, claim).await;
            if session.forget_task(&id, claim) {
                session.push(ServerFrame::TaskOver(wire::TaskOver { task: id, claim }));
            }
        });
    }

    /// Notes what is given and puts it on its way, unless nobody is there to take it.
    fn give(&self, note: impl FnOnce(&mut State) -> ServerFrame) -> bool {
        let mut state = self.lock();
        if state.served.is_none() || state.over {
            return false;
        }
        let frame = note(&mut state);
        state.outgoing.push_back(frame);
        drop(state);
        self.outgoing.notify_one();
        true
    }
}
