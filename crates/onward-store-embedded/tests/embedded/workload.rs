//! A deterministic sequence of steps with every kind of write, and a comparison of its effects.
//!
//! The memory store is the oracle: after a crash with `k` acknowledgments, the embedded store must look exactly like a memory
//! store after `k` steps, or `k + 1` (the last may be durable without an acknowledgment).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{
    ApprovalDecided, ApprovalRequested, ChildStarted, OnParentClose, RunCompleted, RunStarted, SignalReceived, SignalSent,
    StepCompleted, TaskScheduled, TimerStarted,
};
use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::run::{Commit, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskOptions, TaskReport};
use onward_core::{
    CallId, CommitId, Epoch, Event, Hash, Index, Log, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Status,
    Timestamp, WorkerId,
};
use onward_store::conformance::block_on;
use onward_store::{ClaimTasks, Clock, ManualClock, MemoryStore, RunQuery, Store, StoreError, WaitQuery};
use onward_store_embedded::{EmbeddedStore, Options};

/// Number of steps of one run.
pub const STEPS_PER_RUN: u64 = 12;
/// The step that appends to an external run.
pub const OUTSIDE: u64 = 10;
const START: Timestamp = Timestamp(1_800_000_000_000);

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

pub fn worker() -> WorkerId {
    WorkerId::new("w").unwrap()
}

pub fn json(text: impl Into<String>) -> Payload {
    Payload::from_json_text(text.into())
}

pub fn new_run(id: &str) -> NewRun {
    let (kind, input) = (name("order"), json("{}"));
    let started = RunStarted::new(kind, input, 7);
    NewRun { key: key(id), started, signal: None }
}

pub fn step_completed(ordinal: u32, output: Payload) -> Event {
    let (call_id, name) = (CallId::root(ordinal), name("charge"));
    StepCompleted { call_id, name, input_hash: None, output, attempt: 1, took_ms: 3, input: None }.into()
}

/// One run that commits a step at a time.
pub struct RunOfSteps {
    pub head: RunHead,
    /// Number of acknowledged commits.
    pub n: u64,
    horizon: Index,
}

impl RunOfSteps {
    pub fn start(store: &EmbeddedStore, id: &str) -> Result<RunOfSteps, StoreError> {
        let started = block_on(store.start_run(new_run(id), Some(worker())))?;
        Ok(RunOfSteps { head: started.claimed.unwrap().head, n: 0, horizon: Index(0) })
    }

    /// Commits a step with a result of this size.
    pub fn step(&mut self, store: &EmbeddedStore, bytes: usize) -> Result<(), StoreError> {
        let event = step_completed(self.n as u32, json(format!("\"{}\"", "x".repeat(bytes))));
        self.commit(store, event)
    }

    pub fn commit(&mut self, store: &EmbeddedStore, event: Event) -> Result<(), StoreError> {
        let commit = Commit {
            key: self.head.key.clone(),
            generation: 0,
            epoch: self.head.epoch,
            n: self.n,
            commit_id: CommitId(self.n + 1),
            horizon: self.horizon,
            events: vec![event],
            waits: false,
            end_over_unread: false,
            is_while_paused: false,
            carries: Default::default(),
        };
        self.horizon = block_on(store.commit(commit))?.index;
        self.n += 1;
        Ok(())
    }
}

/// Performs the steps. Holds what a worker would remember (epochs, positions).
#[derive(Default)]
pub struct Workload {
    clock: Arc<ManualClock>,
    head: Option<RunHead>,
    task: Option<Task>,
    n: u64,
    horizon: Index,
}

impl Workload {
    pub fn clock(&self) -> Arc<ManualClock> {
        self.clock.clone()
    }

