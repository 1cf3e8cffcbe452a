//! Random trees of runs: regardless of their actions and the order of deliveries, they spend at most the budget of the root run.
//!
//! The runs are heads with their logs, as in a store, without code. A run continues after its parent has ended, as the worst
//! case.

use std::collections::{BTreeMap, BTreeSet};

use super::super::*;
use crate::log::CommitId;
use crate::log::event::{ChildAwaited, OnParentClose, RunCompleted, RunContinued, RunFailed, TaskAttemptEnded, TaskAttempted};
use crate::run::reopen::{Fork, OpenChildren, Retry};
use crate::run::{Carries, Commit, Effect, Input, NewRun, OutboxMessage, Refusal, Status, answer_to};
use crate::spend::{Spend, Tokens};
use crate::{Failure, Hash, Index, Name, Namespace, Payload, Record, RunKey, run::reopen};

const LIMIT: u64 = 200;

struct Attempt {
    run: RunKey,
    generation: u32,
    call_id: CallId,
    began_at: Timestamp,
}

struct SimulatedRun {
    head: RunHead,
    log: Vec<Record>,
    ordinal: u32,
    spawned: Vec<RunId>,
}

struct Trees {
    seed: u64,
    drawn: u64,
    now: Timestamp,
    runs: BTreeMap<RunKey, SimulatedRun>,
    outbox: Vec<OutboxMessage>,
    received: BTreeSet<(RunKey, String)>,
    attempts: Vec<Attempt>,
    /// The total by which attempts under way exceeded what was left.
    over: u64,
    /// The total that resumes have added to limits.
    more: u64,
    /// Counts of the events that the test must cover.
    seen: BTreeMap<&'static str, u32>,
}

impl Drop for Trees {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {} failed behind {} draws", self.seed, self.drawn);
        }
    }
}

impl Trees {
    fn new(seed: u64) -> Trees {
        let (now, key) = (Timestamp(1_000_000), key("root"));
        let budget = Some(Box::new(BudgetHead::of(Budget::default().tokens(LIMIT))));
        let started = RunStarted { budget, ..RunStarted::new(name("k"), Payload::null(), seed) };
        let mut trees = Trees {
            seed,
            drawn: 0,
            now,
            runs: BTreeMap::new(),
            outbox: Vec::new(),
            received: BTreeSet::new(),
            attempts: Vec::new(),
            over: 0,
            more: 0,
            seen: BTreeMap::new(),
        };
        trees.start(NewRun { key, started, signal: None });
        trees
    }

    fn draw(&mut self, bound: usize) -> usize {
        self.drawn += 1;
        (crate::random::derive(self.seed, &CallId::root(0), self.drawn) % bound as u64) as usize
    }

    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn start(&mut self, run: NewRun) {
        let (head, first) = RunHead::start(run.key.clone(), run.started, self.now);
        let spawned = self.runs.remove(&run.key).map_or(Vec::new(), |before| before.spawned);
        self.runs.insert(run.key, SimulatedRun { head, log: vec![first], ordinal: 0, spawned });
    }

    fn send(&mut self, effects: Vec<Effect>) {
        let sent =
            effects.into_iter().filter_map(|effect| if let Effect::Send(delivery) = effect { Some(*delivery) } else { None });
        self.outbox.extend(sent);
    }

    /// Delivers an input to the run, if it exists.
    fn input(&mut self, key: &RunKey, input: Input) -> Result<(), Refusal> {
        let now = self.now;
        let Some(run) = self.runs.get_mut(key) else { return Ok(()) };
        let admitted = run.head.admit_input(input, None, now)?;
        run.log.push(admitted.record);
        self.send(admitted.effects);
        Ok(())
    }

    fn commit(&mut self, key: &RunKey, events: Vec<Event>) {
        let (now, commit_id) = (self.now, CommitId(self.drawn));
        let run = self.runs.get_mut(key).expect("it is there");
        let head = &mut run.head;
        let commit = Commit {
            key: key.clone(),
            generation: head.generation,
            epoch: head.epoch,
            n: head.next_commit,
            commit_id,
            horizon: Index(head.next_index.0 - 1),
            events,
            waits: true,
            end_over_unread: false,
            is_while_paused: false,
            carries: Carries::default(),
        };
        let admitted = head.admit_commit(commit, now).expect("an open run that has read all takes commits");
        run.log.push(admitted.record);
        self.send(admitted.effects);
        if let Some(next) = admitted.successor {
            self.start(*next);
        }
        self.check_rebuilt(key);
    }

