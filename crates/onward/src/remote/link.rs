//! A worker's link over a network.
//!
//! Owns what must outlive a connection: requests without an answer, the runs the worker holds, and what came for runs whose inbox is
//! not open yet. One task keeps a stream open and comes back when it is lost; everything else only looks at this state.
//!
//! Invariants:
//! - Y1 (V3): a request is answered by the server, or sent again on the next connection; it is never dropped.
//! - Y2: `hello` names every run and task the worker holds, so that the server can tell which of them are lost.
//! - Y3 (V2): what the worker asked for and did not get is asked for again after a lost connection, and no more.
//! - Y4 (V6): a worker that cannot know that the server heard it for two thirds of its lease has lost everything it holds, and stops.
//! - Y5: what is not awaited by anybody (emitted values, answers to questions) goes to the connection it belongs to or nowhere; it
//!   never piles up.

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
use onward_store::{ClaimedRun, StoreError, StoreFuture, payloads};
use onward_wire::worker as wire;
use onward_wire::worker::{Said, ServerFrame, WorkerFrame};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::Channel;
use super::problem::from_problem;
use stream::{FRAMES_BYTES, FRAMES_MAX};

/// How long the first connection may take before whoever starts the worker is told; it goes on being tried.
const WELCOME_MAX: Duration = Duration::from_secs(10);

/// How long a worker that leaves waits for the server to know it.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// How many frames may wait for the network before emitted values are dropped.
const OUTGOING_MAX: usize = 10_000;

/// The largest commit: what a server takes in one message, and room around it.
const FRAME_BYTES_MAX: usize = 60 * 1024 * 1024;

pub(crate) struct RemoteLink {
    shared: Arc<Shared>,
    /// None for a process that offers nothing: it only asks, and needs no stream.
    connection: Option<JoinHandle<()>>,
}

struct Shared {
    profile: WorkerProfile,
    kinds: Vec<wire::KindOffer>,
    task_schemas: Vec<wire::TaskSchemas>,
    next_request: AtomicU64,
    state: Mutex<State>,
    /// How long we may be silent; unknown before the first welcome.
    lease: watch::Sender<Option<Duration>>,
    /// There is something to send.
    outgoing: Notify,
    runs_came: Notify,
    tasks_came: Notify,
    questions_came: Notify,
    greeted: Notify,
}

