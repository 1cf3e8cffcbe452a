//! The model: starts in a world where processes die before and after a write, replies are lost, messages are repeated, clocks go
//! back, and servers act on what they read earlier.
//!
//! Every write is compared with [`Plain`] and checked against the invariants. A run plays one seed.

use std::collections::{BTreeMap, BTreeSet};

use super::plain::{Plain, PlainAnswer, PlainAsk};
use super::*;
use crate::budget::{Budget, BudgetHead};
use crate::event::TerminateRequested;
use crate::random::RandomGenerator;
use crate::run::Again;
use crate::start_policy::{StartAnswer, StartOutcome};
use crate::time::millis;
use crate::{Hash, Index};

/// Number of seeds of the ordinary run.
const CASES: u64 = 4_000;
const STEPS: u32 = 60;
const HOUR: u64 = 3_600_000;

macro_rules! check {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+));
        }
    };
}

/// A cell as a store keeps it.
struct StoredCell {
    head: RunHead,
    logs: Vec<Vec<Record>>,
    slots: BTreeMap<String, (String, usize, Index)>,
    timer: Option<u64>,
}

/// A request of a caller, which it repeats until it has an answer.
struct Request {
    ask: PolicyAsk,
    taken_at: Option<u64>,
    answer: Option<StartAnswer>,
}

enum Appended {
    Done(StartAnswer),
    Closed,
    /// The process died before or after the write, or the reply was lost.
    Lost,
}

struct World {
    random: RandomGenerator,
    policy: PolicyType,
    now: u64,
    cells: [Option<StoredCell>; 2],
    stale: ([Option<RunHead>; 2], u64),
    /// Messages, with the run that sent one.
    outbox: Vec<(OutboxMessage, Option<RunId>)>,
    runs: BTreeMap<RunId, RunHead>,
    failed: BTreeSet<RunId>,
    plain: Plain,
    /// The runs of the groups of the plain reference.
    groups: Vec<RunId>,
    sent: Vec<NewRun>,
    canceled: BTreeSet<RunId>,
    requests: Vec<Request>,
    next: u64,
    dies: bool,
    is_long: bool,
    /// The number of cells that followed another one.
    turns: usize,
}

fn play(seed: u64) -> Result<World, String> {
    let mut random = RandomGenerator::new(seed);
    let policy = *random.choice(PolicyType::ALL).unwrap();
    // Some cells are busy for more than one generation.
    let is_long = random.chance(0.003);
    let steps = if is_long { 3_000 } else { STEPS };
    let mut world = World {
        random,
        policy,
        now: 1_790_000_000_000,
        cells: [None, None],
        stale: ([None, None], 0),
        outbox: Vec::new(),
        runs: BTreeMap::new(),
        failed: BTreeSet::new(),
        plain: Plain::default(),
        groups: Vec::new(),
        sent: Vec::new(),
        canceled: BTreeSet::new(),
        requests: Vec::new(),
        next: 0,
        dies: true,
        is_long,
        turns: 0,
    };
    for _ in 0..steps {
        world.step()?;
    }
    world.settle()?;
    Ok(world)
}

impl World {
    fn step(&mut self) -> Result<(), String> {
        match self.random.integer(0..20) {
            0..=7 => self.ask(),
            8..=9 => self.repeat(),
            10..=11 => self.pass_time(),
            12..=13 => self.tick(),
            14..=16 => self.deliver(),
            17 => {
                self.end_a_run();
                Ok(())
            }
            18 => self.reopen(),
            _ => {
                self.stale = (self.heads(), self.now);
                self.expire();
                Ok(())
            }
        }
    }

    fn policy(&mut self) -> StartPolicy {
        let key = "k".to_owned();
        let window_ms = self.random.integer(1..200);
        match self.policy {
            PolicyType::Singleton => {
                let on_conflict = *self.random.choice(OnConflict::ALL).unwrap();
                StartPolicy::Singleton(Singleton { key, on_conflict })
            }
            PolicyType::Debounce => {
                let max_wait_ms = self.random.chance(0.7).then(|| window_ms + self.random.integer(0..300));
                StartPolicy::Debounce(Debounce { key, window_ms, max_wait_ms })
            }
            PolicyType::Batch => StartPolicy::Batch(Batch { key, size_max: self.random.integer(1..6), window_ms }),
        }
    }

