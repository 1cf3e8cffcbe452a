//! Tests of the parent module.

use super::*;
use crate::log::Log;
use crate::log::event::{CancelRequested, ChildStarted, PauseReason, RunBegun, RunPaused, RunResumed, TaskScheduled};
use crate::log::projection::Projection;
use crate::run::Refusal;
use crate::run::deadline::deadline_call;
use crate::run::reopen::{Fork, OpenChildren, fork};
use crate::run::view::AwaitedKind;
use crate::run::view::tests::{Script, awaited, name, script, signal, task};
use crate::task::{TaskReport, TaskState};
use crate::{Record, RunId, RunKey};

fn queued() -> Script {
    started(|started| started)
}

/// Returns a run that was started at 1,000 into the queue `deploys`.
fn started(change: impl FnOnce(RunStarted) -> RunStarted) -> Script {
    let plain = script(vec![]);
    let queue = RunQueue { key: Some(name("k")), priority: 2, ..RunQueue::new(name("deploys")) };
    let started = RunStarted { queue: Some(Box::new(queue)), ..plain.records[0].started().unwrap().clone() };
    let (head, first) = RunHead::start(plain.head.key, change(started), Timestamp(1_000));
    Script { head, records: vec![first] }
}

fn input_at(mut run: Script, event: impl Into<Event>, at: u64) -> Script {
    let admitted = run.head.admit_input(Input::new(event), None, Timestamp(at)).unwrap();
    run.records.push(admitted.record);
    assert_eq!(RunHead::rebuild(run.head.key.clone(), &run.records), Some(run.head.clone()), "L16");
    run
}

fn begun(run: Script, at: u64) -> Script {
    input_at(run, RunBegun::default(), at)
}

/// Returns the slot that follows from a log.
fn slot(key: &RunKey, records: &[Record]) -> Option<Task> {
    Projection::of(key.clone(), records).unwrap().tasks.remove(&start_call())
}

fn slot_of(run: &Script) -> Task {
    slot(&run.head.key, &run.records).expect("it has a slot")
}

/// RQ2, RQ5
#[test]
fn a_queued_run_waits_until_it_is_let_in_and_then_holds_its_slot() {
    let run = input_at(queued(), signal("paid"), 2_000);
    assert_eq!((run.head.status, run.head.starts_at), (Status::Waiting, Some(Timestamp(1_000))));
    let waiting = slot_of(&run);
    let options = &waiting.options;
    assert_eq!((options.queue.as_ref().unwrap().as_str(), options.key_text(), options.priority()), ("runs:deploys", "k", 2));
    assert_eq!((waiting.state, waiting.visible_at, waiting.due_at()), (TaskState::Queued, Timestamp(1_000), None));
    let [of] = &run.view().awaiting[..] else { panic!("it awaits one thing") };
    assert_eq!(
        (of.kind, of.name.clone(), of.since, of.deadline),
        (AwaitedKind::Start, Some(name("deploys")), Timestamp(1_000), None)
    );

    let run = begun(run, 9_000);
    let held = slot_of(&run);
    assert_eq!((run.head.status, run.head.starts_at, held.state), (Status::Pending, None, TaskState::Leased));
    assert_eq!(held.due_at(), None, "RQ1: it has no expiry");
    assert!(run.view().awaiting.is_empty());
    Log::load(run.records).unwrap();
}

/// RQ7
#[test]
fn nobody_reports_about_a_slot() {
    let mut held = slot_of(&begun(queued(), 2_000));
    for report in [TaskReport::Completed(Payload::null()), TaskReport::WorkerLost, TaskReport::NotStarted] {
        assert!(held.report(held.claim, report, std::time::Duration::ZERO, Timestamp(3_000)).is_err());
    }
    assert!(held.retry(Timestamp(3_000)).is_err());
    let refused = |event: Event| {
        let run = begun(queued(), 2_000);
        let mut head = run.head.clone();
        let commit = crate::run::Commit {
            key: head.key.clone(),
            generation: 0,
            epoch: head.epoch,
            n: 0,
            commit_id: crate::log::CommitId(1),
            horizon: crate::Index(1),
            events: vec![event],
            waits: false,
            end_over_unread: false,
            is_while_paused: false,
            carries: Default::default(),
        };
        head.admit_commit(commit, Timestamp(3_000)).is_err()
    };
    let Event::TaskScheduled(plain) = task(0) else { panic!("a task") };
    assert!(!refused(plain.clone().into()));
    assert!(refused(TaskScheduled { kind: name(SLOT_KIND), ..plain.clone() }.into()));
    let options = TaskOptions { queue: Some(name("runs:deploys")), ..TaskOptions::default() };
    assert!(refused(TaskScheduled { options, ..plain }.into()));
    let long = "q".repeat(NAME_BYTES_MAX);
    for (queue, is_refused) in [("deploys", false), ("runs:deploys", true), (long.as_str(), true)] {
        let queue = Some(Box::new(RunQueue::new(name(queue))));
        let child = ChildStarted {
            call_id: crate::CallId::root(0),
            child: RunId::new("c").unwrap(),
            kind: name("k"),
            version: None,
            input_hash: crate::Hash::of(&Payload::null()),
            input: Payload::null(),
            on_parent_close: crate::log::event::OnParentClose::Cancel,
            budget: None,
            is_spawned: false,
            queue,
        };
        assert_eq!(refused(child.into()), is_refused);
    }
}

