//! Random flows on the machine and on a plain reference interpreter: turn by turn, both make the same calls with the same inputs,
//! cancel the same ones, and end in the same way, with the same state.
//!
//! `ONWARD_FLOW_SEED` plays one case, `ONWARD_FLOW_CASES` another number of cases.

#[path = "../random_flows/mod.rs"]
mod random_flows;
mod world;

use std::sync::Arc;

use onward_flow::document::Flow;
use onward_flow::machine::{CallId, FlowFailure, Machine, Plan, ProgressState, RunFacts, Turn};
use serde_json::{Value, json};

use random_flows::random::Random;
use random_flows::reference::Reference;
use random_flows::{generate, reference};
use world::{Answer, World};

const CASES: u64 = 5_000;

/// The number of answers after which a run is canceled, and after which it is given up.
const ANSWERS_MAX: (usize, usize) = (120, 200);

#[test]
fn random_flows_equal_the_reference() {
    if let Some(seed) = number("ONWARD_FLOW_SEED") {
        let flow = generate::flow(seed);
        println!("{}", serde_json::to_string_pretty(&flow).expect("a flow is JSON"));
        println!("{:?}", play(seed, &flow, true));
        return;
    }
    let cases = number("ONWARD_FLOW_CASES").unwrap_or(CASES);
    let (mut sum, mut failed) = (Summary::default(), Vec::new());
    for seed in 0..cases {
        let flow = generate::flow(seed);
        let played = std::panic::catch_unwind(|| play(seed, &flow, false));
        match played {
            Ok(played) => sum.add(&played),
            Err(_) => failed.push(seed),
        }
        assert!(failed.len() < 3, "the cases above failed; play them alone with ONWARD_FLOW_SEED: {failed:?}");
    }
    assert!(failed.is_empty(), "the case above failed; play it alone with ONWARD_FLOW_SEED={}", failed[0]);
    println!("{cases} cases, seeds 0 to {}: {sum:?}", cases - 1);
    sum.assert_all_seen(cases);
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{variable} is not a number")))
}

/// What happened in cases, to see that the generator reaches everything.
#[derive(Debug, Default)]
struct Summary {
    answers: usize,
    completed: usize,
    failed: usize,
    given_up: usize,
    canceled: usize,
    undone: usize,
    forked: usize,
    joined: usize,
    replayed: usize,
    memos: usize,
    kinds: std::collections::BTreeMap<String, usize>,
    codes: std::collections::BTreeMap<String, usize>,
}

impl Summary {
    fn add(&mut self, other: &Summary) {
        self.answers += other.answers;
        self.completed += other.completed;
        self.failed += other.failed;
        self.given_up += other.given_up;
        self.canceled += other.canceled;
        self.undone += other.undone;
        self.forked += other.forked;
        self.joined += other.joined;
        self.replayed += other.replayed;
        self.memos += other.memos;
        other.kinds.iter().for_each(|(kind, count)| *self.kinds.entry(kind.clone()).or_default() += count);
        other.codes.iter().for_each(|(code, count)| *self.codes.entry(code.clone()).or_default() += count);
    }

    /// Asserts that the cases reach what they are for.
    fn assert_all_seen(&self, cases: u64) {
        if cases < 1_000 {
            return;
        }
        for code in ["boom", "fatal", "timed_out", "canceled", "output_invalid", "expression_failed"] {
            assert!(self.codes.contains_key(code), "no flow has failed with {code}");
        }
        let least = cases as usize / 50;
        let counts =
            [self.completed, self.failed, self.canceled, self.undone, self.forked, self.joined, self.replayed, self.memos];
        assert!(counts.iter().all(|count| *count > least), "{self:?}");
        assert!(self.given_up < least, "{self:?}");
    }
}

/// A machine with all answers that it got, and all that it did.
struct Run {
    plan: Arc<Plan>,
    input: Value,
    machine: Machine,
    turns: Vec<Turn>,
    answers: Vec<(CallId, Answer)>,
}

impl Run {
    fn start(flow: &Flow, input: Value) -> Run {
        let plan = Plan::new(flow).unwrap_or_else(|problems| panic!("the generator makes valid flows: {problems:?}"));
        let plan = Arc::new(plan.limited(reference::LIMITS));
        let (machine, turn) = Machine::start(plan.clone(), input.clone(), facts());
        Run { plan, input, machine, turns: vec![turn], answers: Vec::new() }
    }

    fn answer(&mut self, call: CallId, answer: Answer) {
        let turn = self.machine.answer(call, answer.clone());
        self.answers.push((call, answer));
        self.turns.push(turn);
    }