    /// Checks that the head equals the one rebuilt from the log (L16).
    fn check_rebuilt(&self, key: &RunKey) {
        let run = &self.runs[key];
        let rebuilt = RunHead::rebuild(key.clone(), &run.log).expect("a log has a start");
        assert_eq!((&rebuilt.budget, &rebuilt.spend), (&run.head.budget, &run.head.spend), "L16");
    }

    /// Performs one random action.
    fn step(&mut self) {
        self.now = Timestamp(self.now.0 + 1);
        if !self.outbox.is_empty() && self.draw(3) == 0 {
            // Deliveries to one receiver keep their order; the receiver is random.
            let drawn = self.draw(self.outbox.len());
            let receiver = self.outbox[drawn].receiver().clone();
            let position = self.outbox.iter().position(|outbox| *outbox.receiver() == receiver).expect("it was drawn");
            let outbox = self.outbox.remove(position);
            return self.deliver(outbox);
        }
        if !self.attempts.is_empty() && self.draw(3) == 0 {
            return self.end_attempt();
        }
        let keys: Vec<RunKey> = self.runs.keys().cloned().collect();
        let key = &keys[self.draw(keys.len())];
        let status = self.runs[key].head.status;
        match status {
            Status::Failed if self.draw(3) == 0 => self.retry(key),
            Status::Paused if self.draw(4) == 0 => self.resume(key),
            status if status.is_closed() || status == Status::Paused => {}
            _ => self.go_on(key),
        }
    }

    fn go_on(&mut self, key: &RunKey) {
        match self.draw(12) {
            0..5 => self.attempt(key),
            5..8 => self.start_children(key),
            8 => self.await_spawned(key),
            9 => {
                let checkpoint = None;
                self.commit(key, vec![RunContinued { input: Payload::null(), checkpoint }.into()]);
                self.saw("continued");
            }
            10 if key.id.as_str() != "root" => {
                self.commit(key, vec![RunCompleted { output: Payload::null(), attempts: None }.into()]);
            }
            _ => self.commit(key, vec![RunFailed { failure: Failure::fatal("out of luck"), attempts: None }.into()]),
        }
    }

    fn attempt(&mut self, key: &RunKey) {
        let run = self.runs.get_mut(key).expect("it is there");
        run.ordinal += 1;
        let (call_id, generation, began_at) = (CallId::root(run.ordinal), run.head.generation, self.now);
        let ledger_name = Some("m".to_owned());
        let attempted = TaskAttempted { call_id: call_id.clone(), attempt: 1, ledger_name, began_at: Some(began_at) };
        match self.input(key, Input { generation: Some(generation), ..Input::new(attempted) }) {
            Ok(()) => self.attempts.push(Attempt { run: key.clone(), generation, call_id, began_at }),
            Err(refusal) => {
                let pause = refusal.pause().expect("an open run takes an attempt as long as it may spend");
                self.input(key, pause).expect("an open run can be paused");
                self.saw("paused");
            }
        }
    }

    fn end_attempt(&mut self) {
        let position = self.draw(self.attempts.len());
        let tokens = self.draw(30) as u64;
        self.end_attempt_with(position, tokens);
    }

    fn end_attempt_with(&mut self, position: usize, tokens: u64) {
        let Attempt { run: key, generation, call_id, began_at } = self.attempts.swap_remove(position);
        let spend = vec![Spend::on("m").tokens(Tokens { input: tokens, ..Tokens::default() })];
        let ledger_name = Some("m".to_owned());
        let ended =
            TaskAttemptEnded { call_id, generation, attempt: 1, claim: 1, began_at, ledger_name, failure_code: None, spend };
        let left = self.left(&key);
        if self.input(&key, Input::attempt_ended(ended)).is_ok() {
            self.over += tokens.saturating_sub(left);
        }
    }

    fn left(&self, key: &RunKey) -> u64 {
        let head = &self.runs[key].head;
        let budget = head.budget.as_ref().expect("a child of a run with a budget has one");
        budget.left(head.spend.as_deref(), self.now).tokens.expect("and so are its tokens limited")
    }

