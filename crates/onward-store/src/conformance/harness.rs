//! Test kit of the cases: a store, its clock, and shorthands for requests.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{ApprovalRequested, RunSuspended, SignalReceived, SuspendReason, TaskScheduled, TimerStarted};
use onward_core::projection::Projection;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage};
use onward_core::task::{Task, TaskOptions};
use onward_core::{
    CallId, CommitId, Event, Hash, Index, Log, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Timestamp, WorkerId,
};

use super::{Factory, Subject, block_on};
use crate::{
    Appended, ClaimRuns, ClaimTasks, ClaimedRun, Clock, Consequence, Expired, ManualClock, Started, Store, StoreError, TaskQuery,
    WaitQuery,
};

/// A store under test with its clock.
pub struct Harness {
    pub clock: Arc<ManualClock>,
    subject: Box<dyn Subject>,
}

/// The kinds that the workers of this suite register.
const KINDS: [&str; 2] = ["order", "parcel"];

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

/// Returns the namespaces of tests with more than one.
pub fn namespaces() -> [Namespace; 2] {
    [Namespace::default(), Namespace::new("other").unwrap()]
}

pub fn worker(id: &str) -> WorkerId {
    WorkerId::new(id).unwrap()
}

pub fn json(text: &str) -> Payload {
    Payload::from_json_text(text.to_owned())
}

pub fn call_id(ordinal: u32) -> CallId {
    CallId::root(ordinal)
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns a run of kind `order` with that id.
pub fn new_run(id: &str) -> NewRun {
    new_run_of("order", id)
}

pub fn new_run_of(kind: &str, id: &str) -> NewRun {
    let started = onward_core::event::RunStarted::new(name(kind), json("{}"), 7);
    NewRun { key: key(id), started, signal: None }
}

/// Returns a signal named `paid`; with an id it is taken once.
pub fn signal(id: Option<&str>) -> Input {
    Input::signal(SignalReceived { name: name("paid"), payload: json("1"), signal_id: id.map(str::to_owned), sender: None })
}

/// Sends signals to run `r` from this thread.
pub fn send_many(store: &dyn Store, count: usize) {
    for _ in 0..count {
        block_on(store.append_input(key("r"), signal(None))).unwrap();
    }
}

/// Returns the event of a commit without calls.
pub fn settled() -> Event {
    RunSuspended { reason: SuspendReason::Settled }.into()
}

pub fn timer(ordinal: u32, due_at: Timestamp) -> Event {
    TimerStarted { call_id: call_id(ordinal), due_at }.into()
}

pub fn task(ordinal: u32, options: TaskOptions) -> Event {
    task_of("mail", ordinal, options)
}

pub fn task_of(kind: &str, ordinal: u32, options: TaskOptions) -> Event {
    let input = json("[]");
    TaskScheduled { call_id: call_id(ordinal), kind: name(kind), input_hash: Hash::of(&input), input, options }.into()
}

pub fn approval(ordinal: u32, deadline: Option<Timestamp>) -> Event {
    ApprovalRequested {
        call_id: call_id(ordinal),
        name: name("refund"),
        title: "Refund?".to_owned(),
        description: None,
        show: None,
        deciders: Vec::new(),
        deadline,
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    }
    .into()
}

/// Returns a decision on the approval at that call id.
pub fn decision(generation: u32, ordinal: u32, decision_id: &str) -> Input {
    let event = onward_core::event::ApprovalDecided {
        call_id: call_id(ordinal),
        approved: true,
        feedback: None,
        decided_by: None,
        answer: None,
        decision_id: decision_id.to_owned(),
    };
    Input::answer(event, generation, &call_id(ordinal), decision_id)
}

pub fn completed() -> Event {
    onward_core::event::RunCompleted { output: json("\"done\""), attempts: None }.into()
}

pub fn terminate() -> Input {
    Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None })
}

pub fn pause() -> Input {
    let reason = onward_core::event::PauseReason::Requested;
    Input::new(onward_core::event::RunPaused::because(reason, ""))
}

pub fn resume() -> Input {
    Input::new(onward_core::event::RunResumed::default())
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, StoreError>, code: &str) -> StoreError {
    match answer {
        Ok(answer) => panic!("expected `{code}`, got {answer:?}"),
        Err(error) => {
            assert_eq!(error.code(), code, "{error}");
            error
        }
    }
}

/// A leased run with the header of its next commit.
#[derive(Debug, Clone)]
pub struct HeldRun {
    pub head: RunHead,
    /// The last event the worker has seen.
    pub horizon: Index,
    /// The horizon of the last commit, as far as the worker knows.
    pub seen: Index,
    n: u64,
}

