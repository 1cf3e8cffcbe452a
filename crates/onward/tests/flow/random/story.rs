//! One case: runs of a flow on a store, with acts of the world outside in random order and in virtual time, and processes that die as
//! planned. A request of a client that got no answer is repeated with the same id, as clients do.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::FutureExt;
use onward::{Decide, Driven, Payload, RunId, RunInput, Status};
use onward_core::task::{Task, TaskReport, TaskState};
use onward_core::view::{AwaitedKind, RunView};
use onward_core::{Index, Name, Namespace, RunHead};
use onward_flow::document::Flow;
use onward_store::{ClaimTasks, Clock, ManualClock, MemoryStore, RunQuery, Store, StoreFuture, TaskQuery};
use serde_json::{Value, json};

use super::effects::{Effects, key_of, log_of};
use super::mutants::Mutant;
use super::process::{FLOW, Process, Shared, Taps};
use super::random_flows::answers::value;
use super::random_flows::random::Random;
use super::store::{Death, MortalStore};

/// The reason of requests to cancel.
pub const REASON: &str = "enough";

/// The number of acts after which the runs are canceled, and after which they are given up.
const ACTS_MAX: (usize, usize) = (60, 110);

/// The largest number of waits for something that is due without anything else in between.
const WAITS_MAX: usize = 40;

/// The time for which a claimed task is held, and that of an attempt that does not end.
const TASK_LEASE: Duration = Duration::from_millis(500);
const HANGING_LEASE: Duration = Duration::from_secs(3_600);

/// Something that happens next.
#[derive(Debug, Clone)]
enum Act {
    Start(usize),
    Drive(RunId),
    /// Delivers messages, and does what is due.
    Tick,
    Claim,
    Report(usize),
    /// Advances the clock to what is due next.
    Wait,
    Signal {
        run: RunId,
        name: Name,
        payload: Value,
        id: String,
        is_driven: bool,
    },
    Decide {
        run: RunId,
        approval: String,
        decide: Decide,
        is_driven: bool,
    },
    Cancel(RunId),
}

impl Act {
    /// Returns whether a client repeats it.
    fn is_requested(&self) -> bool {
        matches!(self, Act::Start(_) | Act::Signal { .. } | Act::Decide { .. } | Act::Cancel(_))
    }
}

/// What an act returned.
enum Done {
    Nothing,
    Claimed(Vec<Task>),
    NextDue(bool),
}

pub struct Story {
    pub shared: Shared,
    pub store: Arc<MemoryStore>,
    pub inputs: Vec<Value>,
    pub roots: Vec<RunId>,
    /// The ids of signals that were acknowledged.
    pub acknowledged: BTreeSet<String>,
    pub deaths: usize,
    /// The number of writes of all processes.
    pub writes: u64,
    pub is_given_up: bool,
    random: Random,
    /// Claimed tasks that are not reported.
    held: Vec<Task>,
    pending: Option<Act>,
    started: usize,
    requests: u32,
    acts: usize,
    waits: usize,
    is_shown: bool,
}

impl Story {
    pub fn new(seed: u64, flow: Flow, mutant: Option<Mutant>, is_shown: bool) -> Story {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let effects = Arc::new(Effects::new(seed, store.clone()));
        let (taps, is_spent) = (Arc::new(Taps::default()), Arc::new(AtomicBool::new(false)));
        let mut random = Random::of(seed, "story");
        let has_memo = flow.steps.iter().any(|step| step.memo.is_some());
        let count = if has_memo || random.chance(10) { 2 } else { 1 };
        let inputs = (0..count).map(|_| if random.chance(80) { json!({ "k": random.below(2) }) } else { Value::Null }).collect();
        let roots = (0..count).map(|at| RunId::new(format!("run-{at}")).unwrap()).collect();
        Story {
            shared: Shared { flow: Arc::new(flow), clock, effects, taps, mutant, is_spent },
            store,
            inputs,
            roots,
            acknowledged: BTreeSet::new(),
            deaths: 0,
            writes: 0,
            is_given_up: false,
            random,
            held: Vec::new(),
            pending: None,
            started: 0,
            requests: 0,
            acts: 0,
            waits: 0,
            is_shown,
        }
    }

    /// Plays until all runs have ended, with one death of each of the first processes.
    pub async fn play(&mut self, deaths: &[Death]) {
        let mut planned = deaths.iter().copied();
        loop {
            let (mutant, is_spent) = (self.shared.mutant, self.shared.is_spent.clone());
            let store = MortalStore::new(self.store.clone(), planned.next(), mutant, is_spent);
            let number = self.deaths as u32;
            let has_ended = tokio::select! {
                biased;
                () = store.died() => false,
                () = self.live(&store, number) => true,
            };
            self.writes += store.writes();
            self.end_process(&store).await;
            if has_ended {
                return;
            }
            self.deaths += 1;
        }
    }

