//! Tests of the parent module.

use super::*;
use crate::log::event::{PauseReason, RunCompleted, RunFailed, RunPaused, RunResumed, RunStarted};
use crate::log::projection::Projection;
use crate::run::reopen::{Fork, OpenChildren, Retry, fork, retry};
use crate::run::view::tests::{Script, awaited, script, text};
use crate::{Failure, Record, RunKey};

const LIMIT: u64 = 10_000;

/// Returns a run that started at 1,000 and is canceled at 11,000.
fn limited() -> Script {
    let plain = script(vec![]);
    let started = RunStarted { deadline_ms: Some(LIMIT), ..plain.records[0].started().unwrap().clone() };
    let (head, first) = RunHead::start(plain.head.key, started, Timestamp(1_000));
    Script { head, records: vec![first] }
}

fn timer_of(key: &RunKey, records: &[Record]) -> Option<Timestamp> {
    let projection = Projection::of(key.clone(), records).unwrap();
    let timer = projection.timers.get(&deadline_call()).map(|timer| timer.due_at);
    assert_eq!(timer, projection.head.deadline_at, "the timer and the head agree");
    timer
}

/// RD1
#[test]
fn the_timer_of_the_deadline_becomes_a_request_and_every_other_one_fires() {
    let run = limited();
    let input = run.head.timer_input(deadline_call());
    assert!(matches!(&input.event, Event::CancelRequested(event) if event.is_deadline && !event.reason.is_empty()));
    assert!(matches!(run.head.timer_input(CallId::root(0)).event, Event::TimerFired(_)));
    let key = run.head.key.clone();
    let canceled = run.input(input.event);
    assert_eq!((canceled.head.deadline_at, timer_of(&key, &canceled.records)), (None, None));
}

/// RD2
#[test]
fn a_request_of_a_caller_leaves_the_deadline() {
    let run = limited().input(CancelRequested::new("enough".to_owned()));
    assert_eq!(timer_of(&run.head.key, &run.records), Some(Timestamp(11_000)));
}

/// RD3: the script's clock is a millisecond later with each record.
#[test]
fn a_copy_has_what_was_left_at_its_end() {
    let run = limited().commit(vec![awaited(0, "paid")]);
    let at = Timestamp(500_000);
    let request = Fork {
        key: RunKey::new(run.head.key.namespace.clone(), crate::RunId::new("fork").unwrap()),
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
    let forked = fork(&run.head, Vec::new(), &run.records, &request, at).unwrap();
    let left = LIMIT - 1;
    assert_eq!(timer_of(&request.key, forked.logs.last().unwrap()), Some(Timestamp(at.0 + left)));

    let paused = run.input(RunPaused::because(PauseReason::Requested, "")).input(RunResumed::default());
    assert_eq!(timer_of(&paused.head.key, &paused.records), Some(Timestamp(11_001)), "paused for a millisecond");
    let failed = paused.commit(vec![RunFailed { failure: Failure::fatal("no"), attempts: None }.into()]);
    let retried = retry(&failed.head, &failed.records, &Retry::new("again"), at).unwrap();
    let left = 11_001 - failed.records[failed.records.len() - 2].at.0;
    assert_eq!(timer_of(&failed.head.key, &retried.records), Some(Timestamp(at.0 + left)));
}

/// RD1
#[test]
fn an_ended_run_has_no_timer() {
    let run = limited().commit(vec![RunCompleted { output: text("out"), attempts: None }.into()]);
    let projection = Projection::of(run.head.key.clone(), &run.records).unwrap();
    assert!(projection.timers.is_empty());
}
