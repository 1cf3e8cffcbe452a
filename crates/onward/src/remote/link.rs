//! A worker's link over a network.
//!
//! Owns what must outlive a connection: requests without an answer, the runs the worker holds, and what came for runs whose inbox is
//! not open yet. One task keeps a stream open and comes back when it is lost; everything else only looks at this state.
//!
//! Invariants:
//! - Y1 (V3): a request is answered by the server, or sent again on the next connection; it is never dropped.
//! - Y2: `hello` names every run and task the worker holds, so that the server can tell which of them are lost.
//! - Y3 (V2): what the worker asked for and did not get is asked for again after a lost connection, and no more.

mod stream;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_core::event::RunPaused;
use onward_core::run::{Commit, Committed};
use onward_core::task::{Task, TaskId, TaskReport};
use onward_core::{Epoch, Index, Record, RunKey};
use onward_runtime::{Emitted, Inbox, Link, LinkFuture, Question, RuntimeError, WorkerProfile};
use onward_store::{ClaimedRun, StoreError, StoreFuture};
use onward_wire::worker as wire;
use onward_wire::worker::{Said, ServerFrame, WorkerFrame};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use super::Channel;
use super::problem::from_problem;

/// How long the first connection may take before whoever starts the worker is told; it goes on being tried.
const WELCOME_MAX: Duration = Duration::from_secs(10);

/// How long a worker that leaves waits for the server to know it.
const LEAVE_MAX: Duration = Duration::from_secs(2);

pub(crate) struct RemoteLink {
    shared: Arc<Shared>,
    /// None for a process that offers nothing: it only asks, and needs no stream.
    connection: Option<JoinHandle<()>>,
}

struct Shared {
    profile: WorkerProfile,
    kinds: Vec<wire::KindOffer>,
    next_request: AtomicU64,
    state: Mutex<State>,
    /// There is something to send.
    outgoing: Notify,
    runs_came: Notify,
    tasks_came: Notify,
    questions_came: Notify,
    greeted: Notify,
}

#[derive(Default)]
struct State {
    /// A stream is open and has been welcomed.
    connected: bool,
    outgoing: VecDeque<WorkerFrame>,
    /// By number, so that they are sent again in the order they were made (Y1).
    requests: BTreeMap<u64, Request>,
    held: HashMap<RunKey, Held>,
    held_tasks: BTreeMap<(TaskId, u32), Arc<Notify>>,
    runs: VecDeque<ClaimedRun>,
    tasks: VecDeque<Task>,
    questions: VecDeque<Question>,
    /// What was asked for and has not come (Y3).
    runs_asked: u32,
    tasks_asked: u32,
    has_left: bool,
    greeting: Greeting,
}

/// What became of the first connection.
#[derive(Default)]
enum Greeting {
    #[default]
    Awaited,
    Welcomed,
    Refused(RuntimeError),
}

struct Request {
    frame: WorkerFrame,
    answer: oneshot::Sender<Said>,
}

/// A question under way.
struct Asked(oneshot::Receiver<Said>);

impl Asked {
    async fn said(self) -> Result<Said, StoreError> {
        match self.0.await {
            Ok(Said::Problem(problem)) => Err(from_problem(problem)),
            Ok(said) => Ok(said),
            Err(_) => Err(StoreError::Unavailable { why: "the connection to the server was closed".to_owned() }),
        }
    }
}

struct Held {
    generation: u32,
    epoch: Epoch,
    /// The first event the worker has not been sent.
    next: Index,
    to: To,
}

enum To {
    Kept(Vec<Record>),
    Inbox(Arc<dyn Inbox>),
}

impl RemoteLink {
    pub fn connect(channel: Channel, profile: WorkerProfile, kinds: Vec<wire::KindOffer>) -> RemoteLink {
        let shared = Arc::new(Shared {
            profile,
            kinds,
            next_request: AtomicU64::new(1),
            state: Mutex::default(),
            outgoing: Notify::new(),
            runs_came: Notify::new(),
            tasks_came: Notify::new(),
            questions_came: Notify::new(),
            greeted: Notify::new(),
        });
        let works = !shared.kinds.is_empty() || !shared.profile.task_kinds.is_empty();
        let connection = works.then(|| tokio::spawn(stream::keep_open(channel, shared.clone())));
        RemoteLink { shared, connection }
    }
}