    fn options(&mut self) -> RunOptions {
        // Batches of several credentials have cells of their own.
        let names: &[&str] = if self.policy == PolicyType::Batch { &["ada"] } else { &["ada", "bob"] };
        let requester = Some((*self.random.choice(names).unwrap()).to_owned());
        let limit = |seconds| Box::new(BudgetHead::of(Budget { seconds: Some(seconds), ..Budget::default() }));
        let granted = self.random.chance(0.2).then(|| limit(self.random.integer(1..3)));
        let trace = self.random.chance(0.5).then(|| self.next.to_string());
        RunOptions { requester, granted, trace, ..RunOptions::default() }
    }

    fn ask(&mut self) -> Result<(), String> {
        self.next += 1;
        let bytes = if self.random.chance(0.03) { self.random.integer(30_000..60_000) } else { 0 };
        let request_id = self.random.chance(0.8).then(|| name(&format!("q{}", self.next)));
        let (policy, options) = (self.policy(), self.options());
        let input = Payload::from_json_text(format!("\"{}{}\"", self.next, "x".repeat(bytes)));
        let ask = PolicyAsk { policy, run: RunId::new("-").unwrap(), options, input, request_id };
        self.requests.push(Request { ask, taken_at: None, answer: None });
        self.send(self.requests.len() - 1)
    }

    /// Repeats a request whose reply was lost, or that the caller has forgotten to have an answer to.
    fn repeat(&mut self) -> Result<(), String> {
        let limit = self.now.saturating_sub(millis(KEPT_FOR) - 2 * HOUR);
        let is_repeatable = |request: &Request| request.ask.request_id.is_some() && request.taken_at.is_none_or(|at| at > limit);
        let repeatable: Vec<usize> = (0..self.requests.len()).filter(|at| is_repeatable(&self.requests[*at])).collect();
        match self.random.choice(&repeatable) {
            Some(at) => self.send(*at),
            None => Ok(()),
        }
    }

    fn heads(&self) -> [Option<RunHead>; 2] {
        [0, 1].map(|at| self.cells[at].as_ref().map(|cell| cell.head.clone()))
    }

    /// Sends a request as a server does: it reads both cells, asks the ended one about the id, and then the current one.
    fn send(&mut self, at: usize) -> Result<(), String> {
        self.next += 1;
        // Every attempt proposes another run.
        let run = RunId::new(format!("run-{}", self.next)).unwrap();
        let ask = PolicyAsk { run, ..self.requests[at].ask.clone() };
        let is_stale = self.random.chance(0.1) && self.now.saturating_sub(self.stale.1) < HOUR;
        let mut heads = if is_stale { self.stale.0.clone() } else { self.heads() };
        let appended = loop {
            let route = route([heads[0].as_ref(), heads[1].as_ref()]);
            if let (Some(ended), Some(_)) = (route.ended, &ask.request_id)
                && let Appended::Done(answer) = self.append(ended, &ask, at)?
            {
                break Appended::Done(answer);
            }
            let current = route.current;
            let is_closed = |cell: &StoredCell| cell.head.status.is_closed();
            if route.outdated && self.cells[current].as_ref().is_some_and(is_closed) {
                self.cells[current] = None;
            }
            match (&self.cells[current], route.is_open) {
                (None, false) => break self.begin(current, &ask, at)?,
                (None, true) => {}
                (Some(_), _) => match self.append(current, &ask, at)? {
                    Appended::Closed => {}
                    appended => break appended,
                },
            }
            heads = self.heads();
        };
        let Appended::Done(answer) = appended else { return Ok(()) };
        match &self.requests[at].answer {
            Some(first) => check!(*first == answer, "a repeat has another answer: {first:?}, {answer:?}"),
            None => self.requests[at].answer = Some(answer),
        }
        Ok(())
    }

    fn dies(&mut self) -> bool {
        self.dies && self.random.chance(0.05)
    }

