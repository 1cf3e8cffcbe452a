//! Tests of the parent module.

use super::*;
use crate::Event;
use crate::log::event::*;
use crate::run::live::ActiveType;
use crate::run::reopen::{Retry, retry};
use crate::run::view::tests::{Script, at, awaited, completed, name, script, signal, task, text};

fn calls(script: &Script) -> Vec<TimelineCall> {
    Calls::fold(&script.head.key, &script.records).calls
}

/// Returns call id, type and status of each line.
fn lines(script: &Script) -> Vec<(String, &'static str, &'static str)> {
    calls(script).into_iter().map(|call| (call.call_id, call.r#type.as_str(), call.status.as_str())).collect()
}

fn only(script: &Script) -> TimelineCall {
    let [call] = <[TimelineCall; 1]>::try_from(calls(script)).unwrap();
    call
}

fn step(call_id: u32, attempt: u32, result: Result<(), Option<u64>>) -> Event {
    let (call_id, name, input_hash, took_ms, input) = (at(call_id), name("charge"), None, 1, Some(text("card")));
    match result {
        Ok(()) => StepCompleted { call_id, name, input_hash, output: text("ok"), attempt, took_ms, input }.into(),
        Err(retry_at) => {
            let (failure, retry_at) = (Failure::retryable("busy"), retry_at.map(Timestamp));
            StepFailed { call_id, name, input_hash, failure, attempt, took_ms, retry_at, input }.into()
        }
    }
}

fn child(call_id: u32, id: &str, is_spawned: bool) -> Event {
    ChildStarted {
        call_id: at(call_id),
        child: RunId::new(id).unwrap(),
        kind: name("pack"),
        version: None,
        input_hash: Default::default(),
        input: text("box"),
        on_parent_close: OnParentClose::Cancel,
        budget: None,
        queue: None,
        is_spawned,
    }
    .into()
}

fn scheduled(call_id: u32, kind: &str) -> Event {
    let Event::TaskScheduled(scheduled) = task(call_id) else { unreachable!("it is a task") };
    TaskScheduled { kind: name(kind), ..scheduled }.into()
}

#[test]
fn a_step_has_every_attempt_with_its_time_and_its_recorded_input() {
    let run = script(vec![]).commit(vec![step(0, 1, Err(Some(1_500)))]);
    let call = only(&run);
    assert_eq!((call.status, call.deadline), (CallStatus::Retrying, Some(Timestamp(1_500))));
    let run = run.input(TimerFired { call_id: at(0) });
    assert_eq!((only(&run).status, only(&run).deadline), (CallStatus::Running, None), "its next attempt is due");
    let call = only(&run.commit(vec![step(0, 2, Ok(()))]));
    assert_eq!((call.r#type, call.status, call.name), (CallType::Step, CallStatus::Completed, Some(name("charge"))));
    assert_eq!((call.queued_at, call.started_at, call.ended_at), (None, Some(Timestamp(1_000)), Some(Timestamp(1_003))));
    let times: Vec<_> = call.attempts.iter().map(|attempt| (attempt.attempt, attempt.started_at, attempt.ended_at)).collect();
    let time = |at| Some(Timestamp(at));
    assert_eq!(times, [(1, time(1_000), time(1_001)), (2, time(1_002), time(1_003))]);
    assert_eq!((call.attempts[0].failure.as_ref().unwrap().message.as_str(), call.attempts[1].failure.is_none()), ("busy", true));
    assert_eq!((call.first_index, call.last_index, call.input), (Some(Index(1)), Some(Index(3)), Some(text("card"))));
}

#[test]
fn a_task_has_the_time_in_its_queue_and_its_worker() {
    let run = script(vec![]).commit(vec![task(0)]);
    assert_eq!(
        (only(&run).status, only(&run).queued_at, only(&run).started_at),
        (CallStatus::Queued, Some(Timestamp(1_001)), None)
    );
    let worker = Some(WorkerId::new("w1").unwrap());
    let ran = Some(AttemptRan { started_at: Timestamp(1_900), worker: worker.clone() });
    let run = run.input(TaskCompleted { call_id: at(0), output: Payload::null(), attempts: 3, ran });
    let call = only(&run);
    assert_eq!(
        (call.status, call.started_at, call.ended_at),
        (CallStatus::Completed, Some(Timestamp(1_900)), Some(Timestamp(1_002)))
    );
    let [last] = &call.attempts[..] else { panic!("{:?}", call.attempts) };
    assert_eq!((last.attempt, &last.worker, last.ended_at), (3, &worker, Some(Timestamp(1_002))));
}

#[test]
fn a_step_under_way_has_a_line_until_the_log_has_its_end() {
    let under_way = |attempt| ActiveCall {
        generation: 0,
        call_id: at(0),
        of_type: ActiveType::Step,
        name: name("charge"),
        attempt,
        started_at: Timestamp(1_700),
        input: Some(text("card")),
        worker: None,
        progress: None,
    };
    let shown = |run: &Script, attempt| {
        let mut calls = Calls::fold(&run.head.key, &run.records);
        calls.show_step(under_way(attempt));
        let [call] = <[TimelineCall; 1]>::try_from(calls.calls).unwrap();
        call
    };
    let run = script(vec![]);
    let call = shown(&run, 1);
    assert_eq!((call.status, call.first_index, call.input), (CallStatus::Running, None, Some(text("card"))));
    assert_eq!((call.started_at, call.attempts.len()), (Some(Timestamp(1_700)), 1));
    let run = run.commit(vec![step(0, 1, Err(Some(1_500)))]);
    let call = shown(&run, 2);
    assert_eq!((call.status, call.deadline, call.attempts.len()), (CallStatus::Running, None, 2));
    assert_eq!((call.started_at, call.first_index), (Some(Timestamp(1_000)), Some(Index(1))));
    let run = run.input(TimerFired { call_id: at(0) }).commit(vec![step(0, 2, Ok(()))]);
    let call = shown(&run, 2);
    assert_eq!((call.status, call.attempts[1].started_at), (CallStatus::Completed, Some(Timestamp(1_002))), "a late report");
}

#[test]
fn recorded_attempts_of_a_task_are_lines_of_their_own() {
    let attempted = |attempt| TaskAttempted { call_id: at(0), attempt, ledger_name: None, began_at: None };
    let run = script(vec![]).commit(vec![scheduled(0, "llm.gpt"), scheduled(1, "tool.agent.search")]).input(attempted(1));
    assert_eq!(lines(&run), [("0".into(), "model", "running"), ("1".into(), "tool", "queued")]);
    let ended = TaskAttemptEnded {
        call_id: at(0),
        generation: 0,
        attempt: 1,
        claim: 1,
        began_at: Timestamp(1_002),
        ledger_name: None,
        failure_code: Some("overloaded".to_owned()),
        spend: vec![],
    };
    let mut run = run;
    run.records.push(Record::input(run.head.next_index, run.now(), ended.into()));
    run.head = crate::RunHead::rebuild(run.head.key.clone(), &run.records).unwrap();
    let run = run.input(attempted(2));
    let call = &calls(&run)[0];
    assert_eq!((call.status, call.attempts.len()), (CallStatus::Running, 2));
    assert_eq!(call.attempts[0].failure.as_ref().unwrap().code, "overloaded");
    assert_eq!(call.attempts[0].ended_at, Some(Timestamp(1_003)));
}

#[test]
fn an_open_task_shows_the_attempts_of_its_row() {
    let run = script(vec![]).commit(vec![task(0)]);
    let id = crate::task::TaskId { run: run.head.key.clone(), generation: 0, call_id: at(0), incarnation: None };
    let mut row = Task::new(id, name("mail"), Payload::null(), Default::default(), Timestamp(1_001));
    let shown = |row: &Task| {
        let mut calls = Calls::fold(&run.head.key, &run.records);
        calls.show_task(row);
        calls.calls.remove(0)
    };
    assert_eq!(shown(&row).status, CallStatus::Queued);
    row.claim(&WorkerId::new("w1").unwrap(), Duration::from_secs(1), Timestamp(1_100));
    let call = shown(&row);
    assert_eq!((call.status, call.started_at), (CallStatus::Running, Some(Timestamp(1_100))));
    assert_eq!(call.attempts[0].worker, Some(WorkerId::new("w1").unwrap()));
    (row.state, row.attempt, row.last_failure) = (TaskState::Queued, 2, Some(Failure::retryable("busy")));
    row.visible_at = Timestamp(2_000);
    let call = shown(&row);
    assert_eq!((call.status, call.deadline), (CallStatus::Retrying, Some(Timestamp(2_000))));
    assert_eq!((call.attempts[0].attempt, call.attempts[0].failure.as_ref().unwrap().message.as_str()), (1, "busy"));
    row.state = TaskState::Quarantined;
    assert_eq!(shown(&row).status, CallStatus::Waiting);
}

#[test]
fn waits_end_with_their_answer_their_deadline_or_the_code() {
    let promise = |call_id| PromiseCreated { call_id: at(call_id), name: name("paid"), deadline: Some(Timestamp(9_000)) }.into();
    let timer = TimerStarted { call_id: at(3), due_at: Timestamp(1_500) };
    let run = script(vec![]).commit(vec![awaited(0, "go"), promise(1), promise(2), timer.into(), promise(4)]);
    let result = Err(Failure::fatal("declined"));
    let run = run.input(PromiseResolved { call_id: at(1), result, resolution_id: "r".to_owned() });
    let run = run.input(TimerFired { call_id: at(2) }).input(TimerFired { call_id: at(3) }).input(signal("go"));
    let consumed = |call_id, index| SignalConsumed { call_id: at(call_id), name: name("go"), index: Index(index) }.into();
    let run = run.commit(vec![consumed(0, 9), WaitCanceled { call_id: at(4) }.into(), consumed(5, 9)]);
    let expected = [
        ("0".to_owned(), "signal", "completed"),
        ("1".to_owned(), "promise", "failed"),
        ("2".to_owned(), "promise", "failed"),
        ("3".to_owned(), "timer", "completed"),
        ("4".to_owned(), "promise", "canceled"),
        ("5".to_owned(), "signal", "completed"),
    ];
    assert_eq!(lines(&run), expected);
    assert_eq!(calls(&run)[1].attempts[0].failure.as_ref().unwrap().message, "declined");
    assert_eq!(calls(&run)[5].started_at, calls(&run)[5].ended_at, "the signal was in the mailbox");
}

#[test]
fn an_update_is_a_line_under_its_own_id() {
    let update = UpdateReceived { update_id: "u1".into(), name: name("address"), payload: Payload::null() };
    let run = script(vec![]).input(update);
    assert_eq!(lines(&run), [("u1".into(), "update", "waiting")]);
    let run = run.commit(vec![UpdateAnswered { update_id: "u1".into(), result: Ok(Payload::null()) }.into()]);
    assert_eq!(lines(&run), [("u1".into(), "update", "completed")]);
}

#[test]
fn a_child_has_its_run_and_a_spawned_one_outlives_the_log() {
    let run = script(vec![]).commit(vec![child(0, "order-1/0", false), child(1, "order-1/1", true), child(2, "order-1/2", true)]);
    let wait = ChildAwaited { call_id: at(3), child: RunId::new("order-1/1").unwrap() };
    let run = run.input(ChildCompleted { call_id: at(0), output: Payload::null(), child: None, spent: None });
    let run = run.commit(vec![wait.into()]);
    let open = [
        ("0".to_owned(), "child", "completed"),
        ("1".to_owned(), "child", "running"),
        ("2".to_owned(), "child", "running"),
        ("3".to_owned(), "child", "waiting"),
    ];
    assert_eq!(lines(&run), open);
    let (call_id, failure, child) = (at(3), Failure::fatal("no"), RunId::new("order-1/1").ok());
    let run = run.input(ChildFailed { call_id, failure, child, spent: None }).commit(vec![completed()]);
    let statuses: Vec<&str> = lines(&run).into_iter().map(|(_, _, status)| status).collect();
    assert_eq!(statuses, ["completed", "failed", "running", "failed"], "TI2");
    assert_eq!(calls(&run)[3].name, Some(name("pack")));
    assert_eq!((&calls(&run)[0].child, &calls(&run)[0].input), (&RunId::new("order-1/0").ok(), &Some(text("box"))));
}

/// TI2
#[test]
fn the_end_of_a_log_ends_its_open_calls() {
    let open = || script(vec![]).commit(vec![task(0), awaited(1, "go")]);
    let canceled = RunCanceled { failure: Failure::canceled("late") };
    let handoff = Checkpoint {
        state: Payload::null(),
        prelude: None,
        awaits: None,
        leaf: None,
        depth: 0,
        kept: vec![],
        keys: vec![],
        abandoned_children: vec![],
        handoff: Some(name("other")),
        tally: None,
    };
    let handed_off = RunContinued { input: Payload::null(), checkpoint: Some(Box::new(handoff)) };
    let reset = TerminateRequested { reason: String::new(), reset_to: RunId::new("order-2").ok() };
    let ended = [
        open().commit(vec![completed()]),
        open().input(CancelRequested::new("late".to_owned())).commit(vec![canceled.into()]),
        open().commit(vec![handed_off.into()]),
        open().input(reset),
    ];
    for run in ended {
        assert_eq!(lines(&run), [("0".into(), "task", "canceled"), ("1".into(), "signal", "canceled")]);
        assert_eq!(calls(&run)[0].ended_at, Some(run.records.last().unwrap().at));
    }
}

#[test]
fn a_pause_moves_deadlines_by_its_length() {
    let timer = TimerStarted { call_id: at(0), due_at: Timestamp(5_000) };
    let paused = RunPaused::because(PauseReason::Requested, "lunch");
    let run = script(vec![]).commit(vec![timer.into()]).input(paused).input(signal("x")).input(RunResumed::default());
    assert_eq!((only(&run).status, only(&run).deadline), (CallStatus::Waiting, Some(Timestamp(5_002))));
}

/// TI1
#[test]
fn an_abandoned_call_is_marked_unless_an_equal_call_takes_it_over() {
    let divergence =
        Divergence { index: Index(3), recorded: String::new(), attempted: String::new(), nearest: None, hint: String::new() };
    let (from, to, withdrawn) = (Index(3), Index(6), vec![]);
    let left = SegmentAbandoned { from, to, attempt: 1, withdrawn, divergence };
    let consumed = SignalConsumed { call_id: at(0), name: name("go"), index: Index(2) };
    let run = script(vec![]).commit(vec![awaited(0, "go")]).input(signal("go")).commit(vec![
        consumed.into(),
        task(1),
        task(2),
        step(3, 1, Ok(())),
    ]);
    let adopted = CallAdopted { call_id: at(100_001), from: at(2) };
    let run = run.commit(vec![left.into(), adopted.into(), task(100_002)]);
    let expected = [
        ("0".to_owned(), "signal", "waiting"),
        ("1".to_owned(), "task", "abandoned"),
        ("100001".to_owned(), "task", "queued"),
        ("3".to_owned(), "step", "completed"),
        ("100002".to_owned(), "task", "queued"),
    ];
    assert_eq!(lines(&run), expected);
    let abandoned: Vec<bool> = calls(&run).iter().map(|call| call.abandoned).collect();
    assert_eq!(abandoned, [false, true, false, true, false]);
    let run = run.input(TaskCompleted { call_id: at(2), output: Payload::null(), attempts: 1, ran: None });
    assert_eq!(lines(&run)[2], ("100001".into(), "task", "completed"), "the store knows it by its first id");
}

#[test]
fn a_retried_run_executes_its_failed_call_again_on_the_same_line() {
    let failed = RunFailed { failure: Failure::retryable("busy"), attempts: None };
    let run = script(vec![]).commit(vec![step(0, 1, Err(None))]).commit(vec![failed.into()]);
    assert_eq!(only(&run).status, CallStatus::Failed);
    let records = retry(&run.head, &run.records, &Retry::new("again"), Timestamp(3_000)).unwrap().records;
    let head = crate::RunHead::rebuild(run.head.key.clone(), &records).unwrap();
    let run = Script { head, records };
    assert_eq!((only(&run).status, only(&run).ended_at), (CallStatus::Retrying, None), "its failure is set aside");
    let call = only(&run.commit(vec![step(0, 1, Ok(()))]));
    assert_eq!((call.status, call.attempts.len()), (CallStatus::Completed, 2), "both attempts are shown");
}

#[test]
fn a_standalone_task_ends_with_its_run() {
    let task = Some(StandaloneTask { kind: name("mail"), options: Default::default() });
    let started = RunStarted { task, ..RunStarted::new(name("task:mail"), text("in"), 1) };
    let key = script(vec![]).head.key;
    let (head, first) = crate::RunHead::start(key, started, Timestamp(1_000));
    let mut run = Script { head, records: vec![first] };
    assert_eq!(lines(&run), [("0".into(), "task", "queued")]);
    let failed = RunFailed { failure: Failure::fatal("no"), attempts: Some(2) };
    run.records.push(Record::input(Index(1), Timestamp(1_005), failed.into()));
    let call = only(&run);
    assert_eq!((call.status, call.attempts[0].attempt, call.ended_at), (CallStatus::Failed, 2, Some(Timestamp(1_005))));
}

#[test]
fn pages_follow_each_other_and_end_early_when_they_are_large() {
    let run = script(vec![]).commit((0..5).map(task).collect());
    let page = |cursor: Option<&str>, limit| {
        let (calls, next) = Calls::fold(&run.head.key, &run.records).page(cursor, limit).unwrap();
        (calls.into_iter().map(|call| call.call_id).collect::<Vec<_>>().join(" "), next)
    };
    assert_eq!(page(None, 2), ("0 1".to_owned(), Some("2".to_owned())));
    assert_eq!(page(Some("2"), 9), ("2 3 4".to_owned(), None));
    assert_eq!(page(Some("5"), 9), (String::new(), None));
    for cursor in ["6", "x", "", "-1"] {
        assert!(Calls::fold(&run.head.key, &run.records).page(Some(cursor), 9).is_none(), "{cursor}");
    }
    let mut large = Calls::fold(&run.head.key, &run.records);
    large.calls.iter_mut().for_each(|call| call.input = Some(Payload::binary("x", vec![0; PAGE_BYTES * 2 / 3])));
    assert_eq!(large.page(None, 5).unwrap().1, Some("1".to_owned()));
}

#[test]
fn a_line_has_no_large_input_and_a_bounded_number_of_attempts() {
    let Event::TaskScheduled(scheduled) = task(0) else { unreachable!("it is a task") };
    let large = TaskScheduled { input: Payload::binary("x", vec![0; INPUT_BYTES_MAX + 1]), ..scheduled };
    assert_eq!(only(&script(vec![]).commit(vec![large.into()])).input, None);
    let mut run = script(vec![]);
    for attempt in 1..=150 {
        run = run.commit(vec![step(0, attempt, Err(Some(9_000)))]);
    }
    let attempts: Vec<u32> = only(&run).attempts.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!((attempts.len(), attempts[0], attempts[99]), (ATTEMPTS_MAX, 51, 150));
}