    /// Removes what a process held: its sessions and the leases of its tasks expire.
    async fn end_process(&mut self, store: &MortalStore) {
        for worker in store.kill() {
            self.store.heartbeat(worker, Duration::ZERO).await.unwrap();
        }
        self.held.clear();
        self.shared.clock.advance(TASK_LEASE);
    }

    async fn live(&mut self, store: &MortalStore, number: u32) {
        let process = Process::begin(&self.shared, store.clone(), number).await;
        drop(process.runtime.tick().await); // opens its session
        loop {
            let Some(act) = self.pending.take().or_else(|| self.choose()) else { return };
            if self.is_shown {
                println!("{number}: {act:?}");
            }
            if act.is_requested() {
                self.pending = Some(act.clone());
            }
            self.acts += 1;
            let done = self.perform(&process, &act).await;
            self.pending = None;
            self.finish(act, done);
        }
    }

    async fn perform(&mut self, process: &Process, act: &Act) -> Done {
        let onward = &process.onward;
        match act {
            Act::Start(at) => {
                onward.start::<Value, _>(FLOW, &self.inputs[*at]).id(self.roots[*at].as_str()).await.unwrap();
            }
            Act::Drive(run) => drive(process, run, RunInput::nothing()).await,
            Act::Tick => drop(process.runtime.tick().await),
            Act::Claim => return Done::Claimed(claim(process).await),
            Act::Report(at) => self.report(process, *at).await,
            Act::Wait => {
                let tick = process.runtime.tick().await;
                let Some(due) = tick.next_due else { return Done::NextDue(false) };
                self.shared.clock.set(due.max(self.shared.clock.now()));
                drop(process.runtime.tick().await);
                return Done::NextDue(true);
            }
            Act::Signal { run, name, payload, id, is_driven: true } => {
                drive(process, run, RunInput::signal(name.as_str(), payload).id(id)).await;
            }
            Act::Signal { run, name, payload, id, .. } => {
                let run = onward.run::<Value>(run.as_str()).unwrap();
                may_be_closed(run.signal(name.as_str(), payload).id(id).await);
            }
            Act::Decide { run, approval, decide, is_driven: true } => {
                drive(process, run, RunInput::decision(approval, decide.clone())).await;
            }
            Act::Decide { approval, decide, .. } => may_be_closed(onward.decide_approval(approval, decide.clone()).await),
            Act::Cancel(run) => may_be_closed(onward.run::<Value>(run.as_str()).unwrap().cancel(REASON).await),
        }
        Done::Nothing
    }

    /// Reports a task, or keeps it until its time limit.
    async fn report(&mut self, process: &Process, at: usize) {
        let task = self.held.swap_remove(at);
        let hangs = task.options.attempt_timeout_ms.is_some() && self.random.chance(20);
        let (report, lease) = match hangs {
            true => (TaskReport::Heartbeat { progress: None }, HANGING_LEASE),
            false => (self.shared.effects.task(&task), TASK_LEASE),
        };
        // The attempt may be over: canceled or timed out.
        drop(process.store.report_task(task.id.clone(), task.claim, report, lease).await);
    }

    fn finish(&mut self, act: Act, done: Done) {
        match (act, done) {
            (Act::Start(_), _) => self.started += 1,
            (Act::Signal { id, .. }, _) => drop(self.acknowledged.insert(id)),
            (_, Done::Claimed(tasks)) => self.held.extend(tasks),
            (_, Done::NextDue(is_due)) => {
                assert!(is_due && self.waits < WAITS_MAX, "the runs wait for nothing: {}", self.show());
                self.waits += 1;
                return;
            }
            _ => {}
        }
        self.waits = 0;
    }

    /// Chooses what happens next; `None` if all runs have ended.
    fn choose(&mut self) -> Option<Act> {
        let heads = now(self.store.list_runs(RunQuery { limit: 1_000, ..RunQuery::default() })).runs;
        let is_root = |head: &&RunHead| self.roots.contains(&head.key.id);
        let open: Vec<&RunHead> = heads.iter().filter(is_root).filter(|head| !head.status.is_closed()).collect();
        let paused = heads.iter().find(|head| head.status == Status::Paused);
        assert!(paused.is_none(), "no run is paused: {}", self.show());
        if self.started == self.roots.len() && open.is_empty() {
            return None;
        }
        self.is_given_up = self.acts >= ACTS_MAX.1;
        if self.is_given_up {
            return None;
        }
        if !open.is_empty() && (self.acts == ACTS_MAX.0 || self.random.chance(1)) {
            let at = self.random.below(open.len());
            return Some(Act::Cancel(open[at].key.id.clone()));
        }
        let mut acts = Vec::new();
        if self.started < self.roots.len() {
            acts.push(Act::Start(self.started));
        }
        acts.extend(heads.iter().filter(|head| head.status == Status::Pending).map(|head| Act::Drive(head.key.id.clone())));
        acts.extend(now(self.store.outbox_messages(1)).iter().flat_map(|_| [Act::Tick, Act::Tick]));
        let clock = self.shared.clock.now();
        let tasks = now(self.store.list_tasks(TaskQuery { limit: usize::MAX, ..TaskQuery::default() }));
        let is_visible = |task: &&Task| task.state == TaskState::Queued && task.visible_at <= clock;
        acts.extend(tasks.iter().find(is_visible).map(|_| Act::Claim));
        acts.extend((0..self.held.len()).map(Act::Report));
        let open: Vec<RunHead> = open.into_iter().cloned().collect();
        open.iter().for_each(|head| self.add_requests(head, &mut acts));
        if acts.is_empty() || (self.held.is_empty() && self.random.chance(8)) {
            return Some(Act::Wait);
        }
        let at = self.random.below(acts.len());
        Some(acts.swap_remove(at))
    }

