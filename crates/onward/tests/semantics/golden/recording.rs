//! The events of the runs whose logs are golden.

use onward::prelude::*;
use onward::testing::World;
use onward_core::budget::{Budget, BudgetUse};
use onward_core::conversation::OutsideEntry;
use onward_core::event::{
    ApprovalDecided, BranchRequested, CancelRequested, ChildCompleted, ChildFailed, ChildSettled, Divergence, MemoAnswered,
    MemoAsked, MemoHit, MemoInvalidated, MemoReturned, MemoSettled, OnParentClose, ParentLink, PauseReason, PromiseResolved,
    ResultRequested, RunPaused, RunResumed, SignalReceived, TaskAttemptEnded, TaskAttempted, TaskCompleted, TaskFailed,
    TerminateRequested, UpdateReceived,
};
use onward_core::external::{ExternalAppended, ExternalState};
use onward_core::log::CommitHeader;
use onward_core::memo::{MemoCaller, MemoCell, MemoScope, start_cell};
use onward_core::run::{Input, NewRun};
use onward_core::spend::{PicoDollars, Spend, Tokens};
use onward_core::{
    CallId, CommitId, Epoch, Event, Index, Log, Name, Namespace, Payload, Record, RunHead, RunId, RunKey, Status, Timestamp,
};

use super::workflows;

fn json(text: &str) -> Payload {
    Payload::from_json_text(text.to_owned())
}

fn name(text: &str) -> Name {
    Name::new(text).expect("a name")
}

fn run_until_idle(world: &mut World) {
    world.run_until_idle().expect("the code replays");
}

fn input(world: &mut World, event: impl Into<Event>) {
    world.input(event).expect("an open run takes inputs");
    run_until_idle(world);
}

fn signal(world: &mut World, signal: &str, text: &str) {
    let event = SignalReceived { name: name(signal), payload: json(text), signal_id: Some(format!("id-{signal}")), sender: None };
    input(world, event);
}

fn fire(world: &mut World) {
    let (call_id, _) = world.next_timer().expect("a timer runs");
    world.fire_timer(&call_id);
    run_until_idle(world);
}

/// Returns the call ids of the selected calls, in order.
fn call_ids(world: &World, of: impl Fn(&Event) -> Option<&CallId>) -> Vec<CallId> {
    world.log().events().filter_map(|(_, event)| of(event).cloned()).collect()
}

fn task_call_ids(world: &World) -> Vec<CallId> {
    call_ids(world, |event| if let Event::TaskScheduled(event) = event { Some(&event.call_id) } else { None })
}

fn complete(world: &mut World, call_id: CallId, text: &str) {
    input(world, TaskCompleted { call_id, output: json(text), attempts: 1, ran: None });
}

/// Records an agent that is brief, pays, and crashes; the next process is polite and finds the payment.
pub fn agent() -> Log {
    let mut world = World::new_agent(workflows::agent, &()).dep(false);
    run_until_idle(&mut world);
    let [call_id] = &task_call_ids(&world)[..] else { panic!("one task") };
    let call_id = call_id.clone();
    world
        .input(TaskAttempted { call_id: call_id.clone(), attempt: 1, ledger_name: None, began_at: None })
        .expect("an open run takes attempts");
    world.crash();
    let mut world = world.dep(true);
    complete(&mut world, call_id, "\"receipt\"");
    world.past_logs()[0].clone()
}

/// Records a branch: while the agent works on one message, another one replaces it.
pub fn branched() -> Log {
    let mut world = World::new_agent(workflows::branched, &());
    run_until_idle(&mut world);
    signal(&mut world, "message", "\"where is it?\"");
    let started = world.log().records()[0].started().expect("a log begins with its start").clone();
    let checkpoint = started.checkpoint.expect("it has taken one");
    let (role, content) = (Name::new("user").expect("a name"), json("\"where is the other one?\""));
    let entry = Some(OutsideEntry { role, content, idempotency_key: None });
    let (from, depth, request_id) = (checkpoint.leaf, checkpoint.depth, Some("branch-1".to_owned()));
    input(&mut world, BranchRequested { from, depth, entry, checkpoint, input: started.input, request_id });
    world.past_logs()[1].clone()
}

