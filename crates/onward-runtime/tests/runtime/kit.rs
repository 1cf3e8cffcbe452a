//! A runtime over the reference store with a manual clock, and short helpers for tests.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_core::event::{
    ApprovalRequested, ChildStarted, OnParentClose, PromiseCreated, RunCompleted, RunContinued, SignalAwaited, SignalSent,
    TaskScheduled, TimerStarted,
};
use onward_core::run::{Commit, Committed};
use onward_core::task::TaskOptions;
use onward_core::{
    CallId, CommitId, Epoch, Event, Hash, Index, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Timestamp, WorkerId,
};
pub use onward_runtime::WorkerConnection;
use onward_runtime::{Inbox, LocalConnection, Options, Question, Runtime, RuntimeError, Signal, StartRequest, WorkerProfile};
use onward_store::{ClaimedRun, ManualClock, MemoryStore, StoreError};

use crate::faulty::FaultyStore;

pub struct Harness {
    pub store: Arc<FaultyStore>,
    pub clock: Arc<ManualClock>,
    pub runtime: Runtime,
}

impl Harness {
    pub fn new() -> Harness {
        Harness::with(Options::default())
    }

    pub fn with(options: Options) -> Harness {
        let clock = Arc::new(ManualClock::default());
        let store = Arc::new(FaultyStore::new(MemoryStore::new(clock.clone())));
        let runtime = Runtime::new(store.clone(), clock.clone(), options);
        Harness { store, clock, runtime }
    }

    /// Returns the runtime of another process over the same store.
    pub fn other_runtime(&self) -> Runtime {
        Runtime::new(self.store.clone(), self.clock.clone(), Options::default())
    }

    pub fn worker(&self, id: &str) -> LocalConnection {
        self.runtime.join_worker(profile(id, 100))
    }

    pub async fn start(&self, id: &str) -> RunHead {
        self.runtime.start_run(start(id)).await.unwrap().head
    }

    /// Starts a run and claims it for `worker`.
    pub async fn start_held(&self, worker: &LocalConnection, id: &str) -> HeldRun {
        self.start(id).await;
        self.next_held(worker).await
    }

    pub async fn next_held(&self, worker: &LocalConnection) -> HeldRun {
        let mut runs = worker.next_runs(1).await;
        // Let the next claim, which this call started, end before the test continues.
        tokio::task::yield_now().await;
        HeldRun::of(&runs.remove(0))
    }

    /// Commits `events` with a horizon that covers the whole log.
    pub async fn commit(&self, held: &mut HeldRun, events: Vec<Event>) -> Committed {
        self.try_commit(held, events).await.unwrap()
    }

    pub async fn try_commit(&self, held: &mut HeldRun, events: Vec<Event>) -> Result<Committed, StoreError> {
        let head = self.head(held.key.id.as_str()).await;
        let committed = self.runtime.store().commit(held.draft(Index(head.next_index.0 - 1), events)).await?;
        held.n += 1;
        Ok(committed)
    }

    pub async fn complete(&self, held: &mut HeldRun) {
        self.commit(held, vec![completed()]).await;
    }

    /// Creates a closed run.
    pub async fn closed(&self, id: &str) {
        self.start(id).await;
        self.runtime.terminate_run(&key(id), "").await.unwrap();
    }

    pub async fn head(&self, id: &str) -> RunHead {
        self.runtime.read_head(&key(id)).await.unwrap()
    }

    /// Returns the names of the run's events.
    pub async fn log(&self, id: &str) -> Vec<&'static str> {
        let records = self.runtime.read_log(&key(id), None, Index(0), usize::MAX).await.unwrap();
        records.iter().flat_map(|record| &record.events).map(Event::name).collect()
    }

    pub fn advance(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Ticks until there is nothing left to do; ignores errors, which tests provoke.
    pub async fn settle(&self) {
        for _ in 0..20 {
            let tick = self.runtime.tick().await;
            if tick.error.is_none() && tick.counts == Default::default() {
                return;
            }
        }
        panic!("the runtime does not come to rest");
    }
}

/// A run that a worker has claimed.
pub struct HeldRun {
    pub key: RunKey,
    pub generation: u32,
    pub epoch: Epoch,
    pub n: u64,
}

impl HeldRun {
    pub fn of(run: &ClaimedRun) -> HeldRun {
        let head = &run.head;
        HeldRun { key: head.key.clone(), generation: head.generation, epoch: head.epoch, n: head.next_commit }
    }

    pub fn draft(&self, horizon: Index, events: Vec<Event>) -> Commit {
        Commit {
            key: self.key.clone(),
            generation: self.generation,
            epoch: self.epoch,
            n: self.n,
            commit_id: CommitId(self.epoch.0 << 32 | self.n),
            horizon,
            events,
            waits: true,
            end_over_unread: false,
            is_while_paused: false,
            carries: Default::default(),
        }
    }
}