#[derive(Default)]
struct State {
    /// Counts connections, so that a late hello can be told from the current one.
    connection: u64,
    /// The server has welcomed the current connection; only then is anything sent (V1).
    welcomed: bool,
    /// The server has heard us at this time or later (Y4).
    heard_at: Option<Instant>,
    /// The sign of life that the server has not answered yet, and when it was sent.
    beat: Option<(u64, Instant)>,
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
    /// Nothing more is asked for.
    is_leaving: bool,
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
    made_at: Instant,
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
    pub fn connect(
        channel: Channel,
        profile: WorkerProfile,
        kinds: Vec<wire::KindOffer>,
        task_schemas: Vec<wire::TaskSchemas>,
    ) -> RemoteLink {
        let shared = Arc::new(Shared {
            profile,
            kinds,
            task_schemas,
            next_request: AtomicU64::new(1),
            state: Mutex::default(),
            lease: watch::Sender::new(None),
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

    /// Sends what nobody waits for, if the connection is still there that it belongs to (Y5).
    fn send_on(&self, connection: u64, frame: WorkerFrame) {
        let mut state = self.lock();
        if state.welcomed && state.connection == connection {
            state.outgoing.push_back(frame);
            drop(state);
            self.outgoing.notify_one();
        }
    }

    /// Sends a frame that is answered, however often the connection is lost meanwhile.
    fn ask(&self, frame: impl FnOnce(u64) -> WorkerFrame) -> Asked {
        let request = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let frame = frame(request);
        let mut state = self.lock();
        if state.welcomed {
            state.outgoing.push_back(frame.clone());
        }
        state.requests.insert(request, Request { frame, made_at: Instant::now(), answer });
        drop(state);
        self.outgoing.notify_one();
        Asked(answered)
    }

    /// What a new connection begins with: who we are and what we hold. Nothing else goes out before the welcome (V1).
    fn begin(&self) -> wire::Hello {
        let mut state = self.lock();
        state.connection += 1;
        // Answers and the like of the connection before are of no use to this one; requests are sent again, all of them.
        state.outgoing.clear();
        // The hello is a sign of life that the welcome answers.
        state.beat = Some((0, Instant::now()));
        let held = |(run, held): (&RunKey, &Held)| wire::HeldRun {
            run: run.clone(),
            generation: held.generation,
            epoch: held.epoch,
            next_index: held.next,
        };
        wire::Hello {
            protocol: onward_wire::PROTOCOL,
            worker: self.profile.id.clone(),
            kinds: self.kinds.clone(),
            task_kinds: self.profile.task_kinds.to_vec(),
            queues: self.profile.queues.iter().map(|queue| queue.as_ref().map(ToString::to_string).unwrap_or_default()).collect(),
            runs_max: u32::try_from(self.profile.runs_max).unwrap_or(u32::MAX),
            runs: state.held.iter().map(held).collect(),
            tasks: state.held_tasks.keys().map(|(task, claim)| wire::HeldTask { task: task.clone(), claim: *claim }).collect(),
            sdk: concat!("onward-rust ", env!("CARGO_PKG_VERSION")).to_owned(),
            connection: state.connection,
            task_schemas: self.task_schemas.clone(),
        }
    }

    /// The server has us: what we still want and what was never answered goes out.
    fn welcome(&self, welcome: &wire::Welcome) {
        let mut guard = self.lock();
        let state = &mut *guard;
        state.welcomed = true;
        state.heard_at = state.beat.take().map(|(_, sent_at)| sent_at).or(state.heard_at);
        let (runs, tasks) = (state.runs_asked, state.tasks_asked);
        if !state.is_leaving && (runs, tasks) != (0, 0) {
            state.outgoing.push_back(WorkerFrame::Credit(wire::Credit { runs, tasks }));
        }
        state.outgoing.extend(state.requests.values().map(|request| request.frame.clone()));
        drop(guard);
        self.lease.send_replace(Some(Duration::from_millis(welcome.lease_ms)));
        self.outgoing.notify_one();
    }

    fn end(&self) {
        let mut state = self.lock();
        state.welcomed = false;
        state.outgoing.clear();
    }

    /// A sign of life. The server is asked whether it heard it, one question at a time.
    fn beat(&self) -> WorkerFrame {
        let mut state = self.lock();
        let mut request = 0;
        if state.beat.is_none() {
            request = self.next_request.fetch_add(1, Ordering::Relaxed);
            state.beat = Some((request, Instant::now()));
        }
        WorkerFrame::Heartbeat(wire::Heartbeat { request })
    }

    /// How long ago the server heard us for certain; `None` before it ever did.
    fn silent_for(&self) -> Option<Duration> {
        self.lock().heard_at.map(|heard_at| heard_at.elapsed())
    }

    /// As many frames as fit into one message, one at least.
    fn take_outgoing(&self) -> Vec<WorkerFrame> {
        let mut state = self.lock();
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while frames.len() < FRAMES_MAX
            && let Some(frame) = state.outgoing.pop_front_if(|frame| {
                bytes += weigh(frame);
                frames.is_empty() || bytes <= FRAMES_BYTES
            })
        {
            frames.push(frame);
        }
        frames
    }

    fn take_in(self: &Arc<Shared>, frame: ServerFrame) {
        match frame {
            ServerFrame::Welcome(welcome) => {
                self.welcome(&welcome);
                self.greet(Greeting::Welcomed);
            }
            ServerFrame::Goodbye(_) => {} // the stream ends, and is opened again
            ServerFrame::Run(run) => self.take_run(run),
            ServerFrame::Input(input) => self.take_input(input),
            ServerFrame::RunLost(lost) => self.lose(&lost.run, lost.epoch),
            ServerFrame::Task(offer) => self.take_task(offer.task),
            ServerFrame::TaskOver(over) => self.end_task(over.task, over.claim),
            ServerFrame::Question(question) => self.take_question(question),
            ServerFrame::Reply(reply) => {
                if let Some(request) = self.take_reply(reply.request) {
                    drop(request.answer.send(reply.said)); // who asked may have gone
                }
            }
        }
    }

    fn greet(&self, greeting: Greeting) {
        self.lock().greeting = greeting;
        self.greeted.notify_waiters();
    }

    /// Whose answer it is. Whatever is answered, the server has heard us after it was asked.
    fn take_reply(&self, number: u64) -> Option<Request> {
        let mut state = self.lock();
        let request = state.requests.remove(&number);
        let beat = state.beat.take_if(|(beat, _)| *beat == number);
        let asked_at = request.as_ref().map(|request| request.made_at).or(beat.map(|(_, sent_at)| sent_at));
        state.heard_at = state.heard_at.max(asked_at);
        request
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
            let void = state.take_requests_about(|other, under| other == run && under <= epoch);
            drop(state);
            self.runs_came.notify_one(); // one that nobody took is asked for again (Y3)
            if let Some(Held { to: To::Inbox(inbox), .. }) = held {
                inbox.lost();
            }
            drop(void); // who waits for them knows by now why they fail
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
            over.notify_one(); // one waits for it, perhaps only in a moment
        }
        drop(state);
        self.tasks_came.notify_one(); // one that nobody took is asked for again (Y3)
    }

    /// Everything the worker holds is lost, as far as it can know (Y4).
    fn lose_all(&self) {
        let mut state = self.lock();
        let (held, held_tasks) = (std::mem::take(&mut state.held), std::mem::take(&mut state.held_tasks));
        state.runs.clear();
        state.tasks.clear();
        let void = state.take_requests_about(|_, _| true);
        drop(state);
        for held in held.into_values() {
            if let To::Inbox(inbox) = held.to {
                inbox.lost();
            }
        }
        drop(void); // who waits for them knows by now why they fail
        held_tasks.into_values().for_each(|over| over.notify_one());
        self.runs_came.notify_one();
        self.tasks_came.notify_one();
    }

    fn take_question(self: &Arc<Shared>, asked: wire::Question) {
        let wire::Question { question, run, name, input } = asked;
        let (answer, answered) = oneshot::channel();
        let (shared, connection) = (self.clone(), self.lock().connection);
        tokio::spawn(async move {
            // Another connection may be to another session, whose questions have the same numbers.
            let answered = answered.await;
            let is_passed_on = answered.is_err();
            let answer = wire::Answer { question, answer: answered.ok().flatten(), is_passed_on };
            shared.send_on(connection, WorkerFrame::Answer(answer));
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

    /// Waits until `take` finds something. Asks before each wait: what came may have been lost before anybody took it.
    async fn next<T>(&self, came: &Notify, want: impl Fn(), mut take: impl FnMut(&mut State) -> Vec<T>) -> Vec<T> {
        loop {
            want();
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
        if state.is_leaving {
            return;
        }
        let (runs, tasks) = (wanted(&mut state.runs_asked, runs), wanted(&mut state.tasks_asked, tasks));
        if (runs, tasks) != (0, 0) && state.welcomed {
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
            let want = || self.shared.want(limit, 0);
            self.shared.next(&self.shared.runs_came, want, |state| take(&mut state.runs, limit)).await
        })
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
        let connection = {
            let state = self.shared.lock();
            if state.outgoing.len() >= OUTGOING_MAX {
                return; // whoever listens misses what there is no room for
            }
            state.connection
        };
        self.shared.send_on(connection, WorkerFrame::Emit(wire::Emit { run: key.clone(), name, value }));
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
    /// Gives back what was on its way, and goes. Attempts that did not begin do not count.
    async fn give_back(&self) {
        let (runs, tasks) = {
            let mut state = self.shared.lock();
            (std::mem::take(&mut state.runs), std::mem::take(&mut state.tasks))
        };
        for run in runs {
            drop(self.release(run.head.key, run.head.epoch).await);
        }
        for task in tasks {
            drop(self.report_task(task.id, task.claim, TaskReport::Released).await);
        }
        let left = self.shared.ask(|request| WorkerFrame::Leave(wire::Leave { request }));
        drop(left.said().await);
    }
}

impl Shared {
    fn release(&self, run: RunKey, epoch: Epoch) {
        drop(self.ask(|request| WorkerFrame::Release(wire::ReleaseRun { request, run, epoch })));
    }

    /// Like [`Shared::ask`], for what may be larger than any message.
    fn ask_if_small(&self, bytes: usize, frame: impl FnOnce(u64) -> WorkerFrame) -> Result<Asked, StoreError> {
        if bytes > FRAME_BYTES_MAX {
            return Err(StoreError::PayloadTooLarge { bytes, max: FRAME_BYTES_MAX });
        }
        Ok(self.ask(frame))
    }
}

impl State {
    /// What was asked under an epoch that is lost, and must not be sent any more (V4).
    fn take_requests_about(&mut self, lost: impl Fn(&RunKey, Epoch) -> bool) -> Vec<Request> {
        let is_about = |frame: &WorkerFrame| match frame {
            WorkerFrame::Commit(frame) => lost(&frame.commit.key, frame.commit.epoch),
            WorkerFrame::Pause(frame) => lost(&frame.run, frame.epoch),
            _ => false,
        };
        self.outgoing.retain(|frame| !is_about(frame));
        self.requests.extract_if(.., |_, request| is_about(&request.frame)).map(|(_, request)| request).collect()
    }

    /// The run is no longer ours, if it still was.
    fn let_go(&mut self, run: &RunKey, epoch: Epoch) -> Option<Held> {
        if self.held.get(run).is_some_and(|held| held.epoch == epoch) { self.held.remove(run) } else { None }
    }
}

/// The bytes of a frame's payloads.
fn weigh(frame: &WorkerFrame) -> usize {
    match frame {
        WorkerFrame::Commit(frame) => payloads::weigh(&frame.commit.events),
        WorkerFrame::Report(wire::ReportTask { report: TaskReport::Completed(output), .. }) => output.data().len(),
        WorkerFrame::Report(wire::ReportTask { report: TaskReport::Heartbeat { progress: Some(progress) }, .. }) => {
            progress.data().len()
        }
        WorkerFrame::Answer(wire::Answer { answer: Some(Ok(answer)), .. }) => answer.data().len(),
        WorkerFrame::Emit(emit) => emit.value.data().len(),
        _ => 0,
    }
}

fn not_an_answer(wanted: &str) -> StoreError {
    StoreError::Unavailable { why: format!("the server answered something else than {wanted}") }
}