/// Records two children of an agent: one sends a message and ends, the other is stopped.
pub fn handed() -> Log {
    let mut world = World::new_agent(workflows::handed, &());
    run_until_idle(&mut world);
    let awaited = call_ids(&world, |event| if let Event::ChildAwaited(event) = event { Some(&event.call_id) } else { None });
    let started = world.log().events().find_map(|(_, event)| match event {
        Event::ChildStarted(event) => Some(event.child.clone()),
        _ => None,
    });
    let child = started.expect("it has spawned");
    let sender = Some(RunKey::new(Default::default(), child.clone()));
    let (name, payload) = (Name::new("message").expect("a name"), json("\"halfway\""));
    world.input(SignalReceived { name, payload, signal_id: None, sender }).expect("an open run takes signals");
    input(
        &mut world,
        ChildCompleted { call_id: awaited[0].clone(), output: json("\"the Danube\""), child: Some(child), spent: None },
    );
    world.past_logs()[0].clone()
}

fn finished(world: World) -> Log {
    assert_ne!(world.output(), "open", "a recorded run has ended");
    world.log().clone()
}

pub fn steps() -> Log {
    let mut world = World::new(workflows::steps, "order-1");
    run_until_idle(&mut world);
    fire(&mut world);
    fire(&mut world);
    finished(world)
}

pub fn tasks() -> Log {
    let mut world = World::new(workflows::tasks, &());
    run_until_idle(&mut world);
    let call_ids = task_call_ids(&world);
    let failure = Failure::new("no_paper", "out of paper");
    input(&mut world, TaskFailed { call_id: call_ids[1].clone(), failure, attempts: 4, ran: None });
    complete(&mut world, call_ids[0].clone(), "5");
    finished(world)
}

/// Records the same with tasks that cost something: one has reported its cost, one never does.
pub fn spending() -> Log {
    let mut world = World::new(workflows::tasks, &());
    run_until_idle(&mut world);
    let call_ids = task_call_ids(&world);
    let began_at = Some(world.now());
    for call_id in &call_ids {
        let attempted = TaskAttempted { call_id: call_id.clone(), attempt: 1, ledger_name: Some("small".to_owned()), began_at };
        input(&mut world, attempted);
    }
    let failure = Failure::new("no_paper", "out of paper");
    input(&mut world, TaskFailed { call_id: call_ids[1].clone(), failure, attempts: 4, ran: None });
    let tokens = Tokens { input: 1_000, cached_read: 500, cached_write: 7, output: 300, reasoning: 100 };
    let known = Spend::on("small").by("acme").tokens(tokens).cost(PicoDollars(810_000_000));
    let began_at = world.now();
    input(
        &mut world,
        TaskAttemptEnded {
            call_id: call_ids[0].clone(),
            generation: 0,
            attempt: 1,
            claim: 1,
            began_at,
            ledger_name: Some("small".to_owned()),
            failure_code: None,
            spend: vec![known, Spend::unknown("large")],
        },
    );
    complete(&mut world, call_ids[0].clone(), "5");
    finished(world)
}

pub fn budgets() -> Log {
    let mut world = World::new(workflows::budgets, &());
    run_until_idle(&mut world);
    let (call_id, began_at, ledger_name) = (task_call_ids(&world)[0].clone(), world.now(), Some("ask".to_owned()));
    input(
        &mut world,
        TaskAttempted { call_id: call_id.clone(), attempt: 1, ledger_name: ledger_name.clone(), began_at: Some(began_at) },
    );
    let spend = vec![Spend::on("small").tokens(Tokens { input: 30, output: 10, ..Tokens::default() })];
    let ended = TaskAttemptEnded {
        call_id: call_id.clone(),
        generation: 0,
        attempt: 1,
        claim: 1,
        began_at,
        ledger_name,
        failure_code: None,
        spend,
    };
    input(&mut world, ended);
    complete(&mut world, call_id, "5");
    let children =
        |world: &World| call_ids(world, |event| if let Event::ChildStarted(event) = event { Some(&event.call_id) } else { None });
    let spent = Some(BudgetUse { tokens: 12, cost: PicoDollars(0) });
    let call_id = children(&world)[0].clone();
    input(&mut world, ChildCompleted { call_id, output: json("1"), child: None, spent });
    let message = "the run has spent what it may: its tokens".to_owned();
    input(&mut world, RunPaused::because(PauseReason::BudgetExhausted, message));
    input(&mut world, RunResumed { budget: Some(Budget::default().tokens(200)) });
    let call_id = children(&world)[1].clone();
    input(&mut world, ChildFailed { call_id, failure: Failure::fatal("lost"), child: None, spent });
    finished(world)
}