impl HeldRun {
    pub fn new(claimed: &ClaimedRun) -> HeldRun {
        let head = claimed.head.clone();
        let seen = head.last_commit.map_or(Index(0), |last| last.horizon);
        HeldRun { horizon: Index(head.next_index.0 - 1), seen, n: head.next_commit, head }
    }

    pub fn key(&self) -> RunKey {
        self.head.key.clone()
    }

    /// Returns the next commit; each has an id of its own.
    pub fn commit(&self, events: Vec<Event>) -> Commit {
        Commit {
            key: self.key(),
            generation: self.head.generation,
            epoch: self.head.epoch,
            n: self.n,
            commit_id: CommitId(self.head.epoch.0.wrapping_mul(1_000_003).wrapping_add(self.n)),
            horizon: self.horizon,
            waits: !events.iter().any(Event::is_step_result),
            events,
            end_over_unread: false,
            is_while_paused: false,
            carries: Default::default(),
        }
    }

    /// Advances past a commit that was taken.
    pub fn advance(&mut self, count: usize, committed: Committed) {
        self.n += 1;
        self.horizon = Index(committed.index.0 + count as u64 - 1);
    }
}

impl Harness {
    pub fn new(make: Factory<'_>) -> Harness {
        let clock = Arc::new(ManualClock::default());
        Harness { subject: make(clock.clone()), clock }
    }

    pub fn store(&self) -> Arc<dyn Store> {
        self.subject.store()
    }

    /// Closes and reopens the store, if it is durable. Leases may be lost, nothing else.
    pub fn reopen(&mut self) {
        self.subject.reopen();
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    pub async fn start(&self, id: &str) -> Started {
        self.store().start_run(new_run(id), None).await.unwrap()
    }

    /// Starts a run leased to worker `w`.
    pub async fn start_held(&self, id: &str) -> HeldRun {
        self.start_held_as(new_run(id)).await
    }

    pub async fn start_held_as(&self, run: NewRun) -> HeldRun {
        let started = self.store().start_run(run, Some(worker("w"))).await.unwrap();
        HeldRun::new(&started.claimed.expect("a new run is leased"))
    }

    pub async fn claim(&self, by: &str) -> Vec<ClaimedRun> {
        self.claim_in(Namespace::default(), by, 1_000).await
    }

    pub async fn claim_in(&self, namespace: Namespace, by: &str, limit: usize) -> Vec<ClaimedRun> {
        let knows: BTreeMap<Name, Vec<Option<Name>>> = KINDS.iter().map(|kind| (name(kind), vec![None])).collect();
        let request = ClaimRuns { worker: worker(by), namespace, knows: Arc::new(knows), limit };
        self.store().claim_runs(request).await.unwrap()
    }

    /// Claims exactly one run.
    pub async fn claim_one(&self, by: &str) -> HeldRun {
        let claimed = self.claim(by).await;
        assert_eq!(claimed.len(), 1, "one run can be claimed: {claimed:?}");
        HeldRun::new(&claimed[0])
    }

    /// Claims the run again: a reopened store need not remember its leases.
    pub async fn regain(&self, lost: &HeldRun) -> HeldRun {
        self.store().release_run(lost.key(), lost.head.epoch).await.unwrap();
        let claimed = self.claim("w").await;
        HeldRun::new(claimed.iter().find(|run| run.head.key == lost.key()).expect("the run is pending"))
    }

    pub async fn append(&self, id: &str, input: Input) -> Result<Appended, StoreError> {
        self.store().append_input(key(id), input).await
    }

    /// Commits and expects success.
    pub async fn commit(&self, held: &mut HeldRun, events: Vec<Event>) -> Committed {
        let count = events.len();
        let committed = self.store().commit(held.commit(events)).await.unwrap();
        held.advance(count, committed);
        committed
    }

    /// Advances the horizon to the end of the log.
    pub async fn read_on(&self, held: &mut HeldRun) {
        held.horizon = Index(self.head_of(&held.key()).await.next_index.0 - 1);
    }

    pub async fn complete(&self, id: &str) {
        let mut held = self.start_held(id).await;
        self.commit(&mut held, vec![completed()]).await;
    }

    pub async fn claim_tasks(&self, by: &str, limit: usize) -> Vec<Task> {
        self.claim_tasks_in(Namespace::default(), by, limit).await
    }

    pub async fn claim_tasks_in(&self, namespace: Namespace, by: &str, limit: usize) -> Vec<Task> {
        let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
        let request = ClaimTasks { worker: worker(by), namespace, queues, kinds, limit, lease: seconds(30) };
        self.store().claim_tasks(request).await.unwrap()
    }

    pub async fn expire(&self) -> Expired {
        self.store().expire(1_000).await.unwrap()
    }

    pub async fn head(&self, id: &str) -> RunHead {
        self.head_of(&key(id)).await
    }

    pub async fn head_of(&self, key: &RunKey) -> RunHead {
        self.store().read_run(key.clone(), None).await.unwrap().expect("the run is there")
    }

    pub async fn records(&self, id: &str) -> Vec<Record> {
        self.store().read_log(key(id), None, Index(0), usize::MAX).await.unwrap()
    }

    /// Returns the names of the run's events, after checking the invariants of the log (L1, L16).
    pub async fn log(&self, id: &str) -> Vec<&'static str> {
        self.check_run(&key(id)).await.events().map(|(_, event)| event.name()).collect()
    }

