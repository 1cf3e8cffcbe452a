//! One remote worker.
//!
//! Invariants:
//! - Q1 (V2): no more runs and tasks are sent than the worker has asked for.
//! - Q2 (S4): a worker commits, releases and pauses only runs that this session has given to it, and reports only such tasks.
//! - Q3: of two connections of one worker the later one is served; the earlier one ends.
//! - Q4: a worker that was silent for its lease has lost everything, whether it is connected or not (F13).
//! - Q5 (S6): a worker belongs to the namespace of its connection; for what it says about runs of others, there is no such run.
//! - Q6: when a session ends, everything it was ever given is with others or free, also what was on its way to it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Name, NameError, Namespace, RunKey, WorkerId};
use onward_runtime::{Emitted, Link, Question, Runtime, WorkerPort, WorkerProfile};
use onward_store::{ClaimedRun, StoreError};
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

/// How many frames travel in one message.
const FRAMES_MAX: usize = 512;

/// How many records are read at a time.
const PAGE: usize = 1_000;

/// A log of more records than this is not sent with its run; the worker reads it in pages.
const LOG_MAX: usize = 1_000;

pub(crate) struct Session {
    port: WorkerPort,
    namespace: Namespace,
    state: Mutex<State>,
    /// There is something to send, or the connection is over.
    outgoing: Notify,
    credit_came: Notify,
    ended: Notify,
    /// Counts connections; only the latest is served (Q3).
    connections: AtomicU64,
    next_question: AtomicU64,
    over: AtomicBool,
    watching: OnceLock<AbortHandle>,
}

#[derive(Default)]
struct State {
    outgoing: VecDeque<ServerFrame>,
    runs: HashMap<RunKey, Epoch>,
    tasks: BTreeMap<TaskId, u32>,
    run_credit: u32,
    task_credit: u32,
    questions: HashMap<u64, Question>,
}

