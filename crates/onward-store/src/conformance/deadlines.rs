//! RD1 to RD4: a run is canceled once when its deadline passes; pauses do not count, and later generations share the limit.

use onward_core::event::{CancelRequested, RunContinued};
use onward_core::run::deadline::deadline_call;
use onward_core::run::{Carries, Commit, NewRun};
use onward_core::{Event, Timestamp};

use super::harness::{Harness, completed, json, new_run, pause, refused, resume, seconds, signal, timer};

/// Returns a run with a deadline after ten seconds.
fn limited(id: &str) -> NewRun {
    let run = new_run(id);
    NewRun { started: onward_core::event::RunStarted { deadline_ms: Some(10_000), ..run.started }, ..run }
}

async fn deadline(harness: &Harness) -> Option<Timestamp> {
    harness.head("r").await.deadline_at
}

/// Returns the names of the events after the start.
async fn inputs(harness: &Harness) -> Vec<&'static str> {
    harness.log("r").await.split_off(1)
}

pub async fn a_run_is_canceled_once_when_its_deadline_passes(mut harness: Harness) {
    let mut held = harness.start_held_as(limited("r")).await;
    let due = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![timer(0, harness.now().after(seconds(60)))]).await;
    harness.reopen();
    assert_eq!(deadline(&harness).await, Some(due));
    harness.clock.set(Timestamp(due.0 - 1));
    let early = harness.expire().await;
    assert_eq!((early.timers_fired, inputs(&harness).await), (0, vec!["timer_started"]));
    harness.pass(std::time::Duration::from_millis(1));
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert_eq!(inputs(&harness).await, ["timer_started", "cancel_requested"]);
    assert_eq!(deadline(&harness).await, None);
    let by_deadline = |event: &Event| matches!(event, Event::CancelRequested(CancelRequested { is_deadline: true, .. }));
    assert!(harness.records("r").await.last().unwrap().events.iter().all(by_deadline));
}

pub async fn a_deadline_is_the_next_due_time_before_any_commit(mut harness: Harness) {
    harness.store().start_run(limited("r"), None).await.unwrap();
    harness.reopen();
    let due = harness.now().after(seconds(10));
    assert_eq!(harness.expire().await.next_due, Some(due));
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(inputs(&harness).await, ["cancel_requested"]);
}

pub async fn a_repeated_start_does_not_move_the_deadline(mut harness: Harness) {
    harness.store().start_run(limited("r"), None).await.unwrap();
    let due = deadline(&harness).await;
    harness.pass(seconds(5));
    let repeated = harness.store().start_run(limited("r"), None).await.unwrap();
    harness.reopen();
    assert_eq!((repeated.created, deadline(&harness).await), (false, due));
    harness.pass(seconds(5));
    assert_eq!(harness.expire().await.timers_fired, 1);
}

pub async fn a_pause_moves_the_deadline(mut harness: Harness) {
    harness.store().start_run(limited("r"), None).await.unwrap();
    harness.pass(seconds(4));
    harness.append("r", pause()).await.unwrap();
    harness.reopen();
    harness.pass(seconds(100));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.append("r", resume()).await.unwrap();
    harness.reopen();
    let due = harness.now().after(seconds(6));
    assert_eq!(deadline(&harness).await, Some(due));
    harness.clock.set(Timestamp(due.0 - 1));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(inputs(&harness).await, ["run_paused", "run_resumed", "cancel_requested"]);
}

pub async fn the_next_generation_has_the_rest_of_the_limit(mut harness: Harness) {
    let held = harness.start_held_as(limited("r")).await;
    let due = harness.now().after(seconds(10));
    harness.pass(seconds(4));
    harness.store().commit(continued(held.commit(Vec::new()))).await.unwrap();
    harness.reopen();
    assert_eq!((harness.head("r").await.generation, deadline(&harness).await), (1, Some(due)));
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(inputs(&harness).await, ["cancel_requested"]);
    // After its deadline a run has none, and neither have later generations.
    let held = harness.claim_one("v").await;
    harness.store().commit(continued(held.commit(Vec::new()))).await.unwrap();
    harness.reopen();
    harness.pass(seconds(100));
    assert_eq!((deadline(&harness).await, harness.expire().await.timers_fired), (None, 0));
}

pub async fn an_ended_run_gets_no_request_from_its_deadline(mut harness: Harness) {
    let mut held = harness.start_held_as(limited("r")).await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    harness.pass(seconds(100));
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert_eq!(inputs(&harness).await, ["run_completed"]);
}

pub async fn no_commit_touches_the_timer_of_a_deadline(mut harness: Harness) {
    let held = harness.start_held_as(limited("r")).await;
    let withdrawn = Event::from(onward_core::event::WaitCanceled { call_id: deadline_call() });
    let replaced = timer(u32::MAX, harness.now().after(seconds(1_000)));
    for event in [withdrawn, replaced] {
        refused(harness.store().commit(held.commit(vec![event])).await, "commit_malformed");
    }
    harness.append("r", signal(None)).await.unwrap();
    harness.reopen();
    harness.pass(seconds(10));
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(inputs(&harness).await, ["signal_received", "cancel_requested"]);
}

/// Returns the commit with which a run continues as new.
fn continued(commit: Commit) -> Commit {
    let event = RunContinued { input: json("2"), checkpoint: None };
    Commit { events: vec![event.into()], waits: true, carries: Carries::default(), ..commit }
}