    /// Starts a cell with a start, in one write.
    fn begin(&mut self, at: usize, ask: &PolicyAsk, request: usize) -> Result<Appended, String> {
        if self.dies() {
            return Ok(Appended::Lost);
        }
        let cell = PolicyCell::of(&ask.policy, &name("report"), ask.options.requester.as_deref());
        let key = RunKey::new(Namespace::default(), cell.ids()[at].clone());
        let new = start_cell(key, cell, ask.clone(), self.next);
        let (head, first) = RunHead::start(new.key, new.started, Timestamp(self.now));
        self.turns += usize::from(self.cells[1 - at].is_some());
        self.cells[at] = Some(StoredCell { head, logs: vec![vec![first]], slots: BTreeMap::new(), timer: None });
        self.write(at, *new.signal.expect("it comes with a start"), None)?;
        self.taken(at, ask, request)
    }

    fn append(&mut self, at: usize, ask: &PolicyAsk, request: usize) -> Result<Appended, String> {
        let Some(cell) = &self.cells[at] else { return Ok(Appended::Closed) };
        if let Some(once) = ask.once()
            && let Some((token, log, index)) = cell.slots.get(&once.key)
        {
            check!(once.again(token) == Again::Repeated, "a repeat is another request");
            let record = cell.logs[*log].iter().find(|record| record.index == *index).expect("the slot names a record");
            let Event::StartDecided(decided) = &record.events[0] else { return Err("a slot of another event".to_owned()) };
            return Ok(Appended::Done(decided.answer().expect("it is a start")));
        }
        if cell.head.status.is_closed() {
            return Ok(Appended::Closed);
        }
        if self.dies() {
            return Ok(Appended::Lost);
        }
        self.write(at, PolicyInput::Ask(Box::new(ask.clone())).into(), None)?;
        self.taken(at, ask, request)
    }

    /// Notes that a start was accepted for the first time.
    fn taken(&mut self, at: usize, ask: &PolicyAsk, request: usize) -> Result<Appended, String> {
        check!(self.requests[request].taken_at.is_none(), "request {:?} counts twice", ask.request_id);
        self.requests[request].taken_at = Some(self.now);
        let cell = self.cells[at].as_ref().expect("it was written");
        let mut records = cell.logs.iter().rev().flatten().rev().filter(|record| record.index.0 > 0);
        let is_its = |record: &&Record| matches!(&record.events[0], Event::StartDecided(decided) if matches!(&decided.input, PolicyInput::Ask(own) if own.run == ask.run));
        let record = records.find(is_its).expect("it was written");
        let Event::StartDecided(decided) = &record.events[0] else { return Err("another event".to_owned()) };
        let answer = decided.answer().expect("it is a start");
        Ok(if self.dies() { Appended::Lost } else { Appended::Done(answer) })
    }

    /// Writes an input to an open cell, and compares the result with the reference.
    fn write(&mut self, at: usize, input: Input, from: Option<&RunId>) -> Result<(), String> {
        let cell = self.cells[at].as_mut().expect("there is a cell");
        let (now, once) = (self.now, input.once.clone());
        let admitted = cell.head.admit_input(input, None, Timestamp(now)).map_err(|refused| refused.to_string())?;
        let index = admitted.record.index;
        let Event::StartDecided(decided) = admitted.record.events[0].clone() else { return Err("another event".to_owned()) };
        cell.logs.last_mut().expect("a log").push(admitted.record);
        if let Some(once) = once {
            cell.slots.insert(once.key, (once.token, cell.logs.len() - 1, index));
        }
        let mut effects = admitted.effects;
        if let Some(next) = admitted.successor {
            let (head, first) = RunHead::start(next.key, next.started, Timestamp(now));
            effects.extend(head.start_effects(&first));
            cell.head = head;
            cell.logs.push(vec![first]);
        }
        let mut sent = Vec::new();
        for effect in effects {
            match effect {
                Effect::StartTimer { due_at, .. } => cell.timer = Some(due_at.0),
                Effect::StopTimer { .. } | Effect::EndRun { .. } => cell.timer = None,
                Effect::Send(message) => sent.push(*message),
                other => return Err(format!("an effect {other:?}")),
            }
        }
        check_logs(cell)?;
        self.compare(at, &decided, sent, from)
    }