/// One connection of a session. Dropped, the session waits for the next one.
pub(crate) struct Connection {
    session: Arc<Session>,
    number: u64,
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
            namespace,
            state: Mutex::default(),
            outgoing: Notify::new(),
            credit_came: Notify::new(),
            ended: Notify::new(),
            connections: AtomicU64::new(0),
            next_question: AtomicU64::new(1),
            over: AtomicBool::new(false),
            watching: OnceLock::new(),
        });
        let weak = Arc::downgrade(&session);
        tokio::spawn(while_it_lasts(session.clone(), give_runs(session.clone())));
        tokio::spawn(while_it_lasts(session.clone(), give_tasks(session.clone())));
        tokio::spawn(while_it_lasts(session.clone(), give_questions(session.clone())));
        let watching = tokio::spawn(watch(weak, session.port.clone()));
        drop(session.watching.set(watching.abort_handle()));
        Ok(session)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn runtime(&self) -> &Runtime {
        self.port.runtime()
    }

    /// A worker has come, or come back: tells it what it has lost, and brings what it holds up to date.
    pub fn connect(self: &Arc<Session>, hello: &wire::Hello) -> Connection {
        self.port.heard();
        let number = self.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let mut state = self.lock();
        // What waited for an earlier connection may have been sent or not: the worker says where it stands.
        state.outgoing.clear();
        (state.run_credit, state.task_credit) = (0, 0);
        let lease_ms = u64::try_from(self.runtime().options().lease.as_millis()).unwrap_or(u64::MAX);
        let (protocol, server) = (onward_wire::PROTOCOL, concat!("onward ", env!("CARGO_PKG_VERSION")).to_owned());
        state.outgoing.push_back(ServerFrame::Welcome(wire::Welcome { protocol, lease_ms, server }));
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
        Connection { session: self.clone(), number }
    }

    /// Sends the inputs that the worker has not seen.
    async fn catch_up(self: &Arc<Session>, held: wire::HeldRun) {
        let wire::HeldRun { run, generation, epoch, next_index } = held;
        let mut from = next_index;
        loop {
            let store = self.runtime().store();
            let Ok(records) = store.read_log(run.clone(), Some(generation), from, PAGE).await else { return };
            let full = records.len() == PAGE;
            let Some(last) = records.last() else { return };
            from = last.next_index();
            for record in records.into_iter().filter(|record| record.commit.is_none() && record.index >= next_index) {
                self.push(ServerFrame::Input(wire::Input { run: run.clone(), epoch, record }));
            }
            if !full {
                return;
            }
        }
    }

    pub fn push(&self, frame: ServerFrame) {
        let mut state = self.lock();
        state.outgoing.push_back(frame);
        let too_many = state.outgoing.len() > QUEUE_MAX;
        if too_many {
            state.outgoing.clear();
        }
        drop(state);
        if too_many {
            self.cut();
        }
        self.outgoing.notify_one();
    }

    /// Ends the connection, if there is one: the worker comes back and begins with what the log says.
    fn cut(&self) {
        self.connections.fetch_add(1, Ordering::SeqCst);
        self.outgoing.notify_waiters();
    }

    pub fn forget(&self, run: &RunKey, epoch: Epoch) {
        let mut state = self.lock();
        if state.runs.get(run) == Some(&epoch) {
            state.runs.remove(run);
        }
    }

    /// Returns whether the worker had this claim. It may have a later one of the same task by now, which stays.
    fn forget_task(&self, task: &TaskId, claim: u32) -> bool {
        let mut state = self.lock();
        let had = state.tasks.get(task) == Some(&claim);
        if had {
            state.tasks.remove(task);
        }
        had
    }

    /// Sends a question to the worker; gives it back when nobody is connected.
    pub fn ask(&self, question: Question) -> Result<(), Question> {
        let number = self.next_question.fetch_add(1, Ordering::Relaxed);
        let Question { run, name, input, .. } = &question;
        let frame = wire::Question { question: number, run: run.clone(), name: name.clone(), input: input.clone() };
        let mut state = self.lock();
        // Who no longer waits for an answer need not be remembered.
        state.questions.retain(|_, question| !question.answer.is_closed());
        state.questions.insert(number, question);
        drop(state);
        self.push(ServerFrame::Question(frame));
        Ok(())
    }

    /// Does what one frame asks for. Answers come later, in any order.
    pub fn handle(self: &Arc<Session>, frame: WorkerFrame) {
        self.port.heard();
        if let Some((run, request)) = about(&frame).filter(|(run, _)| run.namespace != self.namespace) {
            let missing = StoreError::RunNotFound { key: run.clone() };
            return request.into_iter().for_each(|request| self.reply(request, Err(of_store(&missing)))); // Q5
        }
        match frame {
            WorkerFrame::Hello(_) | WorkerFrame::Heartbeat(_) => {}
            WorkerFrame::Credit(wire::Credit { runs, tasks }) => {
                let mut state = self.lock();
                state.run_credit = state.run_credit.saturating_add(runs);
                state.task_credit = state.task_credit.saturating_add(tasks);
                drop(state);
                self.credit_came.notify_waiters();
            }
            WorkerFrame::Commit(wire::CommitRun { request, commit }) => {
                if let Err(problem) = self.check(&commit.key, commit.epoch) {
                    return self.reply(request, Err(problem));
                }
                let (key, epoch) = (commit.key.clone(), commit.epoch);
                let committed = self.port.commit(commit);
                self.answer(request, async move {
                    let committed = committed.await?;
                    Ok((Said::Committed(committed), committed.status.is_closed().then_some((key, epoch))))
                });
            }
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
                self.answer(request, async move { records.await.map(|records| (Said::Log(wire::Log { records }), None)) });
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
            WorkerFrame::Emit(wire::Emit { run, name, value }) => Link::emit(&self.port, &run, Emitted { name, value }),
            WorkerFrame::Leave(wire::Leave { request }) => {
                let session = self.clone();
                self.answer(request, async move {
                    session.end().await;
                    Ok((Said::Done(wire::Done {}), None))
                });
            }
        }
    }

    /// Whether this worker was given the run under this epoch (Q2).
    fn check(&self, run: &RunKey, epoch: Epoch) -> Result<(), onward_wire::Problem> {
        if self.lock().runs.get(run) == Some(&epoch) {
            return Ok(());
        }
        let refusal = onward_core::run::Refusal::Fenced { key: run.clone(), epoch, current: Epoch(0), n: 0, next: 0 };
        Err(of_store(&refusal.into()))
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

    /// The worker is gone for good: what it held goes to others at once.
    pub async fn end(&self) {
        if !self.stop() {
            return;
        }
        // First of all, so that what is released below is not offered to this very worker again (Q6).
        self.port.leave().await;
        let (runs, tasks) = {
            let mut state = self.lock();
            state.questions.clear(); // dropped, they are asked elsewhere
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks))
        };
        for (run, epoch) in runs {
            drop(self.port.release(&run, epoch).await);
        }
        for (task, claim) in tasks {
            drop(self.port.report_task(task, claim, TaskReport::Released).await);
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(watching) = self.watching.get() {
            watching.abort(); // it holds the membership
        }
    }
}

