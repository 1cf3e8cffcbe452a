//! Seeded random operations: the same seed gives the same operations on every store.
//!
//! The [`World`] knows only what workers and senders know: what the replies contain.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use onward_core::budget::{Budget, BudgetHead};
use onward_core::event::{
    ChildStarted, OnParentClose, RunContinued, RunFailed, SignalSent, StepCompleted, StepFailed, TaskCanceled, WaitCanceled,
};
use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::root_run::root_run;
use onward_core::run::{Commit, Committed, Input, NewRun, Refusal};
use onward_core::spend::{Spend, Tokens};
use onward_core::task::{RetryPolicy, Task, TaskId, TaskOptions, TaskReport};
use onward_core::{CallId, CommitId, Epoch, Event, Failure, Index, Namespace, RunHead, RunKey, Status, Timestamp, WorkerId};

use super::harness::{
    self, Harness, HeldRun, approval, call_id, child, completed, decision, hand_over, json, key, name, seconds, settled, signal,
    worker,
};
use super::invariants::check_invariants;
use super::{Factory, block_on};
use crate::{Appended, ClaimRuns, ClaimTasks, ClaimedRun, Delete, Expired, Retention, Started, Store, StoreError};

/// Runs `steps` random operations on a fresh store and checks the invariants after every one.
pub fn random_operations(seed: u64, steps: u32, make: Factory<'_>) {
    block_on(random_operations_on(Harness::new(make), seed, steps));
}

pub async fn random_operations_on(harness: Harness, seed: u64, steps: u32) {
    let store = harness.store();
    let mut world = World::new(seed);
    let mut trace = Trace::new(seed);
    for _ in 0..steps {
        harness.clock.advance(world.pause());
        let operation = world.choose(&*store, harness.now()).await;
        trace.next(&operation);
        let answer = perform(&*store, &operation).await;
        world.learn(&operation, &answer);
        check_invariants(&harness, &mut world).await;
    }
}

/// Prints on a panic how to reproduce it.
pub struct Trace {
    seed: u64,
    step: u32,
    operation: String,
}

impl Trace {
    pub fn new(seed: u64) -> Trace {
        Trace { seed, step: 0, operation: String::new() }
    }

    pub fn next(&mut self, operation: &Operation) {
        self.step += 1;
        self.operation = format!("{operation:?}");
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} failed at step {}: {}", self.seed, self.step, self.operation);
        }
    }
}

#[derive(Debug, Clone)]
pub enum Operation {
    Start(Box<NewRun>, Option<WorkerId>),
    Append(RunKey, Box<Input>),
    Claim(WorkerId, Namespace),
    Commit(Box<Commit>),
    Release(RunKey, Epoch),
    ClaimTasks(WorkerId, Namespace),
    Report(TaskId, u64, TaskReport),
    Heartbeat(WorkerId, Duration),
    Expire,
    Deliver,
    Delete(RunKey),
    DeleteExpired(Duration),
}

/// A store's reply in a form that can be compared between two stores.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Started(Box<Started>),
    Appended(Appended),
    Claimed(Vec<ClaimedRun>),
    Committed(Committed),
    Tasks(Vec<Task>),
    KnownRun(bool),
    Expired(Expired),
    Count(u64),
    Done,
    Refused(String),
}

impl Answer {
    /// Returns every head in it, in order.
    pub fn heads_mut(&mut self) -> Vec<&mut RunHead> {
        match self {
            Answer::Started(started) => {
                [&mut started.head].into_iter().chain(started.claimed.iter_mut().map(|run| &mut run.head)).collect()
            }
            Answer::Claimed(claimed) => claimed.iter_mut().map(|run| &mut run.head).collect(),
            _ => Vec::new(),
        }
    }
}

