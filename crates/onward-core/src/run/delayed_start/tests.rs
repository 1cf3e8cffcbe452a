//! Tests of the parent module.

use super::*;
use crate::log::Log;
use crate::log::event::{CancelRequested, PauseReason, RunBegun, RunCompleted, RunPaused, RunResumed, TerminateRequested};
use crate::log::projection::Projection;
use crate::run::deadline::deadline_call;
use crate::run::reopen::{Fork, OpenChildren, fork};
use crate::run::view::AwaitedKind;
use crate::run::view::tests::{Script, awaited, script, signal, text};
use crate::run::{Input, Refusal, Status};
use crate::spend::budget::{Budget, BudgetHead};
use crate::{Epoch, RunId, RunKey};

/// Returns a run that was started at 1,000 and begins at 5,000.
fn delayed() -> Script {
    started(|started| RunStarted { start_at: Some(Timestamp(5_000)), ..started })
}

fn started(change: impl FnOnce(RunStarted) -> RunStarted) -> Script {
    let plain = script(vec![]);
    let started = change(plain.records[0].started().unwrap().clone());
    let (head, first) = RunHead::start(plain.head.key, started, Timestamp(1_000));
    Script { head, records: vec![first] }
}

fn input_at(mut run: Script, event: impl Into<Event>, at: u64) -> Script {
    let admitted = run.head.admit_input(Input::new(event), None, Timestamp(at)).unwrap();
    run.records.push(admitted.record);
    assert_eq!(RunHead::rebuild(run.head.key.clone(), &run.records), Some(run.head.clone()), "L16");
    run
}

/// Returns the start and deadline timers of the projection, which agree with the head.
fn timers(run: &Script) -> (Option<u64>, Option<u64>) {
    timers_of(&run.head.key, &run.records)
}

fn timers_of(key: &RunKey, records: &[crate::Record]) -> (Option<u64>, Option<u64>) {
    let projection = Projection::of(key.clone(), records).unwrap();
    let due = |call_id| projection.timers.get(&call_id).map(|timer| timer.due_at.0);
    assert_eq!(due(start_call()), projection.head.starts_at.map(|at| at.0), "the timer and the head agree");
    (due(start_call()), due(deadline_call()))
}

/// DS1, DS4
#[test]
fn a_delayed_run_waits_for_its_start_and_inputs_do_not_wake_it() {
    let run = delayed();
    assert_eq!((run.head.status, timers(&run)), (Status::Waiting, (Some(5_000), None)));
    let run = input_at(run, signal("paid"), 2_000);
    assert_eq!((run.head.status, run.head.starts_at), (Status::Waiting, Some(Timestamp(5_000))));
    let view = run.view();
    let [awaited] = view.awaiting.as_slice() else { panic!("it awaits one thing") };
    assert_eq!((awaited.kind, awaited.since, awaited.deadline), (AwaitedKind::Start, Timestamp(1_000), Some(Timestamp(5_000))));
    let begun = input_at(run, RunBegun::default(), 5_003);
    assert_eq!((begun.head.status, begun.head.starts_at, timers(&begun)), (Status::Pending, None, (None, None)));
    assert!(begun.view().awaiting.is_empty());
    Log::load(begun.records).unwrap();
}

/// DS2
#[test]
fn the_timer_of_the_start_begins_the_run_and_nothing_begins_it_twice() {
    let mut run = delayed();
    let input = run.head.timer_input(start_call());
    assert!(matches!(input.event, Event::RunBegun(_)));
    run.head.admit_input(input.clone(), None, Timestamp(5_000)).unwrap();
    let again = run.head.admit_input(input.clone(), None, Timestamp(5_001));
    assert!(matches!(again, Err(Refusal::Malformed { .. })), "{again:?}");
    let mut paused = input_at(delayed(), RunPaused::because(PauseReason::Requested, ""), 4_000);
    assert!(matches!(paused.head.admit_input(input.clone(), None, Timestamp(5_000)), Err(Refusal::Malformed { .. })));
    let mut plain = script(vec![]);
    assert!(matches!(plain.head.admit_input(input, None, Timestamp(5_000)), Err(Refusal::Malformed { .. })));
}

/// DS1
#[test]
fn a_commit_before_the_begin_is_refused_and_no_log_has_one() {
    let mut run = delayed();
    let commit = crate::run::Commit {
        key: run.head.key.clone(),
        generation: 0,
        epoch: Epoch(0),
        n: 0,
        commit_id: crate::log::CommitId(1),
        horizon: crate::Index(0),
        events: vec![RunCompleted { output: text("out"), attempts: None }.into()],
        waits: false,
        end_over_unread: false,
        is_while_paused: false,
        carries: crate::run::Carries::default(),
    };
    let refused = run.head.admit_commit(commit, Timestamp(9_000));
    assert!(matches!(refused, Err(crate::run::CommitRefusal::Refused(Refusal::Malformed { .. }))), "{refused:?}");
    let forged = run.commit(vec![RunCompleted { output: text("out"), attempts: None }.into()]);
    assert!(matches!(Log::load(forged.records), Err(crate::log::LogError::NotBegun { .. })));
}

