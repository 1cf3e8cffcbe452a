//! The golden logs of start policies: every input, and changes of every type.

use onward_core::budget::{Budget, BudgetHead};
use onward_core::event::RunPaused;
use onward_core::run::Input;
use onward_core::schedule::{Ended, Ending};
use onward_core::start_policy::{
    Batch, Debounce, KEPT_FOR, PolicyAsk, PolicyCell, PolicyDue, PolicyInput, RunOptions, Singleton, StartPolicy,
};
use onward_core::start_policy_run::start_cell;
use onward_core::{Attribute, AttributeValue, Log, Name, Namespace, Payload, RunHead, RunId, RunKey, Status, Timestamp};

/// 2027-01-15T08:00:00Z.
const START: u64 = 1_800_000_000_000;

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn ask(policy: StartPolicy, run: &str, request_id: Option<&str>) -> PolicyAsk {
    let options = RunOptions {
        version: Some(name("v2")),
        attributes: vec![Attribute { name: name("team"), value: AttributeValue::Text("a".to_owned()) }],
        deadline_ms: Some(3_600_000),
        trace: None,
        requester: Some("ada".to_owned()),
        granted: Some(Box::new(BudgetHead::of(Budget::default().tokens(100)))),
    };
    let run = RunId::new(run).expect("an id");
    PolicyAsk { policy, run, options, input: Payload::from_json_text("{\"n\":1}"), request_id: request_id.map(name) }
}

fn key(policy: &StartPolicy) -> RunKey {
    let [first, _] = PolicyCell::of(policy, &name("report"), Some("ada")).ids();
    RunKey::new(Namespace::default(), first)
}

fn record(first: PolicyAsk, inputs: Vec<(u64, PolicyInput)>) -> Log {
    let (key, cell) = (key(&first.policy), PolicyCell::of(&first.policy, &name("report"), Some("ada")));
    let start = start_cell(key, cell, first, 3);
    let (mut head, first) = RunHead::start(start.key, start.started, Timestamp(START));
    let mut log = Log::load(vec![first]).expect("a log begins so");
    let signal = start.signal.map(|signal| (0, *signal));
    let inputs = inputs.into_iter().map(|(offset, input)| (offset, Input::from(input)));
    for (offset, input) in signal.into_iter().chain(inputs) {
        let admitted = head.admit_input(input, None, Timestamp(START + offset)).expect("a cell takes it");
        log.push(admitted.record).expect("it follows");
    }
    log
}

fn asked(ask: PolicyAsk) -> PolicyInput {
    PolicyInput::Ask(Box::new(ask))
}

fn due() -> PolicyInput {
    PolicyInput::Due(PolicyDue {})
}

fn singleton_policy() -> StartPolicy {
    StartPolicy::Singleton(Singleton::new("k").cancel())
}

fn debounce_policy() -> StartPolicy {
    StartPolicy::Debounce(Debounce::new("k", std::time::Duration::from_secs(10)))
}

fn batch_policy() -> StartPolicy {
    StartPolicy::Batch(Batch::new("k", 2, std::time::Duration::from_secs(10)))
}

/// Records a singleton that skips, replaces, and starts after the end of its run.
pub fn singleton() -> Log {
    let skip = || StartPolicy::Singleton(Singleton::new("k"));
    let ended = |number| PolicyInput::Ended(Ended { number, ending: Ending::Canceled, code: Some("canceled".to_owned()) });
    let inputs = vec![
        (1, asked(ask(skip(), "b", None))),
        (2, asked(ask(singleton_policy(), "c", Some("q")))),
        (3, asked(ask(singleton_policy(), "d", None))),
        (4, ended(0)),
        (5, ended(1)),
    ];
    record(ask(skip(), "a", Some("p")), inputs)
}

/// Records a debounced start that is replaced and started, and the end of the cell.
pub fn debounce() -> Log {
    let kept = u64::try_from(KEPT_FOR.as_millis()).expect("a day");
    let inputs = vec![(5_000, asked(ask(debounce_policy(), "b", Some("q")))), (15_000, due()), (kept, due())];
    record(ask(debounce_policy(), "a", None), inputs)
}

/// Records a batch that is full, and one whose window ends.
pub fn batch() -> Log {
    let inputs =
        vec![(1, asked(ask(batch_policy(), "b", None))), (2, asked(ask(batch_policy(), "c", Some("q")))), (10_002, due())];
    record(ask(batch_policy(), "a", None), inputs)
}

fn head(log: &Log, policy: &StartPolicy) -> RunHead {
    RunHead::rebuild(key(policy), log.records()).expect("the log begins with a start")
}

/// Checks the log, which has no code: the store derives its head from it.
pub fn read_singleton(log: &Log) -> Result<(), Box<RunPaused>> {
    let head = head(log, &singleton_policy());
    let policy = head.start_policy.expect("it is a cell");
    assert!(policy.is_idle() && policy.next_number == 2 && head.status == Status::Waiting);
    Ok(())
}

/// Checks the log of an ended cell.
pub fn read_debounce(log: &Log) -> Result<(), Box<RunPaused>> {
    let head = head(log, &debounce_policy());
    assert_eq!((head.status, head.start_policy.expect("it is a cell").next_number), (Status::Completed, 1));
    Ok(())
}

/// Checks the log of a batch.
pub fn read_batch(log: &Log) -> Result<(), Box<RunPaused>> {
    let policy = head(log, &batch_policy()).start_policy.expect("it is a cell");
    assert!(policy.is_idle() && policy.next_number == 2);
    Ok(())
}