/// RQ2, DS3
#[test]
fn a_paused_run_is_not_let_in_and_keeps_its_place() {
    let mut run = input_at(queued(), RunPaused::because(PauseReason::Requested, ""), 2_000);
    assert!(!slot_of(&run).waits_its_turn());
    let refused = run.head.admit_input(Input::new(RunBegun::default()), None, Timestamp(3_000));
    assert!(matches!(refused, Err(Refusal::Malformed { .. })));
    let run = input_at(run, RunResumed::default(), 60_000);
    assert_eq!((run.head.status, slot_of(&run).visible_at), (Status::Waiting, Timestamp(1_000)));
}

#[test]
fn a_start_time_comes_before_the_queue_and_the_deadline_after_it() {
    let run = started(|started| RunStarted { start_after_ms: Some(4_000), deadline_ms: Some(10_000), ..started });
    assert_eq!((run.head.starts_at, slot_of(&run).visible_at), (Some(Timestamp(5_000)), Timestamp(5_000)));
    let projection = Projection::of(run.head.key.clone(), &run.records).unwrap();
    assert!(projection.timers.is_empty(), "{:?}", projection.timers);
    let run = begun(run, 65_000);
    assert_eq!(run.head.deadline_at, Some(Timestamp(75_000)), "DS5");
}

#[test]
fn a_run_that_is_canceled_before_it_is_let_in_ends() {
    let run = input_at(queued(), CancelRequested::new("no".to_owned()), 2_000);
    assert_eq!((run.head.status, slot(&run.head.key, &run.records)), (Status::Canceled, None));
    Log::load(run.records).unwrap();
}

fn fork_of(run: &Script, at: u64) -> Vec<Record> {
    let key = RunKey::new(run.head.key.namespace.clone(), RunId::new("fork").unwrap());
    let request = Fork {
        key,
        index: None,
        is_reset: false,
        keep_signals: true,
        children: OpenChildren::Restart,
        version: None,
        seed: 2,
        request_id: "f".to_owned(),
        reason: String::new(),
        include_outcome_unknown: false,
        caller: None,
        budget_max: None,
    };
    fork(&run.head, Vec::new(), &run.records, &request, Timestamp(at)).unwrap().logs.pop().unwrap()
}

/// RQ4
#[test]
fn a_copy_waits_again_and_its_waiting_does_not_count() {
    let budget = crate::spend::budget::Budget { seconds: Some(600), ..Default::default() };
    let run = started(|started| RunStarted {
        deadline_ms: Some(100_000),
        budget: Some(Box::new(crate::spend::budget::BudgetHead::of(budget))),
        ..started
    });
    let run = begun(run, 2_000).commit(vec![awaited(0, "paid")]);
    let records = fork_of(&run, 50_000);
    let key = RunKey::new(run.head.key.namespace.clone(), RunId::new("fork").unwrap());
    let projection = Projection::of(key.clone(), &records).unwrap();
    let waiting = &projection.tasks[&start_call()];
    assert_eq!(
        (projection.head.status, waiting.state, waiting.visible_at),
        (Status::Waiting, TaskState::Queued, Timestamp(50_000))
    );
    assert!(!projection.timers.contains_key(&deadline_call()), "DS5");
    let left = projection.head.deadline_at.unwrap();
    let mut copy = Script { head: projection.head, records };
    let seconds = |run: &Script, at: u64| run.head.budget.as_ref().unwrap().left(None, Timestamp(at)).seconds;
    let before = seconds(&copy, 50_000);
    copy = input_at(copy, CancelRequested::new("stop".to_owned()), 60_000);
    assert_eq!(copy.head.status, Status::Waiting, "its code may compensate once it begins");
    assert!(Log::load(copy.records.clone()).is_ok());
    copy = begun(copy, 90_000);
    assert_eq!((copy.head.status, slot_of(&copy).state), (Status::Pending, TaskState::Leased));
    assert_eq!(copy.head.deadline_at, Some(Timestamp(left.0 + 40_000)));
    assert_eq!(seconds(&copy, 90_000), before, "the wait does not count");
    let timers = Projection::of(key, &copy.records).unwrap().timers;
    assert_eq!(timers[&deadline_call()].due_at.0, left.0 + 40_000);
    let copy = copy.commit(vec![awaited(1, "paid")]);
    Log::load(copy.records).unwrap();
}

/// RQ4: no log has code of a copy before it is let in.
#[test]
fn a_commit_of_a_copy_before_it_is_let_in_is_no_log() {
    let run = begun(queued(), 2_000).commit(vec![awaited(0, "paid")]);
    let records = fork_of(&run, 50_000);
    let key = RunKey::new(run.head.key.namespace.clone(), RunId::new("fork").unwrap());
    let head = RunHead::rebuild(key, &records).unwrap();
    let forged = Script { head, records }.commit(vec![awaited(1, "paid")]);
    assert!(matches!(Log::load(forged.records), Err(crate::log::LogError::NotBegun { .. })));
}

#[test]
fn settings_of_runs_are_those_of_the_queue() {
    use crate::queue::settings::settings_kind;
    let of_tasks = |queue: &str| settings_kind(Some(&name(queue))).unwrap();
    assert_eq!(settings_kind(stored_queue(Some(&name("deploys"))).as_ref()).unwrap(), of_tasks("deploys"));
    assert_eq!(settings_kind(stored_queue(None).as_ref()).unwrap(), settings_kind(None).unwrap());
}