/// DS3
#[test]
fn a_pause_does_not_move_the_start() {
    let pause = || RunPaused::because(PauseReason::Requested, "");
    let early = input_at(input_at(delayed(), pause(), 2_000), RunResumed::default(), 3_000);
    assert_eq!((early.head.status, timers(&early)), (Status::Waiting, (Some(5_000), None)));
    let late = input_at(input_at(delayed(), pause(), 2_000), RunResumed::default(), 90_000);
    assert_eq!((late.head.status, timers(&late)), (Status::Waiting, (Some(5_000), None)), "due at once");
}

fn fork_of(run: &Script, keep_signals: bool) -> Fork {
    Fork {
        key: RunKey::new(run.head.key.namespace.clone(), RunId::new("fork").unwrap()),
        index: None,
        is_reset: false,
        keep_signals,
        children: OpenChildren::Restart,
        version: None,
        seed: 2,
        request_id: "f".to_owned(),
        reason: String::new(),
        include_outcome_unknown: false,
        caller: None,
        budget_max: None,
    }
}

/// DS3
#[test]
fn a_copy_begins_at_the_same_time() {
    let run = input_at(delayed(), signal("paid"), 2_000);
    for (keep_signals, at) in [(true, 3_000), (false, 70_000)] {
        let request = fork_of(&run, keep_signals);
        let forked = fork(&run.head, Vec::new(), &run.records, &request, Timestamp(at)).unwrap();
        let records = forked.logs.last().unwrap();
        assert_eq!(timers_of(&request.key, records), (Some(5_000), None));
        Log::load(records.clone()).unwrap();
    }
    // A copy of a run that has begun keeps its begin.
    let begun = input_at(run, RunBegun::default(), 5_000).commit(vec![awaited(0, "paid")]);
    let request = fork_of(&begun, true);
    let forked = fork(&begun.head, Vec::new(), &begun.records, &request, Timestamp(70_000)).unwrap();
    let head = Projection::of(request.key.clone(), forked.logs.last().unwrap()).unwrap().head;
    assert_eq!((head.starts_at, head.status), (None, Status::Pending));
}

/// DS4
#[test]
fn a_cancellation_before_the_begin_ends_the_run_with_its_reason() {
    let canceled = input_at(delayed(), CancelRequested::new("not needed".to_owned()), 2_000);
    assert_eq!((canceled.head.status, canceled.head.ended_at), (Status::Canceled, Some(Timestamp(2_000))));
    let failure = canceled.view().outcome.unwrap().unwrap_err();
    assert_eq!(
        (failure.code.as_str(), failure.message.as_str(), failure.retryable),
        ("canceled", "the run was canceled: not needed", false)
    );
    assert_eq!(timers_of(&canceled.head.key, &canceled.records).1, None);
    assert!(canceled.view().awaiting.is_empty());
    Log::load(canceled.records).unwrap();

    let terminated = input_at(delayed(), TerminateRequested { reason: String::new(), reset_to: None }, 2_000);
    assert_eq!((terminated.head.status, terminated.view().awaiting.len()), (Status::Terminated, 0));

    let begun = input_at(delayed(), RunBegun::default(), 5_000);
    let requested = input_at(begun, CancelRequested::new("late".to_owned()), 6_000);
    assert_eq!(requested.head.status, Status::Pending, "the code may compensate");
}

/// DS5
#[test]
fn the_deadline_and_the_time_of_the_budget_count_from_the_begin() {
    let limit = Budget { seconds: Some(60), ..Budget::default() };
    let run = started(|started| RunStarted {
        start_after_ms: Some(4_000),
        deadline_ms: Some(10_000),
        budget: Some(Box::new(BudgetHead::of(limit))),
        ..started
    });
    assert_eq!((run.head.deadline_at, timers(&run)), (Some(Timestamp(15_000)), (Some(5_000), None)));
    let pause = RunPaused::because(PauseReason::Requested, "");
    let run = input_at(input_at(run, pause, 2_000), RunResumed::default(), 4_000);
    assert_eq!(run.head.deadline_at, Some(Timestamp(15_000)));
    // The server was down for two seconds.
    let begun = input_at(run, RunBegun::default(), 7_000);
    assert_eq!((begun.head.deadline_at, timers(&begun)), (Some(Timestamp(17_000)), (None, Some(17_000))));
    assert_eq!(begun.head.budget.unwrap().left(None, Timestamp(8_000)).seconds, Some(59));
}

#[test]
fn a_time_that_has_passed_is_no_delay_and_absurd_times_are_refused() {
    for at in [0, 999, 1_000] {
        let run = started(|started| RunStarted { start_at: Some(Timestamp(at)), ..started });
        assert_eq!((run.head.status, timers(&run)), (Status::Pending, (None, None)));
    }
    let run = started(|started| RunStarted { start_after_ms: Some(0), ..started });
    assert_eq!(run.head.status, Status::Pending);
    assert_eq!(START_AT_MAX.to_string(), "9999-12-31T23:59:59.999Z");
    assert_eq!(start_fault(Some(START_AT_MAX), None), None);
    assert_eq!(start_fault(None, Some(START_AFTER_MS_MAX)), None);
    assert!(start_fault(Some(Timestamp(START_AT_MAX.0 + 1)), None).is_some());
    assert!(start_fault(None, Some(START_AFTER_MS_MAX + 1)).is_some());
    assert!(start_fault(Some(Timestamp(0)), Some(0)).is_some());
}