    /// Performs step number `step` and waits for the reply.
    pub fn perform(&mut self, store: &dyn Store, step: u64) -> Result<(), StoreError> {
        self.clock.set(START.after(Duration::from_secs(step)));
        let id = format!("r{}", step / STEPS_PER_RUN);
        match step % STEPS_PER_RUN {
            0 => {
                let started = block_on(store.start_run(new_run(&id), Some(worker())))?;
                (self.head, self.n, self.horizon) = (started.claimed.map(|claimed| claimed.head), 0, Index(0));
                Ok(())
            }
            1 => self.commit(store, vec![step_completed(0, json("\"charged\""))]),
            2 => self.commit(store, questions(self.clock.now())),
            3 => self.input(store, &id, Input::signal(signal("paid", Some("s-1")))),
            4 => self.input(store, &id, decision()),
            5 => self.claim_task(store),
            6 => self.report_task(store),
            7 => block_on(store.expire(100)).map(drop),
            8 => self.commit(store, vec![step_completed(7, large(step)), to_child(&id), to_other(&id)]),
            9 => self.deliver(store),
            OUTSIDE => block_on(store.start_run(outside(step / STEPS_PER_RUN), None)).map(drop),
            _ => self.commit(store, vec![RunCompleted { output: json("\"done\""), attempts: None }.into()]),
        }
    }

    fn commit(&mut self, store: &dyn Store, events: Vec<Event>) -> Result<(), StoreError> {
        let head = self.head.as_ref().unwrap();
        let commit = Commit {
            key: head.key.clone(),
            generation: 0,
            epoch: head.epoch,
            n: self.n,
            commit_id: CommitId(self.n + 1),
            horizon: self.horizon,
            waits: !events.iter().any(Event::is_step_result),
            end_over_unread: true,
            events,
            is_while_paused: false,
            carries: Default::default(),
        };
        let count = commit.events.len() as u64;
        let committed = block_on(store.commit(commit))?;
        self.n += 1;
        self.horizon = Index(committed.index.0 + count - 1);
        Ok(())
    }

    fn input(&mut self, store: &dyn Store, id: &str, input: Input) -> Result<(), StoreError> {
        block_on(store.append_input(key(id), input)).map(drop)
    }

    fn claim_task(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
        let request = ClaimTasks {
            worker: worker(),
            namespace: Default::default(),
            queues,
            kinds,
            limit: 1,
            lease: Duration::from_secs(30),
        };
        self.task = block_on(store.claim_tasks(request))?.pop();
        Ok(())
    }

    fn report_task(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let task = self.task.take().unwrap();
        let report = TaskReport::Completed(json("\"sent\""));
        block_on(store.report_task(task.id, task.claim, report, Duration::from_secs(30)))
    }

    /// Delivers the oldest outbox message and finishes it.
    fn deliver(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        let Some((_, delivery)) = block_on(store.outbox_messages(1))?.pop() else { return Ok(()) };
        match delivery {
            OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => {
                block_on(store.start_run(run, None)).map(drop)
            }
            OutboxMessage::Input { to, input } => block_on(store.append_input(to, input)).map(drop),
        }
    }
}

fn questions(now: Timestamp) -> Vec<Event> {
    let approval = ApprovalRequested {
        call_id: CallId::root(2),
        name: name("refund"),
        title: "Refund?".to_owned(),
        description: None,
        show: None,
        deciders: Vec::new(),
        deadline: None,
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    };
    let input = json("[]");
    let task = TaskScheduled {
        call_id: CallId::root(3),
        kind: name("mail"),
        input_hash: Hash::of(&input),
        input,
        options: TaskOptions::default(),
    };
    let timer = TimerStarted { call_id: CallId::root(1), due_at: now.after(Duration::from_secs(4)) };
    vec![timer.into(), approval.into(), task.into()]
}

fn signal(signal: &str, signal_id: Option<&str>) -> SignalReceived {
    SignalReceived { name: name(signal), payload: json("1"), signal_id: signal_id.map(str::to_owned), sender: None }
}