impl Connection {
    /// What there is for the worker; `None` when the connection is over: a later one is served, or the session has ended.
    pub async fn next(&self) -> Option<Vec<ServerFrame>> {
        loop {
            let came = self.session.outgoing.notified();
            let mut came = std::pin::pin!(came);
            came.as_mut().enable();
            if self.session.connections.load(Ordering::SeqCst) != self.number {
                return None; // Q3
            }
            let frames: Vec<ServerFrame> = {
                let mut state = self.session.lock();
                let count = state.outgoing.len().min(FRAMES_MAX);
                state.outgoing.drain(..count).collect()
            };
            if !frames.is_empty() {
                return Some(frames);
            }
            came.await;
        }
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

/// Does `work` until the session is over. An idle session costs no more than the runtime's own fallback: nothing here wakes by itself.
async fn while_it_lasts(session: Arc<Session>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = session.ended() => {}
        () = work => {}
    }
}

/// Hands runs over as long as there is credit (Q1).
async fn give_runs(session: Arc<Session>) {
    loop {
        let credit = session.credit(|state| state.run_credit).await;
        for run in session.port.next_runs((credit as usize).min(CLAIM_MAX)).await {
            session.give_run(run);
        }
    }
}

async fn give_tasks(session: Arc<Session>) {
    loop {
        let credit = session.credit(|state| state.task_credit).await;
        for task in session.port.next_tasks((credit as usize).min(CLAIM_MAX)).await {
            session.give_task(task);
        }
    }
}

async fn give_questions(session: Arc<Session>) {
    loop {
        for question in session.port.next_questions().await {
            drop(session.ask(question));
        }
    }
}

/// Ends the session of a worker that was silent for its lease (Q4).
async fn watch(session: Weak<Session>, port: WorkerPort) {
    port.fell_silent().await;
    if let Some(session) = session.upgrade() {
        session.end().await;
        session.cut();
    }
}

impl Session {
    /// Waits for credit.
    async fn credit(&self, of: impl Fn(&State) -> u32) -> u32 {
        loop {
            let mut came = std::pin::pin!(self.credit_came.notified());
            came.as_mut().enable();
            let credit = of(&self.lock());
            if credit > 0 {
                return credit;
            }
            came.await;
        }
    }

    /// Returns when the session is over.
    async fn ended(&self) {
        let mut ended = std::pin::pin!(self.ended.notified());
        ended.as_mut().enable();
        if !self.is_over() {
            ended.await;
        }
    }

    /// Stops what the session does by itself.
    pub fn stop(&self) -> bool {
        let first = !self.over.swap(true, Ordering::SeqCst);
        self.ended.notify_waiters();
        first
    }

    fn give_run(self: &Arc<Session>, claimed: ClaimedRun) {
        let ClaimedRun { head, records } = claimed;
        let (run, epoch) = (head.key.clone(), head.epoch);
        let log = records.filter(|records| records.len() <= LOG_MAX).map(|records| wire::Log { records });
        let mut state = self.lock();
        if self.is_over() {
            // Q6: whoever ends the session has seen what it holds, or does when we have let go of the lock.
            let released = Link::release(&self.port, run, epoch);
            tokio::spawn(async move { drop(released.await) });
            return;
        }
        state.run_credit = state.run_credit.saturating_sub(1);
        state.runs.insert(run.clone(), epoch);
        drop(state);
        // First the run, then what came for it since.
        self.push(ServerFrame::Run(wire::Run { head, log }));
        let inbox = RemoteInbox { session: Arc::downgrade(self), run: run.clone(), epoch };
        self.port.open_inbox(&run, epoch, Arc::new(inbox));
    }

    fn give_task(self: &Arc<Session>, task: Task) {
        let (id, claim) = (task.id.clone(), task.claim);
        let session = self.clone();
        let mut state = self.lock();
        if self.is_over() {
            tokio::spawn(async move { drop(session.port.report_task(id, claim, TaskReport::Released).await) }); // Q6
            return;
        }
        state.task_credit = state.task_credit.saturating_sub(1);
        let before = state.tasks.insert(id.clone(), claim);
        drop(state);
        if let Some(before) = before {
            // Its attempt timed out, and this worker got the next one too.
            self.push(ServerFrame::TaskOver(wire::TaskOver { task: id.clone(), claim: before }));
        }
        self.push(ServerFrame::Task(wire::TaskOffer { task }));
        let watched = self.clone();
        tokio::spawn(while_it_lasts(watched, async move {
            session.port.task_over(&id, claim).await;
            if session.forget_task(&id, claim) {
                session.push(ServerFrame::TaskOver(wire::TaskOver { task: id, claim }));
            }
        }));
    }
}