    /// Replaces the machine by a new one that gets the same answers (FW1).
    fn die_and_replay(&mut self) {
        let (mut machine, turn) = Machine::start(self.plan.clone(), self.input.clone(), facts());
        assert_eq!(turn, self.turns[0], "FW1: the first turn");
        for (at, (call, answer)) in self.answers.iter().enumerate() {
            let turn = machine.answer(*call, answer.clone());
            assert_eq!(turn, self.turns[at + 1], "FW1: the turn after answer {at}");
        }
        self.machine = machine;
    }

    fn last(&self) -> &Turn {
        self.turns.last().expect("a run has a first turn")
    }
}

fn facts() -> RunFacts {
    RunFacts { id: "run-1".to_owned() }
}

fn input(random: &mut Random) -> Value {
    match random.below(60) {
        0 => json!({ "k": "x" }),
        1 => json!({ "k": 1, "other": true }),
        2..20 => Value::Null,
        _ => json!({ "k": random.below(4) }),
    }
}

/// Plays a case. Panics where the machine and the reference differ.
fn play(seed: u64, flow: &Flow, is_shown: bool) -> Summary {
    let mut random = Random::of(seed, "play");
    let mut summary = Summary::default();
    // Checking takes longer than playing.
    if seed.is_multiple_of(10) {
        generate::assert_valid(flow);
    }
    let mut world = World::new(seed);
    let input = input(&mut random);
    let (mut reference, mut expected) = Reference::start(flow, input.clone(), "run-1", reference::LIMITS);
    let mut run = Run::start(flow, input);
    loop {
        if is_shown {
            println!("{:?}", run.last());
        }
        assert_equal(run.last(), &expected);
        assert_eq!(run.machine.state(), reference.state(), "the state of the main path");
        world.see(&run.last().cancels, &run.last().calls);
        summary.see(run.last());
        assert_eq!(run.machine.has_ended(), !world.any_open(), "FW4, FW5");
        assert!(world.open().all(|call| run.machine.is_open(call.id)), "FW2");
        if run.machine.has_ended() || run.answers.len() >= ANSWERS_MAX.1 {
            break;
        }
        if run.answers.len() == ANSWERS_MAX.0 {
            world.cancel();
            summary.canceled += 1;
        }
        if random.chance(3) {
            run.die_and_replay();
            summary.replayed += 1;
        }
        let (call, answer) = world.answer();
        if is_shown {
            println!("-- {call}: {answer:?}");
        }
        expected = reference.answer(call, answer.clone());
        run.answer(call, answer);
    }
    run.die_and_replay();
    assert_over(&mut run);
    summary.end(&run);
    summary
}

fn assert_equal(turn: &Turn, expected: &reference::Turn) {
    assert_eq!(turn.calls, expected.calls, "calls");
    let mut cancels = turn.cancels.clone();
    cancels.sort_unstable();
    assert_eq!(cancels, expected.cancels, "cancels");
    assert_eq!(turn.end, expected.end, "end");
}

/// Asserts that a machine does nothing for answers of calls that are not open (FW2), and nothing after its end (FW4).
fn assert_over(run: &mut Run) {
    for call in 0..100 {
        if !run.machine.is_open(call) {
            assert_eq!(run.machine.answer(call, Ok(Value::Null)), Turn::default(), "FW2, FW4: call {call}");
        }
    }
    if run.machine.has_ended() {
        let mut last = std::collections::BTreeMap::new();
        let all = run.turns.iter().flat_map(|turn| &turn.progress);
        all.for_each(|progress| {
            last.insert(progress.step.as_str(), progress);
        });
        for (step, progress) in last {
            assert_ne!(progress.state, ProgressState::Running, "the step {step} of a run that is over");
        }
    }
}

impl Summary {
    fn see(&mut self, turn: &Turn) {
        for call in &turn.calls {
            let kind = format!("{:?}", call.request);
            let kind = kind.split(' ').next().unwrap_or_default().to_owned();
            *self.kinds.entry(kind).or_default() += 1;
            self.memos += usize::from(call.memo.is_some());
        }
        self.undone += usize::from(turn.undoes);
        self.forked += turn.progress.iter().filter(|progress| progress.next.len() > 1).count();
    }

    fn end(&mut self, run: &Run) {
        self.answers = run.answers.len();
        match &run.last().end {
            Some(Ok(_)) => self.completed += 1,
            Some(Err(FlowFailure { code, .. })) => {
                self.failed += 1;
                *self.codes.entry(code.clone()).or_default() += 1;
            }
            None => self.given_up += 1,
        }
        self.canceled += usize::from(run.turns.iter().any(|turn| !turn.cancels.is_empty()));
        self.joined += usize::from(run.machine.state().to_string().contains("\"a\":{"));
    }
}