    fn start_children(&mut self, key: &RunKey) {
        let mut events = Vec::new();
        for _ in 0..=self.draw(3) {
            let (is_spawned, requested) = (self.draw(3) == 0, (self.draw(2) == 0).then(|| self.draw(80) as u64));
            events.push(self.child(key, is_spawned, requested).into());
        }
        if self.draw(8) == 0 {
            events.push(RunContinued { input: Payload::null(), checkpoint: None }.into());
        }
        self.commit(key, events);
    }

    fn start_child(&mut self, key: &RunKey, tokens: u64) {
        let child = self.child(key, false, Some(tokens));
        self.commit(key, vec![child.into()]);
    }

    fn child(&mut self, key: &RunKey, is_spawned: bool, requested: Option<u64>) -> ChildStarted {
        let run = self.runs.get_mut(key).expect("it is there");
        run.ordinal += 1;
        let (call_id, generation) = (CallId::root(run.ordinal), run.head.generation);
        let child = match is_spawned {
            true => reopen::spawned_id(&key.id, generation, &call_id, run.head.incarnation.unwrap_or_default()),
            false => reopen::child_id(&key.id, generation, &call_id),
        };
        run.spawned.extend(is_spawned.then(|| child.clone()));
        let (input, on_parent_close) = (Payload::null(), OnParentClose::Abandon);
        let budget = requested.map(|tokens| Budget::default().tokens(tokens));
        let (kind, input_hash, version) = (name("k"), Hash::of(&input), None);
        ChildStarted { call_id, child, kind, version, input_hash, input, on_parent_close, is_spawned, budget, queue: None }
    }

    fn await_spawned(&mut self, key: &RunKey) {
        let spawned = self.runs[key].spawned.clone();
        if spawned.is_empty() {
            return;
        }
        let child = spawned[self.draw(spawned.len())].clone();
        let run = self.runs.get_mut(key).expect("it is there");
        run.ordinal += 1;
        let call_id = CallId::root(run.ordinal);
        self.commit(key, vec![ChildAwaited { call_id, child }.into()]);
    }

    fn deliver(&mut self, outbox: OutboxMessage) {
        let (to, input) = match outbox {
            OutboxMessage::Start(run) if self.runs.contains_key(&run.key) => return,
            OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => return self.start(run),
            OutboxMessage::Input { to, input } => (to, input),
        };
        if let Some(once) = &input.once
            && !self.received.insert((to.clone(), once.key.clone()))
        {
            return;
        }
        let child_ended = matches!(input.event, Event::ChildCompleted(_) | Event::ChildFailed(_));
        match (self.input(&to, input.clone()), input.event) {
            (Err(_), Event::ResultRequested(request)) => {
                let spent = self.runs[&to].head.budget_used();
                self.outbox.push(answer_to(&request.by, &to.id, Ok(Payload::null())).with_spent(spent));
            }
            (Ok(()), _) if child_ended => self.saw("given back"),
            _ => {}
        }
    }

    fn deliver_all(&mut self) {
        while !self.outbox.is_empty() {
            let outbox = self.outbox.remove(0);
            self.deliver(outbox);
        }
    }

    fn retry(&mut self, key: &RunKey) {
        let run = &self.runs[key];
        let Ok(reopened) = reopen::retry(&run.head, &run.log, &Retry::new("r"), self.now) else { return };
        let head = RunHead::rebuild(key.clone(), &reopened.records).expect("a log has a start");
        let (ordinal, spawned) = (run.ordinal, run.spawned.clone());
        self.runs.insert(key.clone(), SimulatedRun { head, log: reopened.records, ordinal, spawned });
        self.saw(if reopened.outbox.is_empty() { "retried" } else { "retried with children" });
        self.outbox.extend(reopened.outbox);
    }

    fn resume(&mut self, key: &RunKey) {
        let more = (self.draw(2) == 0).then(|| self.draw(20) as u64);
        let limit = self.runs[key].head.budget.as_ref().and_then(|budget| budget.limit.tokens).expect("it is limited");
        let budget = more.map(|more| Budget::default().tokens(limit + more));
        self.more += more.unwrap_or_default();
        self.input(key, Input::new(RunResumed { budget })).expect("a paused run can be resumed");
    }