/// An inbox that records its calls.
#[derive(Default)]
pub struct Diary {
    pub records: Mutex<Vec<Record>>,
    pub lost: Mutex<u32>,
}

impl Diary {
    pub fn indexes(&self) -> Vec<u64> {
        self.records.lock().unwrap().iter().map(|record| record.index.0).collect()
    }

    pub fn lost(&self) -> u32 {
        *self.lost.lock().unwrap()
    }
}

impl Inbox for Diary {
    fn push(&self, record: Record) {
        assert_eq!(self.lost(), 0, "nothing is pushed after the loss");
        self.records.lock().unwrap().push(record);
    }
    fn lost(&self) {
        *self.lost.lock().unwrap() += 1;
    }
    fn ask(&self, question: Question) -> Result<(), Question> {
        Err(question)
    }
}

pub fn open_diary(worker: &LocalConnection, held: &HeldRun) -> Arc<Diary> {
    let diary = Arc::new(Diary::default());
    worker.open_inbox(&held.key, held.epoch, diary.clone());
    diary
}

pub fn profile(id: &str, runs_max: usize) -> WorkerProfile {
    WorkerProfile {
        id: WorkerId::new(id).unwrap(),
        namespace: Namespace::default(),
        knows: Arc::new(BTreeMap::from([(name("order"), vec![None])])),
        current: Arc::default(),
        task_kinds: Arc::new(vec![name("mail")]),
        task_limits: Arc::default(),
        queues: vec![None],
        runs_max,
        is_remote: false,
    }
}

pub fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).unwrap())
}

pub fn text(value: &str) -> Payload {
    Payload::json(value).unwrap()
}

pub fn at(ordinal: u32) -> CallId {
    CallId::root(ordinal)
}

pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub fn start(id: &str) -> StartRequest {
    StartRequest::new(key(id), name("order"), text("in"), 7)
}

pub fn signal(text: &str) -> Signal {
    Signal { name: name(text), payload: Payload::null(), signal_id: None }
}

pub fn completed() -> Event {
    RunCompleted { output: text("out"), attempts: None }.into()
}

pub fn continued() -> Event {
    RunContinued { input: text("next"), checkpoint: None }.into()
}

pub fn awaited(call_id: u32, signal: &str) -> Event {
    SignalAwaited { call_id: at(call_id), name: name(signal), deadline: None, is_pattern: false }.into()
}

pub fn timer(call_id: u32, due_at: Timestamp) -> Event {
    TimerStarted { call_id: at(call_id), due_at }.into()
}

pub fn approval(call_id: u32, deciders: &[&str], deadline: Option<Timestamp>) -> Event {
    let (name, title, deciders) = (name("ship"), "Ship it?".to_owned(), deciders.iter().map(|who| who.to_string()).collect());
    ApprovalRequested {
        call_id: at(call_id),
        name,
        title,
        description: None,
        show: None,
        deciders,
        deadline,
        bound_to: None,
        not_by_requester: false,
        answer_schema: None,
    }
    .into()
}

pub fn promise(call_id: u32) -> Event {
    PromiseCreated { call_id: at(call_id), name: name("callback"), deadline: None }.into()
}

pub fn task(call_id: u32, options: TaskOptions) -> Event {
    let input = text("to");
    TaskScheduled { call_id: at(call_id), kind: name("mail"), input_hash: Hash::of(&input), input, options }.into()
}

pub fn child(call_id: u32, id: &str, on_parent_close: OnParentClose) -> Event {
    let (child, kind, input) = (RunId::new(id).unwrap(), name("order"), text("in"));
    let input_hash = Hash::of(&input);
    ChildStarted {
        call_id: at(call_id),
        child,
        kind,
        version: None,
        input_hash,
        input,
        on_parent_close,
        is_spawned: false,
        budget: None,
        queue: None,
    }
    .into()
}

pub fn sent(call_id: u32, to: &str) -> Event {
    SignalSent { call_id: at(call_id), to: RunId::new(to).unwrap(), name: name("hello"), payload: Payload::null() }.into()
}

#[track_caller]
pub fn refused<T: std::fmt::Debug>(answer: Result<T, RuntimeError>, code: &str) {
    assert_eq!(answer.unwrap_err().code(), code);
}

/// Returns the result of a future of the reference store, which never waits.
pub fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(answer) => answer,
        std::task::Poll::Pending => panic!("the reference store never waits"),
    }
}

/// Returns true if `future` is still waiting after a long time.
pub async fn waits<T>(future: impl Future<Output = T>) -> bool {
    tokio::time::timeout(seconds(100), future).await.is_err()
}