impl RemoteLink {
    /// Waits until the server has welcomed the worker for the first time, or says why it does not.
    pub async fn welcomed(&self) -> Result<(), RuntimeError> {
        if self.connection.is_none() {
            return Ok(());
        }
        let came = self.shared.greeted.notified();
        let mut came = std::pin::pin!(came);
        came.as_mut().enable();
        let answer = |greeting: &mut Greeting| match std::mem::replace(greeting, Greeting::Welcomed) {
            Greeting::Awaited => Err(StoreError::Unavailable { why: "it does not answer".to_owned() }.into()),
            Greeting::Welcomed => Ok(()),
            Greeting::Refused(error) => Err(error),
        };
        if matches!(self.shared.lock().greeting, Greeting::Awaited) {
            drop(tokio::time::timeout(WELCOME_MAX, came).await);
        }
        answer(&mut self.shared.lock().greeting)
    }
}

impl Drop for RemoteLink {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.abort();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, frame: WorkerFrame) {
        self.lock().outgoing.push_back(frame);
        self.outgoing.notify_one();
    }

    /// Sends a frame that is answered, however often the connection is lost meanwhile.
    fn ask(&self, frame: impl FnOnce(u64) -> WorkerFrame) -> Asked {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let frame = frame(request);
        let mut state = self.lock();
        if state.connected {
            state.outgoing.push_back(frame.clone());
        }
        state.requests.insert(request, Request { frame, answer });
        drop(state);
        self.outgoing.notify_one();
        Asked(answered)
    }

    /// Everything a new connection begins with: who we are, what we hold, what we still want, what was never answered.
    fn begin(&self) -> Vec<WorkerFrame> {
        let mut state = self.lock();
        let held = |(run, held): (&RunKey, &Held)| wire::HeldRun {
            run: run.clone(),
            generation: held.generation,
            epoch: held.epoch,
            next_index: held.next,
        };
        let hello = wire::Hello {
            protocol: onward_wire::PROTOCOL,
            worker: self.profile.id.clone(),
            kinds: self.kinds.clone(),
            task_kinds: self.profile.task_kinds.to_vec(),
            queues: self.profile.queues.iter().map(|queue| queue.as_ref().map(ToString::to_string).unwrap_or_default()).collect(),
            runs_max: u32::try_from(self.profile.runs_max).unwrap_or(u32::MAX),
            runs: state.held.iter().map(held).collect(),
            tasks: state.held_tasks.keys().map(|(task, claim)| wire::HeldTask { task: task.clone(), claim: *claim }).collect(),
            sdk: concat!("onward-rust ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        // Answers and the like of the connection before are of no use to this one; requests are sent again, all of them.
        state.outgoing.clear();
        let mut frames = vec![WorkerFrame::Hello(hello)];
        let (runs, tasks) = (state.runs_asked, state.tasks_asked);
        frames.push(WorkerFrame::Credit(wire::Credit { runs, tasks }));
        frames.extend(state.requests.values().map(|request| request.frame.clone()));
        state.connected = true;
        frames
    }

    fn end(&self) {
        self.lock().connected = false;
    }

    fn take_outgoing(&self, max: usize) -> Vec<WorkerFrame> {
        let mut state = self.lock();
        let count = state.outgoing.len().min(max);
        state.outgoing.drain(..count).collect()
    }

    fn take_in(self: &Arc<Shared>, frame: ServerFrame) {
        match frame {
            ServerFrame::Welcome(_) => self.greet(Greeting::Welcomed),
            ServerFrame::Goodbye(_) => {}
            ServerFrame::Run(run) => self.take_run(run),
            ServerFrame::Input(input) => self.take_input(input),
            ServerFrame::RunLost(lost) => self.lose(&lost.run, lost.epoch),
            ServerFrame::Task(offer) => self.take_task(offer.task),
            ServerFrame::TaskOver(over) => self.end_task(over.task, over.claim),
            ServerFrame::Question(question) => self.take_question(question),
            ServerFrame::Reply(reply) => {
                let request = self.lock().requests.remove(&reply.request);
                if let Some(request) = request {
                    drop(request.answer.send(reply.said)); // who asked may have gone
                }
            }
        }
    }

    fn greet(&self, greeting: Greeting) {
        self.lock().greeting = greeting;
        self.greeted.notify_waiters();
    }

    fn take_run(&self, run: wire::Run) {
        let wire::Run { head, log } = run;
        let records = log.map(|log| log.records);
        let next = records.as_ref().and_then(|records| records.last()).map_or(Index(1), Record::next_index);
        let held = Held { generation: head.generation, epoch: head.epoch, next, to: To::Kept(Vec::new()) };
        let mut state = self.lock();
        let before = state.held.insert(head.key.clone(), held);
        state.runs_asked = state.runs_asked.saturating_sub(1);
        state.runs.push_back(ClaimedRun { head, records });
        drop(state);
        if let Some(Held { to: To::Inbox(inbox), .. }) = before {
            inbox.lost(); // we had lost it, and have it again
        }
        self.runs_came.notify_one();
    }

    fn take_input(&self, input: wire::Input) {
        let wire::Input { run, epoch, record } = input;
        let inbox = {
            let mut state = self.lock();
            let Some(held) = state.held.get_mut(&run).filter(|held| held.epoch == epoch && record.index >= held.next) else {
                return;
            };
            held.next = record.next_index();
            match &mut held.to {
                To::Kept(records) => {
                    records.push(record);
                    return;
                }
                To::Inbox(inbox) => inbox.clone(),
            }
        };
        inbox.push(record);
    }

    fn lose(&self, run: &RunKey, epoch: Epoch) {
        let mut state = self.lock();
        if state.held.get(run).is_some_and(|held| held.epoch <= epoch) {
            let held = state.held.remove(run);
            state.runs.retain(|claimed| claimed.head.key != *run);
            drop(state);
            if let Some(Held { to: To::Inbox(inbox), .. }) = held {
                inbox.lost();
            }
        }
    }

    fn take_task(&self, task: Task) {
        let mut state = self.lock();
        state.held_tasks.insert((task.id.clone(), task.claim), Arc::default());
        state.tasks_asked = state.tasks_asked.saturating_sub(1);
        state.tasks.push_back(task);
        drop(state);
        self.tasks_came.notify_one();
    }

    fn end_task(&self, task: TaskId, claim: u32) {
        let mut state = self.lock();
        state.tasks.retain(|waiting| waiting.id != task || waiting.claim != claim);
        if let Some(over) = state.held_tasks.remove(&(task, claim)) {
            over.notify_waiters();
        }
    }

    fn take_question(self: &Arc<Shared>, asked: wire::Question) {
        let wire::Question { question, run, name, input } = asked;
        let (answer, answered) = oneshot::channel();
        let shared = self.clone();
        tokio::spawn(async move {
            let answered = answered.await;
            let is_passed_on = answered.is_err();
            shared.send(WorkerFrame::Answer(wire::Answer { question, answer: answered.ok().flatten(), is_passed_on }));
        });
        let asked = Question { run, name, input, answer };
        let inbox = match self.lock().held.get(&asked.run) {
            Some(Held { to: To::Inbox(inbox), .. }) => Some(inbox.clone()),
            _ => None,
        };
        let left = match inbox {
            Some(inbox) => inbox.ask(asked).err(),
            None => Some(asked),
        };
        if let Some(question) = left {
            self.lock().questions.push_back(question);
            self.questions_came.notify_one();
        }
    }

    /// Waits until `take` finds something.
    async fn next<T>(&self, came: &Notify, mut take: impl FnMut(&mut State) -> Vec<T>) -> Vec<T> {
        loop {
            let taken = take(&mut self.lock());
            if !taken.is_empty() {
                return taken;
            }
            came.notified().await;
        }
    }

    /// Asks for so much more that `limit` are on their way (Y3).
    fn want(&self, runs: usize, tasks: usize) {
        let wanted = |asked: &mut u32, limit: usize| {
            let more = u32::try_from(limit).unwrap_or(u32::MAX).saturating_sub(*asked);
            *asked += more;
            more
        };
        let mut state = self.lock();
        let (runs, tasks) = (wanted(&mut state.runs_asked, runs), wanted(&mut state.tasks_asked, tasks));
        if (runs, tasks) != (0, 0) && state.connected {
            state.outgoing.push_back(WorkerFrame::Credit(wire::Credit { runs, tasks }));
            self.outgoing.notify_one();
        }
    }
}

fn take<T>(from: &mut VecDeque<T>, limit: usize) -> Vec<T> {
    let count = from.len().min(limit.max(1));
    from.drain(..count).collect()
}

impl Link for RemoteLink {
    fn next_runs(&self, limit: usize) -> LinkFuture<'_, Vec<ClaimedRun>> {
        Box::pin(async move {
            self.shared.want(limit, 0);
            self.shared.next(&self.shared.runs_came, |state| take(&mut state.runs, limit)).await
        })
    }

    fn next_tasks(&self, limit: usize) -> LinkFuture<'_, Vec<Task>> {
        Box::pin(async move {
            self.shared.want(0, limit);
            self.shared.next(&self.shared.tasks_came, |state| take(&mut state.tasks, limit)).await
        })
    }

    fn next_questions(&self) -> LinkFuture<'_, Vec<Question>> {
        Box::pin(self.shared.next(&self.shared.questions_came, |state| state.questions.drain(..).collect()))
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

    fn close_inbox(&self, key: &RunKey, epoch: Epoch) {
        let mut state = self.shared.lock();
        if state.held.get(key).is_some_and(|held| held.epoch == epoch) {
            let held = state.held.remove(key);
            drop(state);
            drop(held); // outside of the lock: it wakes somebody
        }
    }

    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'static, Vec<Record>> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let asked = self.shared.ask(|request| WorkerFrame::ReadLog(wire::ReadLog { request, run, generation, from, limit }));
        Box::pin(async move {
            match asked.said().await? {
                Said::Log(log) => Ok(log.records),
                said => Err(not_an_answer(&said)),
            }
        })
    }

    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed> {
        let asked = self.shared.ask(|request| WorkerFrame::Commit(wire::CommitRun { request, commit }));
        Box::pin(async move {
            match asked.said().await? {
                Said::Committed(committed) => Ok(committed),
                said => Err(not_an_answer(&said)),
            }
        })
    }

    fn release(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'static, ()> {
        self.close_inbox(&run, epoch);
        let asked = self.shared.ask(|request| WorkerFrame::Release(wire::ReleaseRun { request, run, epoch }));
        Box::pin(async move { asked.said().await.map(drop) })
    }

    fn pause(&self, run: RunKey, generation: u32, epoch: Epoch, report: RunPaused) -> StoreFuture<'static, ()> {
        let asked = self.shared.ask(|request| WorkerFrame::Pause(wire::PauseRun { request, run, generation, epoch, report }));
        Box::pin(async move { asked.said().await.map(drop) })
    }

    fn report_task(&self, task: TaskId, claim: u32, report: TaskReport) -> StoreFuture<'_, ()> {
        let ends = !matches!(report, TaskReport::Heartbeat { .. });
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

    fn task_over(&self, id: TaskId, claim: u32) -> LinkFuture<'_, ()> {
        let over = self.shared.lock().held_tasks.get(&(id, claim)).cloned();
        Box::pin(async move {
            if let Some(over) = over {
                over.notified().await;
            }
        })
    }

    fn emit(&self, key: &RunKey, emitted: Emitted) {
        let Emitted { name, value } = emitted;
        self.shared.send(WorkerFrame::Emit(wire::Emit { run: key.clone(), name, value }));
    }

    fn leave(&self) -> LinkFuture<'_, ()> {
        Box::pin(async move {
            if self.connection.is_none() {
                return;
            }
            // What was on its way is given back; attempts that did not begin do not count.
            let (runs, tasks) = {
                let mut state = self.shared.lock();
                state.has_left = true;
                (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks))
            };
            for run in runs {
                drop(self.release(run.head.key, run.head.epoch).await);
            }
            for task in tasks {
                drop(self.report_task(task.id, task.claim, TaskReport::Released).await);
            }
            let left = self.shared.ask(|request| WorkerFrame::Leave(wire::Leave { request }));
            // A server that does not hear of it notices by our silence.
            drop(tokio::time::timeout(LEAVE_MAX, left.said()).await);
        })
    }
}

fn not_an_answer(said: &Said) -> StoreError {
    StoreError::Unavailable { why: format!("the server answered something else: {said:?}") }
}