/// Performs an operation. What a store may choose freely (the order of a claim, cached records) is removed from the reply.
pub async fn perform(store: &dyn Store, operation: &Operation) -> Answer {
    let answer = match operation.clone() {
        Operation::Start(run, claim) => store.start_run(*run, claim).await.map(|mut started| {
            started.claimed.iter_mut().for_each(|claimed| claimed.records = None);
            Answer::Started(Box::new(started))
        }),
        Operation::Append(key, input) => store.append_input(key, *input).await.map(Answer::Appended),
        Operation::Claim(worker, namespace) => claim(store, worker, namespace).await.map(Answer::Claimed),
        Operation::Commit(commit) => store.commit(*commit).await.map(Answer::Committed),
        Operation::Release(key, epoch) => store.release_run(key, epoch).await.map(|()| Answer::Done),
        Operation::ClaimTasks(worker, namespace) => claim_tasks(store, worker, namespace).await.map(Answer::Tasks),
        Operation::Report(task, claim, report) => {
            store.report_task(task, claim, report, seconds(30)).await.map(|()| Answer::Done)
        }
        Operation::Heartbeat(worker, lease) => store.heartbeat(worker, lease).await.map(Answer::KnownRun),
        Operation::Expire => store.expire(1_000).await.map(Answer::Expired),
        Operation::Deliver => deliver(store).await.map(|()| Answer::Done),
        Operation::Delete(key) => store.delete_runs(Delete::Run { key, reason: String::new() }).await.map(Answer::Count),
        Operation::DeleteExpired(default) => {
            let retention = Retention { default, by_kind: BTreeMap::new() };
            // The limit covers all expired runs: stores choose which kind goes first.
            store.delete_runs(Delete::Expired { retention, limit: 1_000 }).await.map(Answer::Count)
        }
    };
    answer.unwrap_or_else(|error| Answer::Refused(describe(&error)))
}

async fn claim(store: &dyn Store, worker: WorkerId, namespace: Namespace) -> Result<Vec<ClaimedRun>, StoreError> {
    let knows = BTreeMap::from([(name("order"), vec![None]), (name("parcel"), vec![None])]);
    let request = ClaimRuns { worker, namespace: namespace.clone(), knows: knows.into(), limit: 1_000 };
    let mut claimed = store.claim_runs(request).await?;
    assert!(claimed.iter().all(|run| run.head.key.namespace == namespace), "S6");
    for run in &mut claimed {
        if let Some(records) = run.records.take() {
            assert_eq!(store.read_log(run.head.key.clone(), None, Index(0), usize::MAX).await?, records);
        }
    }
    claimed.sort_by(|a, b| a.head.key.cmp(&b.head.key));
    Ok(claimed)
}

async fn claim_tasks(store: &dyn Store, worker: WorkerId, namespace: Namespace) -> Result<Vec<Task>, StoreError> {
    let kinds = vec![name("mail")].into();
    let (own, queues) = (namespace.clone(), vec![None, Some(name("fast"))]);
    let request = ClaimTasks { worker, namespace, queues, kinds, limit: 1_000, lease: seconds(30) };
    let mut tasks = store.claim_tasks(request).await?;
    assert!(tasks.iter().all(|task| task.id.run.namespace == own), "S6");
    for queue in [None, Some(name("fast"))] {
        let of_queue = tasks.iter().filter(|task| task.options.queue == queue && task.options.key.is_none());
        assert!(of_queue.map(Task::rank).is_sorted(), "L21");
    }
    tasks.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(tasks)
}

async fn deliver(store: &dyn Store) -> Result<(), StoreError> {
    for (id, delivery) in store.outbox_messages(1_000).await? {
        hand_over(store, delivery).await;
        store.finish_deliveries(vec![id]).await?;
    }
    Ok(())
}

/// Returns the text of an error if it is the same on every store, else its code.
fn describe(error: &StoreError) -> String {
    match error {
        // Stores number epochs differently, and the reason why a run is busy is not fixed.
        StoreError::Refused(Refusal::Fenced { .. }) | StoreError::RunBusy { .. } => error.code().to_owned(),
        _ => error.to_string(),
    }
}