pub fn settled() -> Log {
    let mut world = World::new(workflows::settled, &());
    run_until_idle(&mut world);
    signal(&mut world, "look", "null");
    let started = world.log().events().find_map(|(_, event)| match event {
        Event::ChildStarted(event) => Some(event.child.clone()),
        _ => None,
    });
    let spent = BudgetUse { tokens: 12, cost: PicoDollars(0) };
    world
        .input(ChildSettled { child: started.expect("it has spawned"), spent })
        .expect("an open run takes what its children leave");
    signal(&mut world, "look", "null");
    assert_eq!(world.output(), "[60,88]");
    finished(world)
}

pub fn timers() -> Log {
    let mut world = World::new(workflows::timers, &());
    run_until_idle(&mut world);
    fire(&mut world);
    fire(&mut world);
    let quick = task_call_ids(&world)[0].clone();
    complete(&mut world, quick, "null");
    fire(&mut world);
    finished(world)
}

pub fn signals() -> Log {
    let mut world = World::new(workflows::signals, &());
    world.signal("b", &7);
    run_until_idle(&mut world);
    signal(&mut world, "a", "\"first\"");
    let sender = Some(onward_core::RunKey::new(Default::default(), onward_core::RunId::new("friend").expect("a name")));
    let greeting = SignalReceived { name: name("user.greeting"), payload: json("\"hi\""), signal_id: None, sender };
    input(&mut world, greeting);
    signal(&mut world, "a", "\"second\"");
    fire(&mut world);
    finished(world)
}

/// Records a run with a start time: its first signal comes before the code begins.
pub fn delayed() -> Log {
    let mut world = World::new(workflows::late, &()).start_after(hours(2));
    run_until_idle(&mut world);
    signal(&mut world, "a", "\"early\"");
    fire(&mut world);
    signal(&mut world, "b", "null");
    finished(world)
}

pub fn approvals() -> Log {
    let mut world = World::new(workflows::approvals, &());
    run_until_idle(&mut world);
    let decide = |call_id: u32, approved: bool, feedback: Option<&str>, by: Option<&str>| ApprovalDecided {
        call_id: CallId::root(call_id),
        approved,
        feedback: feedback.map(str::to_owned),
        decided_by: by.map(str::to_owned),
        answer: None,
        decision_id: format!("decision-{call_id}"),
    };
    input(&mut world, decide(0, true, None, Some("ada")));
    input(&mut world, decide(1, false, Some("too late in the day"), None));
    fire(&mut world);
    finished(world)
}

pub fn promises() -> Log {
    let mut world = World::new(workflows::promises, &());
    run_until_idle(&mut world);
    let resolve = |call_id: u32, result| PromiseResolved {
        call_id: CallId::root(call_id),
        result,
        resolution_id: format!("hook-{call_id}"),
    };
    input(&mut world, resolve(1, Err(Failure::fatal("declined").with_code("declined"))));
    input(&mut world, resolve(0, Ok(json("\"done\""))));
    fire(&mut world);
    finished(world)
}

pub fn children() -> Log {
    let mut world = World::new(workflows::children, &());
    run_until_idle(&mut world);
    let call_ids = call_ids(&world, |event| if let Event::ChildStarted(event) = event { Some(&event.call_id) } else { None });
    input(&mut world, ChildCompleted { call_id: call_ids[1].clone(), output: json("\"grown up\""), child: None, spent: None });
    input(&mut world, ChildFailed { call_id: call_ids[0].clone(), failure: Failure::fatal("lost"), child: None, spent: None });
    finished(world)
}