    fn compare(
        &mut self,
        at: usize,
        decided: &StartDecided,
        sent: Vec<OutboxMessage>,
        from: Option<&RunId>,
    ) -> Result<(), String> {
        let known = self.plain.runs.len();
        match &decided.input {
            PolicyInput::Ask(ask) => {
                let options =
                    (ask.options.requester.clone(), ask.options.granted.as_ref().and_then(|granted| granted.limit.seconds));
                let input = String::from_utf8(ask.input.data().to_vec()).expect("a text");
                let expected = self.plain.ask(PlainAsk { at: self.now, policy: ask.policy.clone(), input, options });
                self.compare_answer(expected, &decided.answer().expect("it is a start"))?;
            }
            PolicyInput::Due(_) => self.plain.pass(self.now),
            PolicyInput::Ended(_) => {
                let group = self.groups.iter().position(|run| Some(run) == from).expect("a run of a group ends");
                self.plain.end(group);
            }
        }
        for message in sent {
            match &message {
                OutboxMessage::Start(run) => self.sent.push(run.clone()),
                OutboxMessage::Input { to, .. } => drop(self.canceled.insert(to.id.clone())),
                other @ OutboxMessage::StartFromTemplate { .. } => return Err(format!("{other:?}")),
            }
            self.outbox.push((message, None));
        }
        check!(
            self.sent.len() == self.plain.runs.len(),
            "{} runs start, {} are expected",
            self.sent.len(),
            self.plain.runs.len()
        );
        for (run, expected) in self.sent[known..].iter().zip(&self.plain.runs[known..]) {
            let RunStarted { input, requester, budget, .. } = &run.started;
            check!(run.key.id == self.groups[expected.group], "SP2: {} is not the run of its group", run.key.id);
            check!(input.data().as_ref() == expected.input.as_bytes(), "SP3, SP4: {input:?} is not {}", expected.input);
            let options = (requester.clone(), budget.as_ref().and_then(|granted| granted.limit.seconds));
            check!(options == expected.options, "SP5: {options:?} is not {:?}", expected.options);
        }
        let canceled: BTreeSet<RunId> = self.plain.canceled.iter().map(|group| self.groups[*group].clone()).collect();
        check!(canceled == self.canceled, "{canceled:?} are to be canceled, not {:?}", self.canceled);
        self.compare_timer(at)
    }

    fn compare_timer(&self, at: usize) -> Result<(), String> {
        let cell = self.cells[at].as_ref().expect("there is a cell");
        let created = cell.head.start_policy.as_ref().expect("a cell").created_at.0;
        let expected = match self.plain.due() {
            None if self.plain.is_idle() && !cell.head.status.is_closed() => Some(created + millis(KEPT_FOR)),
            due => due,
        };
        check!(cell.timer == expected, "SS2: the timer is at {:?}, not at {expected:?}", cell.timer);
        check!(!cell.head.status.is_closed() || self.plain.is_idle(), "SP2: a cell ends that is not idle");
        Ok(())
    }

    fn compare_answer(&mut self, expected: PlainAnswer, answer: &StartAnswer) -> Result<(), String> {
        let (group, outcome, due_at) = match expected {
            PlainAnswer::Started(group) => (group, StartOutcome::Started, None),
            PlainAnswer::Skipped(group) => (group, StartOutcome::Skipped, None),
            PlainAnswer::Held(group, due_at) => (group, StartOutcome::Held, due_at),
        };
        if group == self.groups.len() {
            check!(!self.groups.contains(&answer.run), "two runs have the id {}", answer.run);
            self.groups.push(answer.run.clone());
        }
        let found = (&answer.run, answer.outcome, answer.due_at.map(|at| at.0));
        check!(found == (&self.groups[group], outcome, due_at), "the answer is {found:?}, not {:?}", (group, outcome, due_at));
        Ok(())
    }

    fn pass_time(&mut self) -> Result<(), String> {
        match self.random.integer(0..40) {
            0..=2 if !self.is_long => self.now += self.random.integer(0..2 * millis(KEPT_FOR)),
            3..=6 => self.now -= self.random.integer(0..100),
            _ => self.now += self.random.integer(0..120),
        }
        Ok(())
    }