/// The knowledge of the workers and senders of a test.
pub struct World {
    random: u64,
    held: BTreeMap<RunKey, HeldRun>,
    /// Leases of an earlier claim: nothing under them may be taken.
    stale: Vec<HeldRun>,
    last_commit: Option<Commit>,
    tasks: Vec<Task>,
    /// Approvals requested so far, decided or not.
    questions: Vec<(RunKey, u32, CallId)>,
    next_call_id: u32,
    due: BTreeSet<Timestamp>,
    /// Numbers of signals and commits taken, by run.
    signals: BTreeMap<RunKey, usize>,
    commits: BTreeMap<(RunKey, u32), u64>,
}

impl World {
    pub fn new(seed: u64) -> World {
        World {
            random: seed,
            held: BTreeMap::new(),
            stale: Vec::new(),
            last_commit: None,
            tasks: Vec::new(),
            questions: Vec::new(),
            next_call_id: 0,
            due: BTreeSet::new(),
            signals: BTreeMap::new(),
            commits: BTreeMap::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// Returns the time to pass before the next step, at least 1 ms, so that no two writes share a millisecond.
    pub fn pause(&mut self) -> Duration {
        let long = if self.below(20) == 0 { 20_000 } else { 1_000 };
        Duration::from_millis(1 + self.below(long))
    }

    fn run(&mut self) -> RunKey {
        let id = match self.below(9) {
            8 => "x".to_owned(),
            other => format!("r{}", other % 4),
        };
        RunKey { namespace: self.namespace(), ..key(&id) }
    }

    fn namespace(&mut self) -> Namespace {
        let [default, other] = harness::namespaces();
        if self.below(2) == 0 { default } else { other }
    }

    fn worker(&mut self) -> WorkerId {
        worker(&format!("w{}", self.below(3)))
    }

    fn call_id(&mut self) -> u32 {
        self.next_call_id += 1;
        self.next_call_id
    }

    /// Returns the ordinal of a recent call, or one that was never used.
    fn used_call_id(&mut self) -> u32 {
        self.next_call_id.saturating_sub(self.below(12) as u32)
    }

    /// Returns a due time that no other has: stores may order ties differently.
    fn due(&mut self, now: Timestamp) -> Timestamp {
        let mut due = now.after(Duration::from_millis(self.below(20_000)));
        while !self.due.insert(due) {
            due = Timestamp(due.0 + 1);
        }
        due
    }

    pub async fn choose(&mut self, store: &dyn Store, now: Timestamp) -> Operation {
        match self.below(100) {
            0..12 => self.start(),
            12..28 => self.append(),
            28..32 => self.external(store).await,
            32..42 => Operation::Claim(self.worker(), self.namespace()),
            42..66 => self.commit(store, now).await,
            66..68 => self.release(),
            68..73 => Operation::ClaimTasks(self.worker(), self.namespace()),
            73..80 => self.report(),
            80..84 => {
                let lease = seconds(5 + self.below(20));
                Operation::Heartbeat(self.worker(), lease)
            }
            84..91 => Operation::Expire,
            91..97 => Operation::Deliver,
            97..99 => Operation::Delete(self.run()),
            _ => Operation::DeleteExpired(seconds(self.below(60))),
        }
    }

    fn start(&mut self) -> Operation {
        let key = self.run();
        let mut run = NewRun { key: key.clone(), ..harness::new_run(key.id.as_str()) };
        if self.below(10) == 0 {
            run.started.input = json("2");
        }
        if self.below(3) == 0 {
            run.signal = Some(self.signal().into());
        }
        run.started.start_after_ms = (self.below(6) == 0).then(|| self.below(20_000));
        run.started.budget = self.budget().map(|budget| Box::new(BudgetHead::of(budget)));
        let claim = (self.below(2) == 0).then(|| self.worker());
        Operation::Start(Box::new(run), claim)
    }

    /// Appends to an external run at its next index, or at a wrong one.
    async fn external(&mut self, store: &dyn Store) -> Operation {
        let usual = RunKey { namespace: self.namespace(), ..key("x") };
        let key = if self.below(10) == 0 { self.run() } else { usual };
        let head = store.read_run(key.clone(), None).await.unwrap();
        let next = head.and_then(|head| head.external).unwrap_or_default().next_index;
        let expected = (self.below(4) > 0).then(|| next.plus(self.below(4) / 3));
        let count = if expected.is_some() { self.below(3) } else { 0 };
        let events = (0..count).map(|number| json(&number.to_string())).collect();
        let state = (self.below(3) == 0).then(|| {
            let status = [Status::Running, Status::Waiting, Status::Completed, Status::Failed][self.below(4) as usize];
            ExternalState { kind: name("pipeline"), version: None, status, data: json("{}") }
        });
        let id = self.below(12);
        let append_id = (id > 6).then(|| format!("a{id}"));
        let run = NewRun::external(key, ExternalAppended { expected, events, state }, append_id.as_deref());
        let claim = (self.below(4) == 0).then(|| self.worker());
        Operation::Start(Box::new(run), claim)
    }

    fn signal(&mut self) -> Input {
        let id = self.below(8);
        signal((id > 2).then(|| format!("s{id}")).as_deref())
    }

    fn append(&mut self) -> Operation {
        let run = self.run();
        let input = match self.below(24) {
            0..14 => self.signal(),
            14..18 => return self.decide(),
            18..20 => harness::pause(),
            20..23 => harness::resume(),
            _ => harness::terminate(),
        };
        Operation::Append(run, Box::new(input))
    }

    /// Decides one of the latest approvals, open or not, or one that was never requested.
    fn decide(&mut self) -> Operation {
        let token = ["anna", "ben"][self.below(2) as usize];
        let latest = self.below(6) as usize;
        let question = self.questions.iter().rev().nth(latest).cloned();
        let (run, generation, call_id) = question.unwrap_or_else(|| (self.run(), 0, call_id(self.used_call_id())));
        Operation::Append(run, Box::new(decision(generation, call_id.ordinal(), token)))
    }

    async fn commit(&mut self, store: &dyn Store, now: Timestamp) -> Operation {
        let again = self.last_commit.clone().filter(|_| self.below(15) == 0);
        if let Some(again) = again {
            return Operation::Commit(Box::new(again));
        }
        let stale = self.below(12) == 0 && !self.stale.is_empty();
        let chosen = if stale {
            let position = self.below(self.stale.len() as u64) as usize;
            self.stale[position].clone()
        } else {
            let Some(position) = (!self.held.is_empty()).then(|| self.below(self.held.len() as u64) as usize) else {
                return Operation::Claim(self.worker(), self.namespace());
            };
            self.held.values().nth(position).expect("the position is in the map").clone()
        };
        let mut held = chosen;
        let head = store.read_run(held.key(), None).await.unwrap();
        if let Some(head) = head.filter(|head| head.generation == held.head.generation && self.below(3) > 0) {
            held.horizon = Index(head.next_index.0 - 1);
        }
        let is_while_paused = self.below(8) == 0;
        let count = 1 + self.below(3);
        let mut events: Vec<Event> =
            (0..count).map(|_| if is_while_paused { self.step(now) } else { self.event(&held.key(), now) }).collect();
        if !is_while_paused && self.below(12) == 0 {
            events.push(self.end());
        }
        let mut commit = held.commit(events);
        if is_while_paused {
            commit.is_while_paused = true;
            commit.horizon = held.seen;
        }
        // Two workers that use the same commit number do not share a commit id.
        commit.commit_id = CommitId(self.below(u64::MAX));
        commit.end_over_unread = self.below(3) == 0;
        Operation::Commit(Box::new(commit))
    }

    fn event(&mut self, run: &RunKey, now: Timestamp) -> Event {
        match self.below(12) {
            0 => settled(),
            1 | 2 => harness::timer(self.call_id(), self.due(now)),
            3..6 => {
                let options = self.task_options(now);
                harness::task(self.call_id(), options)
            }
            6 | 7 => {
                let deadline = (self.below(2) == 0).then(|| self.due(now));
                approval(self.call_id(), deadline)
            }
            8 => {
                let close = [OnParentClose::Abandon, OnParentClose::Cancel, OnParentClose::Terminate][self.below(3) as usize];
                let ordinal = self.call_id();
                let started = child(&format!("{}/c{}", root_run(&run.id), self.below(4)), ordinal, close);
                let Event::ChildStarted(started) = started else { unreachable!("it starts a child") };
                ChildStarted { budget: self.budget(), ..started }.into()
            }
            9 => WaitCanceled { call_id: call_id(self.used_call_id()) }.into(),
            10 => TaskCanceled { call_id: call_id(self.used_call_id()) }.into(),
            _ if self.below(2) == 0 => self.step(now),
            _ => {
                SignalSent { call_id: call_id(self.call_id()), to: self.run().id, name: name("paid"), payload: json("3") }.into()
            }
        }
    }

    fn step(&mut self, now: Timestamp) -> Event {
        let (call_id, name) = (call_id(self.call_id()), name("charge"));
        if self.below(3) > 0 {
            return StepCompleted { call_id, name, input_hash: None, output: json("1"), attempt: 1, took_ms: 1, input: None }
                .into();
        }
        let (failure, retry_at) = (Failure::retryable("busy"), (self.below(2) == 0).then(|| self.due(now)));
        StepFailed { call_id, name, input_hash: None, failure, attempt: 1, took_ms: 1, retry_at, input: None }.into()
    }

    /// Returns a budget small enough to be exhausted soon.
    fn budget(&mut self) -> Option<Budget> {
        let budget = (self.below(2) == 0).then(|| Budget::default().tokens(self.below(30)));
        budget.map(|budget| if self.below(3) == 0 { budget.seconds(self.below(600)) } else { budget })
    }

    fn task_options(&mut self, now: Timestamp) -> TaskOptions {
        let timeout = self.due(now).since(now).as_millis() as u64;
        TaskOptions {
            queue: (self.below(3) == 0).then(|| name("fast")),
            priority: Some(self.below(3) as i32).filter(|priority| *priority != 0),
            retry: Some(RetryPolicy::attempts(self.below(3) as u32)),
            queued_timeout_ms: (self.below(3) == 0).then_some(timeout),
            costs: self.below(2) == 0,
            key: [None, None, Some("a"), Some("b")][self.below(4) as usize].map(name),
            ..Default::default()
        }
    }

    fn end(&mut self) -> Event {
        match self.below(3) {
            0 => completed(),
            1 => RunFailed { failure: Failure::fatal("no"), attempts: None }.into(),
            _ => RunContinued { input: json("4"), checkpoint: None }.into(),
        }
    }

    fn release(&mut self) -> Operation {
        match self.held.values().next() {
            Some(held) => Operation::Release(held.key(), held.head.epoch),
            None => Operation::Release(self.run(), Epoch(1)),
        }
    }

    fn report(&mut self) -> Operation {
        if self.tasks.is_empty() {
            return Operation::ClaimTasks(self.worker(), self.namespace());
        }
        let position = self.below(self.tasks.len() as u64) as usize;
        let (task, report) = match self.below(8) {
            0..3 => (self.tasks.remove(position), TaskReport::Completed(json("5"))),
            3 => (self.tasks[position].clone(), TaskReport::Failed(Failure::retryable("busy"))),
            4 => (self.tasks[position].clone(), TaskReport::Heartbeat { progress: Some(json("6")) }),
            5 => (self.tasks[position].clone(), TaskReport::NotStarted),
            6 => (self.tasks[position].clone(), TaskReport::WorkerLost),
            _ => (self.tasks[position].clone(), TaskReport::Interrupted),
        };
        let tokens = Tokens { input: self.below(12), ..Tokens::default() };
        let lines = if task.options.costs { vec![Spend::on("m").tokens(tokens)] } else { Vec::new() };
        let report = report.with_spend(task.attempt_spend(lines));
        Operation::Report(task.id, task.claim, report)
    }

    pub fn learn(&mut self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (Operation::Start(run, _), Answer::Started(started)) => {
                self.learn_signal(&run.key, run.signal.as_deref(), started.signal.as_ref());
                started.claimed.iter().for_each(|claimed| self.take_lease(claimed));
            }
            (Operation::Append(key, input), Answer::Appended(appended)) => self.learn_signal(key, Some(input), Some(appended)),
            (Operation::Claim(..), Answer::Claimed(claimed)) => claimed.iter().for_each(|claimed| self.take_lease(claimed)),
            (Operation::Commit(commit), Answer::Committed(committed)) => self.learn_commit(commit, *committed),
            (Operation::Commit(commit), Answer::Refused(why)) => self.learn_refusal(commit, why),
            (Operation::ClaimTasks(..), Answer::Tasks(tasks)) => self.tasks.extend(tasks.iter().cloned()),
            (Operation::Delete(key), Answer::Count(_)) => self.forget_run(key),
            (Operation::DeleteExpired(_), Answer::Count(_)) => {
                // The leases of the deleted runs are no longer worth trying.
                self.stale.clear();
                self.held.clear();
                self.last_commit = None;
            }
            _ => {}
        }
    }

    fn learn_signal(&mut self, key: &RunKey, input: Option<&Input>, appended: Option<&Appended>) {
        let is_signal = input.is_some_and(|input| matches!(input.event, Event::SignalReceived(_)));
        if is_signal && appended.is_some_and(|appended| !appended.repeated) {
            *self.signals.entry(key.clone()).or_default() += 1;
        }
    }

    fn learn_commit(&mut self, commit: &Commit, committed: Committed) {
        let repeated = self.last_commit.as_ref().is_some_and(|last| last.commit_id == commit.commit_id);
        if repeated {
            return;
        }
        *self.commits.entry((commit.key.clone(), commit.generation)).or_default() += 1;
        self.last_commit = Some(commit.clone());
        for event in &commit.events {
            if let Event::ApprovalRequested(event) = event {
                self.questions.push((commit.key.clone(), commit.generation, event.call_id.clone()));
            }
        }
        if commit.events.last().is_some_and(Event::ends_log) {
            self.forget_lease(&commit.key);
        } else if let Some(held) = self.held.get_mut(&commit.key) {
            held.advance(commit.events.len(), committed);
            held.seen = commit.horizon;
        }
    }

    /// Drops the lease after a refusal, unless the reason is unread inputs or a pause.
    fn learn_refusal(&mut self, commit: &Commit, why: &str) {
        let own = self.held.get(&commit.key).is_some_and(|held| held.head.epoch == commit.epoch);
        let goes_on = ["has unread inputs", "is before the previous commit", "is paused"];
        if own && !goes_on.iter().any(|words| why.contains(words)) {
            self.forget_lease(&commit.key);
        }
    }

    fn take_lease(&mut self, claimed: &ClaimedRun) {
        self.forget_lease(&claimed.head.key);
        self.held.insert(claimed.head.key.clone(), HeldRun::new(claimed));
    }

    fn forget_lease(&mut self, key: &RunKey) {
        self.stale.extend(self.held.remove(key));
        let surplus = self.stale.len().saturating_sub(8);
        self.stale.drain(..surplus);
    }

    fn forget_run(&mut self, key: &RunKey) {
        self.held.remove(key);
        self.stale.retain(|held| held.head.key != *key);
        self.last_commit = self.last_commit.take().filter(|commit| commit.key != *key);
    }

    /// Drops the counts of deleted runs: a later run with the same id starts anew.
    pub fn keep_counts_of(&mut self, runs: &[RunHead]) {
        let keys: BTreeSet<&RunKey> = runs.iter().map(|head| &head.key).collect();
        self.signals.retain(|key, _| keys.contains(key));
        self.commits.retain(|(key, _), _| keys.contains(key));
    }

    pub fn commits_taken(&self, key: &RunKey, generation: u32) -> u64 {
        self.commits.get(&(key.clone(), generation)).copied().unwrap_or(0)
    }

    pub fn signals_taken(&self, key: &RunKey) -> usize {
        self.signals.get(key).copied().unwrap_or(0)
    }
}