pub fn state() -> Log {
    let mut world = World::new(workflows::state, &());
    run_until_idle(&mut world);
    for turn in 0..3 {
        signal(&mut world, "turn", &turn.to_string());
    }
    finished(world)
}

pub fn versions() -> Log {
    let mut world = World::new(workflows::versions, &());
    run_until_idle(&mut world);
    signal(&mut world, "go", "null");
    finished(world)
}

pub fn updates() -> Log {
    let mut world = World::new(workflows::updates, &());
    let update = |id: &str, text: &str| UpdateReceived { update_id: id.to_owned(), name: name("add"), payload: json(text) };
    input(&mut world, update("early", "2"));
    signal(&mut world, "open", "null");
    input(&mut world, update("refused", "0"));
    input(&mut world, update("late", "3"));
    signal(&mut world, "close", "null");
    finished(world)
}

pub fn canceled() -> Log {
    let mut world = World::new(workflows::trip, &());
    run_until_idle(&mut world);
    input(&mut world, CancelRequested::new("no holiday".to_owned()));
    finished(world)
}

pub fn failed() -> Log {
    let mut world = World::new(workflows::failing, &());
    run_until_idle(&mut world);
    finished(world)
}

/// Records a generation that continues as new: the world shows the next log at once, so the last record is built here.
pub fn continued() -> Log {
    let mut world = World::new(workflows::pages, &Vec::<u32>::new());
    world.signal("s", &1);
    world.signal("s", &2);
    let mut log = Log::default();
    while world.log().next_index() > log.next_index() || log.records().is_empty() {
        log = world.log().clone();
        let draft = world.activate().expect("the code replays").expect("the run does not wait");
        let header = CommitHeader {
            n: draft.n,
            epoch: Epoch(1),
            commit_id: CommitId(9),
            horizon: draft.horizon,
            waits: draft.waits,
            is_while_paused: draft.is_while_paused,
        };
        let record = Record { index: log.next_index(), at: world.now(), commit: Some(header), events: draft.events.clone() };
        let ends = record.ends_log();
        world.commit(draft);
        if ends {
            log.push(record).expect("the record fits the log");
            return log;
        }
    }
    panic!("the run continues as new");
}

/// Records the generation after it, with the signal that was carried over.
pub fn carried() -> Log {
    let mut world = World::new(workflows::pages, &Vec::<u32>::new());
    world.signal("s", &1);
    world.signal("s", &2);
    run_until_idle(&mut world);
    finished(world)
}

pub fn terminated() -> Log {
    let mut world = World::new(workflows::waiting, &());
    run_until_idle(&mut world);
    let divergence = Divergence {
        index: Index(1),
        recorded: "a timer at 0".to_owned(),
        attempted: "step `new` at 0".to_owned(),
        nearest: None,
        hint: "deploy the change as a new version".to_owned(),
    };
    let message = "at event #1: recorded a timer at 0, the code asked for step `new` at 0".to_owned();
    world
        .input(RunPaused { divergence: Some(divergence), ..RunPaused::because(PauseReason::Diverged, message) })
        .expect("an open run takes inputs");
    world.input(RunResumed::default()).expect("an open run takes inputs");
    run_until_idle(&mut world);
    world.input(TerminateRequested { reason: "out of patience".to_owned(), reset_to: None }).expect("an open run takes inputs");
    world.log().clone()
}

pub fn branches() -> Log {
    let mut world = World::new(workflows::branches, &());
    run_until_idle(&mut world);
    for (call_id, text) in task_call_ids(&world).into_iter().zip(["\"lost\"", "\"won\"", "\"a\"", "\"b\""]).rev() {
        complete(&mut world, call_id, text);
    }
    signal(&mut world, "s", "\"signal\"");
    finished(world)
}