    /// Lets the timers look at the clock; a timer may also be early, or fire twice.
    fn tick(&mut self) -> Result<(), String> {
        for at in [0, 1] {
            let is_due = |cell: &StoredCell| cell.timer.is_some_and(|timer| timer <= self.now);
            let is_open = |cell: &StoredCell| !cell.head.status.is_closed();
            let cell = self.cells[at].as_ref();
            if cell.is_some_and(is_due) || (cell.is_some_and(is_open) && self.random.chance(0.1)) {
                let due = self.cells[at].as_ref().expect("it is there").head.timer_input(wake_call());
                self.write(at, due, None)?;
            }
        }
        Ok(())
    }

    /// Delivers the first message to some receiver; a death leaves it in the outbox.
    fn deliver(&mut self) -> Result<(), String> {
        let mut receivers = BTreeSet::new();
        let firsts: Vec<usize> =
            (0..self.outbox.len()).filter(|at| receivers.insert(self.outbox[*at].0.receiver().clone())).collect();
        let Some(&at) = self.random.choice(&firsts) else { return Ok(()) };
        let (message, from) = self.outbox[at].clone();
        if !self.dies() {
            self.outbox.remove(at);
        }
        match message {
            OutboxMessage::Start(run) => self.start(run),
            OutboxMessage::Input { to, input } if matches!(input.event, Event::CancelRequested(_)) => {
                if let Some(run) = self.runs.get_mut(&to.id) {
                    check!(
                        run.parent.as_ref().map(|link| &link.run) == input.child_of.as_ref(),
                        "a cell cancels a run of others"
                    );
                }
                Ok(())
            }
            OutboxMessage::Input { to, input } => {
                let is_to = |cell: &Option<StoredCell>| {
                    cell.as_ref().is_some_and(|cell| cell.head.key == to && !cell.head.status.is_closed())
                };
                let Some(at) = self.cells.iter().position(is_to) else { return Ok(()) };
                let cell = &self.cells[at].as_ref().expect("it is there").head;
                match input.incarnation == cell.origin_incarnation() {
                    true => self.write(at, input, from.as_ref()),
                    false => Ok(()),
                }
            }
            other @ OutboxMessage::StartFromTemplate { .. } => Err(format!("{other:?}")),
        }
    }

    fn start(&mut self, run: NewRun) -> Result<(), String> {
        let id = run.key.id.clone();
        if let Some(known) = self.runs.get(&id) {
            check!(known.incarnation == Some(run.started.seed), "SP2: two starts of {id}");
            return Ok(());
        }
        if self.failed.contains(&id) {
            return Ok(());
        }
        let parent = run.started.parent.clone().expect("it is a child");
        if self.random.chance(0.03) {
            let answer = crate::run::answer_to(&parent, &id, Err(Failure::new("kind_internal", "no")));
            self.failed.insert(id.clone());
            self.outbox.push((answer, Some(id)));
            return Ok(());
        }
        let open: Vec<&RunId> = self.runs.iter().filter(|(_, run)| !run.status.is_closed()).map(|(id, _)| id).collect();
        check!(self.policy != PolicyType::Singleton || open.is_empty(), "SP1: {id} starts while {open:?} is open");
        let (head, _) = RunHead::start(run.key, run.started, Timestamp(self.now));
        self.runs.insert(id, head);
        Ok(())
    }

    fn end_a_run(&mut self) {
        let open: Vec<RunId> = self.runs.iter().filter(|(_, run)| !run.status.is_closed()).map(|(id, _)| id.clone()).collect();
        let Some(id) = self.random.choice(&open) else { return };
        let run = self.runs.get_mut(id).expect("it is there");
        let end = TerminateRequested { reason: String::new(), reset_to: None };
        let effects = run.admit_input(Input::new(end), None, Timestamp(self.now)).expect("an open run ends").effects;
        for effect in effects {
            if let Effect::Send(message) = effect {
                self.outbox.push((*message, Some(id.clone())));
            }
        }
    }

