//! The judgement of a case: the reference gets the answers that the code of each run got, and the log and the effects are compared with
//! what it did.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use onward::{Payload, Status};
use onward_core::task::idempotency_key;
use onward_core::{Event, Failure, Index, Name, Record, RunHead};
use onward_flow::machine::{Call, CallRequest, FlowFailure};
use serde_json::{Value, json};

use super::effects::Execution;
use super::process::{Given, LIMITS};
use super::random_flows::reference::{Reference, Turn};
use super::run_log::RunLog;
use super::story::{self, REASON, Story};

/// What happened in cases, to see that they reach everything.
#[derive(Debug, Default)]
pub struct Summary {
    pub cases: u64,
    pub writes: u64,
    deaths: usize,
    calls: usize,
    completed: usize,
    failed: usize,
    given_up: usize,
    interrupted: usize,
    executed: usize,
    again: usize,
    hits: usize,
    kinds: BTreeMap<&'static str, usize>,
}

impl Summary {
    pub fn add(&mut self, other: &Summary) {
        self.cases += other.cases;
        self.deaths += other.deaths;
        self.calls += other.calls;
        self.completed += other.completed;
        self.failed += other.failed;
        self.given_up += other.given_up;
        self.interrupted += other.interrupted;
        self.executed += other.executed;
        self.again += other.again;
        self.hits += other.hits;
        other.kinds.iter().for_each(|(kind, count)| *self.kinds.entry(kind).or_default() += count);
    }

    /// Asserts that the cases reach what they are for.
    pub fn assert_all_seen(&self) {
        if self.cases < 1_000 {
            return;
        }
        let least = self.cases as usize / 50;
        assert!(self.deaths > 35 * least && self.given_up < 2 * least, "{self:?}");
        let counts = [self.completed, self.failed, self.interrupted, self.executed, self.again, self.hits];
        assert!(counts.iter().chain(self.kinds.values()).all(|count| *count > least) && self.kinds.len() == 7, "{self:?}");
    }
}

/// Judges a case that was played.
pub fn judge(story: &Story) -> Summary {
    let mut summary = Summary { cases: 1, writes: story.writes, deaths: story.deaths, ..Summary::default() };
    let wrong = story.shared.effects.wrong.lock().unwrap();
    assert!(wrong.is_empty(), "{wrong:?}\n{}", story.show());
    let executed = story.shared.effects.executed.lock().unwrap();
    let mut known = BTreeSet::new();
    let mut received = BTreeSet::new();
    for (at, (head, log)) in story::ends(story).into_iter().enumerate() {
        let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let run = RunLog::of(&head, &log);
            let given = story.shared.taps.of(&head.key.id);
            let indices = run.check_given(&given);
            let (calls, end) = refer(story, at, &run, &given, &indices);
            run.check_calls(&calls);
            run.check_end(&end, story.is_given_up);
            (run.keys(&calls), calls)
        }));
        let (keys, calls) = judged.unwrap_or_else(|panic| {
            println!("{}\n{}", head.key.id, story.show());
            std::panic::resume_unwind(panic)
        });
        check_executed(&keys, &calls, &log, &head, &executed, story.deaths);
        known.extend(keys.into_keys());
        summary.see(&head, &log, &calls);
        let signals = log.iter().flat_map(|record| &record.events).filter_map(|event| match event {
            Event::SignalReceived(signal) => signal.signal_id.clone(),
            _ => None,
        });
        received.extend(signals);
    }
    let lost: Vec<_> = story.acknowledged.difference(&received).collect();
    // A signal whose first request was recorded may be repeated after the end; none is lost.
    assert!(lost.is_empty() || story.deaths > 0, "signals were acknowledged and are not in the log: {lost:?}");
    assert!(executed.iter().all(|execution| known.contains(&execution.key)), "an effect belongs to no call: {executed:?}");
    summary.executed = executed.len();
    summary.again = executed.len() - executed.iter().map(|execution| &execution.key).collect::<BTreeSet<_>>().len();
    summary
}

type End = Option<Result<Value, FlowFailure>>;

/// Plays the reference with the answers that the code got, at these indices. Returns its calls that were made, and its end.
fn refer(story: &Story, at: usize, run: &RunLog<'_>, given: &[Given], indices: &[Index]) -> (Vec<Call>, End) {
    let (flow, input, id) = (&story.shared.flow, story.inputs[at].clone(), run.head.key.id.as_str());
    let (mut reference, turn) = Reference::start(flow, input, id, LIMITS);
    let is_interrupted = given.iter().any(|(_, result)| matches!(result, Err(failure) if failure.is_canceled()));
    let cancel_due = run.canceled_at().filter(|_| !is_interrupted);
    let mut game = Game { run, calls: Vec::new(), open: BTreeSet::new(), answered: VecDeque::new(), end: None, cancel_due };
    game.see(turn, Index(0));
    let (mut given, mut index) = (given.iter().zip(indices), Index(0));
    loop {
        if let Some((call, answer)) = game.answered.pop_front() {
            game.open.remove(&call);
            game.see(reference.answer(call, answer), index);
            continue;
        }
        let Some(((number, result), now)) = given.next() else { break };
        index = *now;
        assert!(game.end.is_none(), "the code gets answers after the end of the reference");
        let call = game.calls.get(*number as usize).unwrap_or_else(|| panic!("the reference makes no call {number}")).id;
        assert!(game.open.remove(&call), "the code gets an answer for a call that the reference does not await: {number}");
        game.see(reference.answer(call, of_result(result)), index);
    }
    (game.calls, game.end)
}