    pub async fn waits(&self) -> Vec<CallId> {
        let waits = self.store().list_waits(WaitQuery::default()).await.unwrap();
        waits.into_iter().map(|wait| wait.call_id).collect()
    }

    /// Checks that the run's log is complete and that its head agrees with it.
    pub async fn check_run(&self, key: &RunKey) -> Log {
        let head = self.head_of(key).await;
        let records = self.store().read_log(key.clone(), None, Index(0), usize::MAX).await.unwrap();
        assert_eq!(RunHead::rebuild(key.clone(), &records), Some(by_log(head.clone())), "L16 of {key}");
        self.check_open(key, &records).await;
        let log = Log::load(records).expect("L1");
        assert_eq!(log.next_index(), head.next_index, "L1 of {key}");
        log
    }

    /// Checks that the run's tasks and waits are those that its log leaves open (L16).
    async fn check_open(&self, key: &RunKey, records: &[Record]) {
        let mut open = Projection::of(key.clone(), records).expect("a log begins with its run");
        let (namespace, run) = (key.namespace.clone(), Some(key.clone()));
        let waits = WaitQuery { namespace: namespace.clone(), run: run.clone(), limit: usize::MAX, ..WaitQuery::default() };
        let mut waits = self.store().list_waits(waits).await.unwrap();
        waits.sort_by(|a, b| a.call_id.cmp(&b.call_id));
        assert_eq!(waits, open.waits.into_values().collect::<Vec<_>>(), "L16 of {key}");
        let tasks = TaskQuery { namespace, run, limit: usize::MAX, ..TaskQuery::default() };
        for task in self.store().list_tasks(tasks).await.unwrap() {
            let by_log = open.tasks.remove(&task.id.call_id).unwrap_or_else(|| panic!("L16: {} is not in its log", task.id));
            let known = |task: &Task| (task.scheduled_at, task.paused_at, task.paused_ms, task.due_at().is_none());
            assert!(!task.is_slot() || task.state == by_log.state, "RQ5: {task:?} is not {by_log:?}");
            let comparable = task.attempt == 1 && task.claim == 0;
            assert!(!comparable || known(&task) == known(&by_log), "L16: {task:?} is not {by_log:?}");
        }
        assert!(open.tasks.is_empty(), "L16 of {key}: {:?} are missing", open.tasks.keys());
    }

    /// Delivers outbox messages until none is left and returns their number.
    pub async fn deliver(&self) -> usize {
        let store = self.store();
        let mut count = 0;
        loop {
            let outbox = store.outbox_messages(100).await.unwrap();
            if outbox.is_empty() {
                return count;
            }
            for (id, delivery) in outbox {
                hand_over(&*store, delivery).await;
                store.finish_deliveries(vec![id]).await.unwrap();
                count += 1;
            }
        }
    }
}

/// Delivers one outbox message; a refusal by the receiver is no error.
pub async fn hand_over(store: &dyn Store, delivery: OutboxMessage) {
    let answer = match delivery {
        OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => store.start_run(run, None).await.map(drop),
        OutboxMessage::Input { to, input } => store.append_input(to, input).await.map(drop),
    };
    if let Err(error) = answer {
        let for_receiver = matches!(error.consequence(), Consequence::Fail | Consequence::StopRun);
        assert!(for_receiver, "a delivery is refused by its receiver only: {error}");
    }
}

/// Returns the head without its lease, which no log contains.
pub fn by_log(head: RunHead) -> RunHead {
    head.without_lease()
}

/// Returns the start of a child of kind `parcel`.
pub fn child(id: &str, ordinal: u32, on_parent_close: onward_core::event::OnParentClose) -> Event {
    let input = json("{}");
    onward_core::event::ChildStarted {
        call_id: call_id(ordinal),
        child: RunId::new(id).unwrap(),
        kind: name("parcel"),
        version: None,
        input_hash: Hash::of(&input),
        input,
        on_parent_close,
        budget: None,
        queue: None,
        is_spawned: false,
    }
    .into()
}