    /// Rebuilds the cells from their logs (L16).
    fn reopen(&mut self) -> Result<(), String> {
        for cell in self.cells.iter_mut().flatten() {
            let log = cell.logs.last().expect("a log");
            let projection = Projection::of(cell.head.key.clone(), log).expect("a log begins with a start");
            check!(projection.head == cell.head, "L16: {:?}", cell.head.key);
            let timer = projection.timers.get(&wake_call()).map(|timer| timer.due_at.0);
            check!(timer == cell.timer, "J1: the timer is at {:?}, not at {timer:?}", cell.timer);
            for (key, slot) in projection.slots {
                let stored = cell.slots.get(&key).map(|(token, _, index)| (token, *index));
                check!(stored == Some((&slot.token, slot.index)), "J1: {key}");
            }
            cell.head = projection.head;
        }
        Ok(())
    }

    /// Removes cells that ended long ago, as the retention of runs does.
    fn expire(&mut self) {
        for cell in &mut self.cells {
            let is_over = |cell: &StoredCell| cell.head.ended_at.is_some_and(|ended| ended.after(KEPT_FOR).0 <= self.now);
            if cell.as_ref().is_some_and(is_over) {
                *cell = None;
            }
        }
    }

    /// Lets everything come to its end: callers get their answers, runs start and end, cells end.
    fn settle(&mut self) -> Result<(), String> {
        self.dies = false;
        let unanswered = |request: &Request| request.ask.request_id.is_some() && request.answer.is_none();
        let limit = self.now.saturating_sub(millis(KEPT_FOR) - 2 * HOUR);
        for at in 0..self.requests.len() {
            if unanswered(&self.requests[at]) && self.requests[at].taken_at.is_none_or(|taken| taken > limit) {
                self.send(at)?;
            }
        }
        for _ in 0..10_000 {
            while !self.outbox.is_empty() {
                self.deliver()?;
            }
            if self.runs.values().any(|run| !run.status.is_closed()) {
                self.end_a_run();
                continue;
            }
            match self.cells.iter().flatten().filter_map(|cell| cell.timer).min() {
                None => break,
                Some(timer) => self.now = self.now.max(timer),
            }
            self.tick()?;
        }
        check!(self.cells.iter().flatten().all(|cell| cell.head.status.is_closed()), "SP8: a cell stays");
        check!(self.plain.is_idle(), "SP2: {:?} is held for ever", self.plain.due());
        for request in &self.requests {
            let Some(answer) = &request.answer else { continue };
            let is_there = self.runs.contains_key(&answer.run) || self.failed.contains(&answer.run);
            check!(is_there, "SP2: {} never starts", answer.run);
        }
        check!(self.runs.len() + self.failed.len() == self.plain.runs.len(), "SP2: the numbers of runs differ");
        self.reopen()
    }
}

/// Checks that the log of a cell is one, and that its head follows from it.
fn check_logs(cell: &StoredCell) -> Result<(), String> {
    let log = cell.logs.last().expect("a log");
    let events: usize = log.iter().map(|record| record.events.len()).sum();
    check!(events as u64 <= EVENTS_MAX, "SS5: {events} events");
    // Long logs are loaded at their ends only.
    if log.len() < 10 || log.len().is_multiple_of(37) {
        Log::load(log.clone()).map_err(|error| error.to_string())?;
        check!(RunHead::rebuild(cell.head.key.clone(), log).as_ref() == Some(&cell.head), "SP6: {:?}", cell.head.key);
    }
    Ok(())
}

#[test]
fn random_starts_clocks_ends_and_deaths_agree_with_the_plain_reference() {
    let first = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok());
    let (from, cases) = first.map_or((0, CASES), |seed| (seed, 1));
    let (mut runs, mut generations, mut turns, mut hashes) = (0, 0, 0, BTreeSet::new());
    for seed in from..from + cases {
        let world = play(seed).unwrap_or_else(|why| panic!("seed {seed}: {why}; repeat it with ONWARD_SEED={seed}"));
        runs += world.runs.len();
        generations += world.cells.iter().flatten().filter(|cell| cell.logs.len() > 1).count();
        turns += world.turns;
        hashes.insert(Hash::of(&Payload::from_json_text(format!("{:?}", world.groups))));
    }
    if first.is_none() {
        println!("{cases} seeds, {runs} runs, {generations} long logs, {turns} cells after another one");
        assert!(runs > 10_000 && generations > 3 && turns > 300 && hashes.len() > 1_000, "the worlds are too simple");
    }
}