/// The reference with the calls that it made.
struct Game<'r, 'l> {
    run: &'r RunLog<'l>,
    /// The calls that reach the engine, by number.
    calls: Vec<Call>,
    open: BTreeSet<u32>,
    /// Answers that came with their calls.
    answered: VecDeque<(u32, Result<Value, FlowFailure>)>,
    end: End,
    /// Where a request to cancel was that interrupted nothing: it interrupts the next call.
    cancel_due: Option<Index>,
}

impl Game<'_, '_> {
    /// Takes the turn after the event at this index.
    fn see(&mut self, turn: Turn, after: Index) {
        for canceled in turn.cancels {
            self.open.remove(&canceled);
            self.answered.retain(|(call, _)| *call != canceled);
        }
        for call in turn.calls {
            self.open.insert(call.id);
            if let CallRequest::Signal { name, .. } = &call.request
                && let Err(error) = Name::new(name)
            {
                let message = format!("the name of the signal is not valid: {error}");
                self.answered.push_back((call.id, Err(FlowFailure::permanent("invalid_arguments", message))));
                continue;
            }
            if call.label.ends_with(".undo") {
                self.cancel_due = None; // nothing interrupts compensation
            }
            if self.cancel_due.take_if(|at| *at < after).is_some() {
                self.answered.push_back((call.id, Err(of_failure(&Failure::canceled(REASON)))));
            } else if let Some(answer) = self.run.answer_at_once(self.calls.len()) {
                self.answered.push_back((call.id, answer));
            }
            self.calls.push(call);
        }
        self.end = turn.end;
    }
}

fn of_result(result: &onward::Result<Payload>) -> Result<Value, FlowFailure> {
    match result {
        Ok(payload) => Ok(payload.read().unwrap()),
        Err(failure) => Err(of_failure(failure)),
    }
}

fn of_failure(failure: &Failure) -> FlowFailure {
    let details = failure.details.as_ref().map(|details| details.read().unwrap());
    let (code, message) = (failure.code.clone(), failure.to_string());
    FlowFailure { code, message, retryable: failure.retryable, details, step: None }
}

/// Checks the executions of effects: they are those of the reference, and none was executed once more than processes died.
fn check_executed(
    keys: &BTreeMap<String, usize>,
    calls: &[Call],
    log: &[Record],
    head: &RunHead,
    executed: &[Execution],
    deaths: usize,
) {
    let mut by_key: BTreeMap<&str, Vec<&Execution>> = BTreeMap::new();
    executed.iter().for_each(|execution| by_key.entry(&execution.key).or_default().push(execution));
    for (key, number) in keys {
        let (call, executions) = (&calls[*number], by_key.remove(key.as_str()).unwrap_or_default());
        for execution in &executions {
            match &call.request {
                CallRequest::Task { input, .. } => assert_eq!(execution.input, *input),
                CallRequest::Action { action, arguments, .. } => {
                    assert_eq!(execution.input, json!({ "action": action, "arguments": arguments }));
                }
                CallRequest::Model { prompt, .. } => assert_eq!(execution.input["settings"]["ask"], json!(prompt)),
                other => panic!("{other:?} is not executed"),
            }
        }
        let completed = executions.iter().filter(|execution| execution.answer.is_ok()).count();
        assert!(completed <= 1 + deaths, "{call:?} of {} was completed {completed} times, with {deaths} deaths", head.key.id);
    }
    for event in log.iter().flat_map(|record| &record.events) {
        if let Event::TaskCompleted(task) = event {
            let key = idempotency_key(&head.key, 0, &task.call_id);
            let output = Ok(task.output.read::<Value>().unwrap());
            let is_answer = executed.iter().any(|execution| execution.key == key && execution.answer == output);
            assert!(is_answer, "{task:?} is not what the world answered");
        }
    }
}

impl Summary {
    fn see(&mut self, head: &RunHead, log: &[Record], calls: &[Call]) {
        self.calls += calls.len();
        match head.status {
            Status::Completed => self.completed += 1,
            Status::Failed | Status::Canceled => self.failed += 1,
            _ => self.given_up += 1,
        }
        let events = || log.iter().flat_map(|record| &record.events);
        self.interrupted += usize::from(events().any(|event| matches!(event, Event::CancelRequested(_))));
        self.hits += events().filter(|event| matches!(event, Event::MemoAnswered(answered) if answered.hit.is_some())).count();
        for call in calls {
            let kind = match call.request {
                CallRequest::Task { .. } => "task",
                CallRequest::Action { .. } => "action",
                CallRequest::Model { .. } => "model",
                CallRequest::Child { .. } => "child",
                CallRequest::Approval { .. } => "approval",
                CallRequest::Signal { .. } => "signal",
                CallRequest::Sleep { .. } => "sleep",
            };
            *self.kinds.entry(kind).or_default() += 1;
        }
    }
}