    /// Adds what clients may do for a run: signals and decisions that it waits for.
    fn add_requests(&mut self, head: &RunHead, acts: &mut Vec<Act>) {
        let run = head.key.id.clone();
        let view = RunView::fold(head.clone(), &log_of(&self.store, &head.key));
        for awaited in view.awaiting {
            // Many are not answered in time.
            if awaited.deadline.is_some() && self.random.chance(60) {
                continue;
            }
            let is_driven = head.status == Status::Waiting && self.random.chance(50);
            self.requests += 1;
            let id = format!("request-{}", self.requests);
            match (awaited.kind, awaited.name) {
                (AwaitedKind::Signal, Some(name)) => {
                    let payload = value(&mut Random::of(u64::from(self.requests), run.as_str()));
                    acts.push(Act::Signal { run: run.clone(), name, payload, id, is_driven });
                }
                (AwaitedKind::Approval, Some(_)) => {
                    let wait = now(self.store.list_waits(Default::default()));
                    let wait =
                        wait.into_iter().find(|wait| wait.run == head.key && Some(&wait.call_id) == awaited.call_id.as_ref());
                    let has_answer = wait.as_ref().is_some_and(|wait| wait.answer_schema.is_some());
                    let decider = wait.and_then(|wait| wait.deciders.first().cloned());
                    let decide = self.decide(&awaited.id, has_answer, decider, id);
                    acts.push(Act::Decide { run: run.clone(), approval: awaited.id, decide, is_driven });
                }
                _ => {}
            }
        }
    }

    fn decide(&self, approval: &str, has_answer: bool, decided_by: Option<String>, decision_id: String) -> Decide {
        let decision = self.shared.effects.decision(approval, has_answer);
        let approved = decision["approved"] == true;
        let answer = decision.get("answer").filter(|_| approved).map(|answer| Payload::json(answer).unwrap());
        Decide { approved, feedback: None, decided_by, decision_id, answer }
    }

    /// Renders the state of the runs, for messages.
    pub fn show(&self) -> String {
        let heads = now(self.store.list_runs(RunQuery { limit: 1_000, ..RunQuery::default() })).runs;
        let mut shown = serde_json::to_string_pretty(&*self.shared.flow).unwrap();
        for head in heads {
            shown += &format!("\n{} {:?} {:?}\n", head.key.id, head.status, head.paused_at);
            let log = log_of(&self.store, &head.key);
            log.iter().for_each(|record| shown += &(serde_json::to_string(record).unwrap() + "\n"));
        }
        shown
    }
}

/// Returns the answer of a store in memory.
pub fn now<T>(call: StoreFuture<'_, T>) -> T {
    call.now_or_never().expect("a store in memory answers at once").unwrap()
}

async fn drive(process: &Process, run: &RunId, input: RunInput) {
    match process.onward.drive(run.as_str(), input).await {
        Ok(Driven::Waiting(_) | Driven::Ended(_)) => {}
        Ok(Driven::Paused(view)) => panic!("{run} is paused: {view:?}"),
        Err(error) => may_be_closed::<()>(Err(error)),
    }
}

/// A request that is repeated may have been accepted before, and its wait or run may be over by now.
fn may_be_closed<T>(answer: Result<T, onward::Error>) {
    if let Err(error) = answer {
        let is_late =
            ["run_closed", "wait_not_found", "approval_decided", "already_answered", "wait_closed"].contains(&error.code());
        assert!(is_late, "{}: {error}", error.code());
    }
}

async fn claim(process: &Process) -> Vec<Task> {
    let name = |name: &str| Name::new(name).unwrap();
    let claim = ClaimTasks {
        worker: process.tasks.clone(),
        namespace: Namespace::default(),
        queues: vec![None, Some(name("slow"))],
        kinds: Arc::new(["work", "undo", "llm.small"].map(name).to_vec()),
        limit: 3,
        lease: TASK_LEASE,
    };
    process.store.claim_tasks(claim).await.unwrap()
}

/// Returns the logs of the runs of the flow, with their heads.
pub fn ends(story: &Story) -> Vec<(RunHead, Vec<onward_core::Record>)> {
    let head = |run: &RunId| now(story.store.read_run(key_of(run), None)).expect("the run was started");
    let started = story.roots.iter().take(story.started);
    started.map(|run| (head(run), now(story.store.read_log(key_of(run), None, Index(0), usize::MAX)))).collect()
}