    /// Returns the use of all runs.
    fn spent(&self) -> u64 {
        self.runs.values().filter_map(|run| run.head.spend.as_ref()).map(|totals| totals.tokens.total()).sum()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a constant name")
}

fn key(id: &str) -> RunKey {
    RunKey::new(Namespace::default(), RunId::new(id).expect("a constant name"))
}

#[test]
fn a_tree_of_runs_spends_no_more_than_its_first_may_but_for_what_was_under_way() {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let mut most = 0;
    for seed in 0..400 {
        let mut trees = Trees::new(seed);
        for _ in 0..400 {
            trees.step();
            let (spent, may) = (trees.spent(), LIMIT + trees.over + trees.more);
            assert!(spent <= may, "spent {spent}, the limit is {may}");
        }
        most = most.max(trees.spent());
        trees.seen.iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
    }
    // The scenarios were covered.
    for what in ["paused", "continued", "given back", "retried", "retried with children"] {
        assert!(seen.get(what).is_some_and(|count| *count > 20), "{what}: {seen:?}");
    }
    assert!(most > LIMIT, "no tree has exhausted its budget: {most}");
}

/// Forks a run that has spent something, at the end of a commit.
#[test]
fn a_fork_begins_with_what_was_left_at_its_point() {
    let mut trees = Trees::new(1);
    let root = key("root");
    let budget = Budget::default().tokens(LIMIT).seconds(100).turns(3);
    let started = RunStarted { budget: Some(Box::new(BudgetHead::of(budget))), ..RunStarted::new(name("k"), Payload::null(), 1) };
    trees.start(NewRun { key: root.clone(), started, signal: None });
    trees.attempt(&root);
    trees.end_attempt_with(0, 30);
    trees.now = trees.now.after(std::time::Duration::from_secs(40));
    trees.start_child(&root, 50);
    let point = trees.runs[&root].log.last().expect("it has records").last_index();
    trees.attempt(&root);
    trees.end_attempt_with(0, 60);
    trees.now = trees.now.after(std::time::Duration::from_secs(500));
    for (children, left) in [(OpenChildren::Await, 120), (OpenChildren::Restart, 120)] {
        let fork = Fork {
            key: key("fork"),
            index: Some(point),
            is_reset: false,
            keep_signals: false,
            children,
            version: None,
            seed: 2,
            request_id: String::new(),
            reason: String::new(),
            include_outcome_unknown: false,
            caller: None,
            budget_max: None,
        };
        let run = &trees.runs[&root];
        let forked = reopen::fork(&run.head, Vec::new(), &run.log, &fork, trees.now).expect("it is the end of a commit");
        let head = RunHead::rebuild(fork.key.clone(), &forked.logs[0]).expect("a log has a start");
        let budget = head.budget.expect("it has one");
        assert_eq!(head.spend, None, "the original has the cost");
        let expected = Budget::default().tokens(left).seconds(60).turns(3);
        assert_eq!(budget.left(None, trees.now), expected, "30 and a slice of 50 are gone, and 40 seconds");
    }
}

/// No call awaits its result, and its parent is in a later generation.
#[test]
fn what_a_spawned_child_leaves_is_its_parents_again_when_it_ends() {
    let mut trees = Trees::new(1);
    let root = key("root");
    let child = trees.child(&root, true, Some(50));
    let spawned = RunKey::new(root.namespace.clone(), child.child.clone());
    trees.commit(&root, vec![child.into()]);
    trees.deliver_all();
    trees.attempt(&spawned);
    trees.end_attempt_with(0, 10);
    trees.commit(&root, vec![RunContinued { input: Payload::null(), checkpoint: None }.into()]);
    assert_eq!(trees.left(&root), LIMIT - 50);
    trees.commit(&spawned, vec![RunCompleted { output: Payload::null(), attempts: None }.into()]);
    trees.deliver_all();
    assert_eq!(trees.left(&root), LIMIT - 10);
    assert_eq!(trees.runs[&root].head.status, Status::Pending, "the code does not observe it");
    trees.await_spawned(&root);
    trees.deliver_all();
    trees.check_rebuilt(&root);
    assert_eq!(trees.left(&root), LIMIT - 10, "nothing is returned twice");
}