pub fn payloads() -> Log {
    let mut world =
        World::new(workflows::payloads, &serde_json::json!({"b": [1, 2.5, -0.0], "a": null, "größe": "\u{1f980}\u{7f}\"\\/"}));
    let bytes = Payload::binary("application/octet-stream", vec![0u8, 255, 10, 13, 128]);
    input(&mut world, SignalReceived { name: name("bytes"), payload: bytes, signal_id: None, sender: None });
    signal(&mut world, "text", r#""\u00e9\u0000 e\u0301 \ud83e\udd80""#);
    let call_id = task_call_ids(&world)[0].clone();
    complete(&mut world, call_id, "9007199254740993");
    finished(world)
}

/// Records a run that is still open: every later build must be able to continue it.
pub fn open() -> Log {
    let mut world = World::new(workflows::waiting, &());
    run_until_idle(&mut world);
    fire(&mut world);
    assert_eq!(world.output(), "open");
    world.log().clone()
}

/// Records a run that failed because of its task and its child, and was retried twice.
pub fn retried() -> Log {
    let mut world = World::new(workflows::reopened, &());
    run_until_idle(&mut world);
    let task = task_call_ids(&world)[0].clone();
    let child =
        call_ids(&world, |event| if let Event::ChildStarted(event) = event { Some(&event.call_id) } else { None })[0].clone();
    input(&mut world, TaskFailed { call_id: task.clone(), failure: Failure::fatal("no paper"), attempts: 1, ran: None });
    world.retry().expect("a failed run can be retried");
    run_until_idle(&mut world);
    let by = ParentLink {
        run: RunKey::new(Default::default(), RunId::new("fork").expect("a name")),
        generation: 0,
        call_id: CallId::root(3),
        on_parent_close: OnParentClose::Abandon,
        incarnation: None,
        is_spawned: false,
    };
    input(&mut world, ResultRequested { by });
    complete(&mut world, task, "2");
    input(&mut world, ChildFailed { call_id: child.clone(), failure: Failure::fatal("lost"), child: None, spent: None });
    world.retry().expect("a failed run can be retried");
    run_until_idle(&mut world);
    input(&mut world, ChildCompleted { call_id: child, output: json("3"), child: None, spent: None });
    finished(world)
}

/// Records a run that continues from a copy of another one, with a signal that was carried over.
pub fn forked() -> Log {
    let mut world = World::new(workflows::reopened, &());
    run_until_idle(&mut world);
    signal(&mut world, "nobody-waits", "1");
    let mut fork = world.fork("fork", Some(Index(6)), true).expect("a commit ends there");
    run_until_idle(&mut fork);
    let child =
        call_ids(&fork, |event| if let Event::ChildStarted(event) = event { Some(&event.call_id) } else { None })[0].clone();
    let task = task_call_ids(&fork)[0].clone();
    complete(&mut fork, task, "2");
    input(&mut fork, ChildCompleted { call_id: child, output: json("3"), child: None, spent: None });
    finished(fork)
}

fn external_key() -> RunKey {
    RunKey::new(Namespace::default(), RunId::new("run_1").expect("an id"))
}

/// Records calls with memos: a hit, a computed result, and a call that was dropped.
pub fn memos() -> Log {
    let mut world = World::new(workflows::memos, &());
    run_until_idle(&mut world);
    let cell = RunId::new("memo:00112233445566778899aabbccddeeff").expect("an id");
    let (from, from_call) = (RunId::new("other").expect("an id"), CallId::root(3));
    let hit = MemoHit { output: json("\"recorded\""), from, from_call, computed_at: Timestamp(1_700_000_000_000) };
    input(&mut world, MemoAnswered { call_id: CallId::root(0), cell: cell.clone(), hit: Some(hit), grant: None });
    input(&mut world, MemoAnswered { call_id: CallId::root(1), cell, hit: None, grant: Some(u64::MAX) });
    complete(&mut world, CallId::root(1), "\"computed\"");
    finished(world)
}

fn cell_key() -> RunKey {
    let id = MemoCell { scope: MemoScope::Namespace, key: "k".to_owned(), tree: None }.id();
    RunKey::new(Namespace::default(), id)
}

/// Records the cell of a memo: it is invalidated while its first owner computes, returned by the second and settled by the third.
pub fn cell() -> Log {
    let caller = |id: &str| MemoCaller {
        run: RunKey::new(Namespace::default(), RunId::new(id).expect("an id")),
        generation: 0,
        call_id: CallId::root(0),
        incarnation: Some(7),
    };
    let memo = MemoCell { scope: MemoScope::Namespace, key: "k".to_owned(), tree: None };
    let asked = |id: &str| MemoAsked { by: caller(id), cell: memo.clone(), ttl_ms: 60_000, waited_for: None };
    let computed_at = Timestamp(1_800_000_000_000);
    let settled = |id: &str| MemoSettled { by: caller(id), ttl_ms: 60_000, output: Some(json("42")), computed_at };
    let started = start_cell(cell_key(), asked("a"), 3).started;
    let (mut head, first) = RunHead::start(cell_key(), started, Timestamp(1_800_000_000_000));
    let mut log = Log::load(vec![first]).expect("a log begins so");
    let inputs: [Event; 7] = [
        asked("a").into(),
        asked("b").into(),
        asked("c").into(),
        MemoInvalidated { reason: "a new price list".to_owned() }.into(),
        settled("a").into(),
        MemoReturned { by: caller("b") }.into(),
        settled("c").into(),
    ];
    for (number, event) in (1..).zip(inputs) {
        let at = Timestamp(1_800_000_000_000 + number);
        let admitted = head.admit_input(Input::new(event), None, at).expect("a cell takes it");
        log.push(admitted.record).expect("it follows");
    }
    log
}

/// Checks the log of a cell, which has no code: the store derives its head from it.
pub fn read_cell(log: &Log) -> Result<(), Box<RunPaused>> {
    let head = RunHead::rebuild(cell_key(), log.records()).expect("the log begins with a start");
    let value = head.cell.and_then(|cell| cell.value).expect("it has a value");
    assert_eq!((value.from.run.id.as_str(), head.status), ("c", Status::Completed));
    Ok(())
}

/// Records an external run: created, waiting, continued and ended, each with a state from its engine.
pub fn external() -> Log {
    let state =
        |status, text: &str| Some(ExternalState { kind: name("pipeline"), version: Some(name("v2")), status, data: json(text) });
    let append = |expected: Option<u64>, events: &[&str], state| ExternalAppended {
        expected: expected.map(Index),
        events: events.iter().map(|text| json(text)).collect(),
        state,
    };
    let appends = [
        append(None, &[], state(Status::Running, "{\"status\":\"running\"}")),
        append(Some(0), &["{\"type\":\"STEP_FINISHED\"}", "{\"type\":\"SIGNAL_AWAITED\"}"], None),
        append(Some(2), &[], state(Status::Waiting, "{\"status\":\"paused\"}")),
        append(Some(2), &["{\"type\":\"SIGNAL_RESOLVED\"}"], state(Status::Completed, "{\"status\":\"finished\"}")),
        append(Some(3), &["{\"type\":\"RUN_FINISHED\"}"], None),
    ];
    let started = NewRun::external(external_key(), appends[0].clone(), None).started;
    let (mut head, first) = RunHead::start(external_key(), started, Timestamp(1_800_000_000_000));
    let mut log = Log::load(vec![first]).expect("a log begins so");
    for (number, append) in (1..).zip(appends) {
        let at = Timestamp(1_800_000_000_000 + number);
        let admitted = head.admit_input(Input::new(append), None, at).expect("the index is the next");
        log.push(admitted.record).expect("it follows");
    }
    log
}

/// Checks the log of an external run, which is not replayed: the store derives its head from it.
pub fn read_external(log: &Log) -> Result<(), Box<RunPaused>> {
    let head = RunHead::rebuild(external_key(), log.records()).expect("the log begins with a start");
    let external = head.external.expect("an outside engine keeps it");
    assert_eq!((external.next_index, external.state_at), (Index(4), Some(Index(4))));
    assert_eq!(
        (head.status, head.kind.as_str(), head.ended_at),
        (Status::Completed, "pipeline", Some(Timestamp(1_800_000_000_004)))
    );
    Ok(())
}