fn decision() -> Input {
    let call_id = CallId::root(2);
    let decision_id = "d-1".to_owned();
    let event =
        ApprovalDecided { call_id: call_id.clone(), approved: true, feedback: None, decided_by: None, answer: None, decision_id };
    Input::answer(event, 0, &call_id, "d-1")
}

/// Returns a payload that is stored as a blob. Every second one is the same.
fn large(step: u64) -> Payload {
    json(format!("\"{}\"", "ab"[..1 + (step / STEPS_PER_RUN) as usize % 2].repeat(70_000)))
}

/// Returns the next append of an external engine: an event and the state of its run.
pub fn outside(index: u64) -> NewRun {
    let state = ExternalState { kind: name("pipeline"), version: None, status: Status::Waiting, data: json(index.to_string()) };
    let appended = ExternalAppended { expected: Some(Index(index)), events: vec![json("{}")], state: Some(state) };
    NewRun::external(key("outside"), appended, Some(&format!("a-{index}")))
}

fn to_child(id: &str) -> Event {
    let (input, child) = (json("{}"), RunId::new(format!("{id}-child")).unwrap());
    ChildStarted {
        call_id: CallId::root(8),
        child,
        kind: name("parcel"),
        version: None,
        input_hash: Hash::of(&input),
        input,
        on_parent_close: OnParentClose::Cancel,
        budget: None,
        queue: None,
        is_spawned: false,
    }
    .into()
}

fn to_other(id: &str) -> Event {
    let to = RunId::new(id).unwrap();
    SignalSent { call_id: CallId::root(9), to, name: name("echo"), payload: json("2") }.into()
}

/// All readable content of a store, except leases.
#[derive(Debug, PartialEq)]
pub struct Memory {
    pub runs: Vec<(RunHead, Vec<Record>)>,
    waits: Vec<Wait>,
    outbox_messages: Vec<OutboxMessage>,
}

/// Reads everything, and checks that every log is complete and every head agrees with its log.
pub fn remember(store: &dyn Store) -> Memory {
    let query = RunQuery { limit: 10_000, ..RunQuery::default() };
    let heads = block_on(store.list_runs(query)).unwrap().runs;
    let runs = heads.into_iter().map(|head| {
        let mut records = block_on(store.read_log(head.key.clone(), None, Index(0), usize::MAX)).unwrap();
        Log::load(records.clone()).expect("the log is complete");
        let by_log = head.without_lease();
        assert_eq!(RunHead::rebuild(by_log.key.clone(), &records), Some(by_log.clone()), "L16");
        records.iter_mut().filter_map(|record| record.commit.as_mut()).for_each(|commit| commit.epoch = Epoch(0));
        (by_log, records)
    });
    let runs = runs.collect();
    let waits = block_on(store.list_waits(WaitQuery { limit: 10_000, ..WaitQuery::default() })).unwrap();
    let outbox_messages = block_on(store.outbox_messages(10_000)).unwrap().into_iter().map(|(_, delivery)| delivery).collect();
    Memory { runs, waits, outbox_messages }
}

/// Returns the content of a store after the first `steps` steps.
pub fn expected(steps: u64) -> Memory {
    let mut workload = Workload::default();
    let store = MemoryStore::new(workload.clock());
    (0..steps).for_each(|step| workload.perform(&store, step).unwrap());
    remember(&store)
}

pub fn open(directory: &Path) -> EmbeddedStore {
    EmbeddedStore::open(directory, Options::default()).unwrap()
}

/// Opens what a crash left: every acknowledged step is there, and at most one more, complete.
#[track_caller]
pub fn check_survivors(directory: &Path, answered: u64) {
    let store = open(directory);
    let found = remember(&store);
    if found != expected(answered) {
        assert_eq!(found, expected(answered + 1), "{answered} steps were answered");
    }
    // The store works: a new run starts.
    block_on(store.start_run(new_run("after"), Some(worker()))).unwrap();
    assert_eq!(store.stopped(), None);
}
