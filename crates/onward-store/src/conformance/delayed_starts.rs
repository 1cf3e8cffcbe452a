//! DS1 to DS5: a run with a start time exists at once, begins once when the clock has reached it, and no worker gets it before.

use onward_core::event::{CancelRequested, RunCanceled, RunStarted};
use onward_core::run::delayed_start::start_call;
use onward_core::run::{Input, NewRun};
use onward_core::{Event, Status, Timestamp};

use super::forking::put;
use super::harness::{Harness, HeldRun, completed, key, new_run, pause, refused, resume, seconds, signal, timer, worker};
use crate::{ClaimedRun, Delete, RestoreRun};

/// Returns a run that begins after ten seconds.
fn delayed(id: &str) -> NewRun {
    let run = new_run(id);
    NewRun { started: RunStarted { start_after_ms: Some(10_000), ..run.started }, ..run }
}

fn starting_at(id: &str, at: Timestamp) -> NewRun {
    let run = new_run(id);
    NewRun { started: RunStarted { start_at: Some(at), ..run.started }, ..run }
}

async fn start(harness: &Harness, run: NewRun) -> Timestamp {
    let started = harness.store().start_run(run, Some(worker("w"))).await.unwrap();
    assert!(started.created && started.claimed.is_none(), "DS1: {started:?}");
    started.head.starts_at.expect("it has not begun")
}

async fn log(harness: &Harness) -> Vec<&'static str> {
    harness.log("r").await.split_off(1)
}

async fn status(harness: &Harness) -> (Status, Option<Timestamp>) {
    let head = harness.head("r").await;
    (head.status, head.starts_at)
}

pub async fn a_delayed_run_begins_once_when_its_time_comes(mut harness: Harness) {
    let due = start(&harness, delayed("r")).await;
    assert_eq!(due, harness.now().after(seconds(10)));
    harness.reopen();
    assert_eq!(harness.expire().await.next_due, Some(due));
    harness.clock.set(Timestamp(due.0 - 1));
    assert_eq!((harness.expire().await.timers_fired, status(&harness).await), (0, (Status::Waiting, Some(due))));
    harness.reopen();
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    assert_eq!((harness.expire().await.timers_fired, status(&harness).await), (0, (Status::Pending, None)));
    let mut held = harness.claim_one("v").await;
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    assert_eq!(log(&harness).await, ["run_begun", "run_completed"]);
    harness.check_run(&key("r")).await;
}

pub async fn no_worker_gets_a_delayed_run_before_its_time(mut harness: Harness) {
    let due = start(&harness, delayed("r")).await;
    let woke = harness.append("r", signal(Some("early"))).await.unwrap().woke;
    harness.reopen();
    assert!(!woke && harness.claim("v").await.is_empty());
    let claim = harness.store().claim_run(key("r"), worker("v"), Some(signal(None))).await.unwrap();
    assert!(claim.claimed.is_none() && claim.appended.is_some_and(|appended| !appended.woke));
    // A worker without a claim knows the epoch of the run.
    let forged = HeldRun::new(&ClaimedRun { head: harness.head("r").await, records: None });
    refused(harness.store().commit(forged.commit(vec![timer(0, due)])).await, "commit_malformed");
    let again = harness.append("r", signal(Some("early"))).await.unwrap();
    assert!(again.repeated);
    harness.clock.set(due);
    harness.expire().await;
    assert_eq!(log(&harness).await, ["signal_received", "signal_received", "run_begun"]);
    let held = harness.claim_one("v").await;
    let withdrawn = Event::from(onward_core::event::WaitCanceled { call_id: start_call() });
    refused(harness.store().commit(held.commit(vec![withdrawn])).await, "commit_malformed");
}

pub async fn a_pause_does_not_move_a_start(mut harness: Harness) {
    let due = start(&harness, delayed("r")).await;
    harness.pass(seconds(4));
    harness.append("r", pause()).await.unwrap();
    harness.reopen();
    harness.pass(seconds(2));
    harness.append("r", resume()).await.unwrap();
    assert_eq!((status(&harness).await, harness.expire().await.next_due), ((Status::Waiting, Some(due)), Some(due)));
    harness.append("r", pause()).await.unwrap();
    harness.clock.set(due.after(seconds(60)));
    assert_eq!((harness.expire().await.timers_fired, harness.claim("v").await.len()), (0, 0), "a paused run does not begin");
    harness.reopen();
    harness.append("r", resume()).await.unwrap();
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(harness.claim("v").await.len(), 1);
    harness.check_run(&key("r")).await;
}

pub async fn a_canceled_delayed_run_ends_at_once_and_keeps_its_id(mut harness: Harness) {
    start(&harness, delayed("r")).await;
    let busy = harness.store().delete_runs(Delete::Run { key: key("r"), reason: String::new() }).await;
    refused(busy, "run_busy");
    let cancel = || Input::new(CancelRequested::new("not needed".to_owned()));
    harness.append("r", cancel()).await.unwrap();
    harness.reopen();
    assert_eq!(status(&harness).await, (Status::Canceled, None));
    let end = harness.records("r").await.pop().unwrap();
    let [Event::RunCanceled(RunCanceled { failure })] = end.events.as_slice() else { panic!("it is canceled: {end:?}") };
    assert_eq!((failure.code.as_str(), failure.message.as_str()), ("canceled", "the run was canceled: not needed"));
    refused(harness.append("r", cancel()).await, "run_closed");
    assert!(!harness.store().start_run(delayed("r"), None).await.unwrap().created);
    harness.pass(seconds(60));
    assert_eq!((harness.expire().await.timers_fired, harness.claim("v").await.len()), (0, 0));
    harness.check_run(&key("r")).await;
    harness.store().delete_runs(Delete::Run { key: key("r"), reason: String::new() }).await.unwrap();
    assert!(harness.store().start_run(delayed("r"), None).await.unwrap().created);
}

pub async fn a_repeated_start_does_not_move_the_start_time(mut harness: Harness) {
    let due = start(&harness, delayed("r")).await;
    harness.pass(seconds(5));
    for repeat in [delayed("r"), new_run("r"), starting_at("r", Timestamp(0))] {
        let repeated = harness.store().start_run(repeat, Some(worker("w"))).await.unwrap();
        assert_eq!((repeated.created, repeated.head.starts_at, repeated.claimed.is_none()), (false, Some(due), true));
    }
    harness.reopen();
    harness.pass(seconds(5));
    assert_eq!(harness.expire().await.timers_fired, 1);
}

pub async fn a_start_time_that_has_passed_is_no_delay(mut harness: Harness) {
    let held = harness.start_held_as(starting_at("r", harness.now())).await;
    assert_eq!((held.head.status, held.head.starts_at), (Status::Running, None), "a worker has it at once");
    harness.start_held_as(starting_at("past", Timestamp(0))).await;
    harness.reopen();
    assert_eq!(harness.expire().await.timers_fired, 0);
}

pub async fn the_deadline_of_a_delayed_run_counts_from_its_begin(mut harness: Harness) {
    let run = delayed("r");
    let due = start(&harness, NewRun { started: RunStarted { deadline_ms: Some(5_000), ..run.started }, ..run }).await;
    assert_eq!(harness.head("r").await.deadline_at, Some(due.after(seconds(5))));
    // Nothing looked at the clock for three seconds.
    harness.clock.set(due.after(seconds(3)));
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    let deadline = due.after(seconds(8));
    assert_eq!(harness.head("r").await.deadline_at, Some(deadline));
    harness.clock.set(Timestamp(deadline.0 - 1));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.clock.set(deadline);
    assert_eq!(harness.expire().await.timers_fired, 1);
    assert_eq!(log(&harness).await, ["run_begun", "cancel_requested"]);
    harness.check_run(&key("r")).await;
}

pub async fn a_restored_delayed_run_begins_at_its_time(mut harness: Harness) {
    let due = start(&harness, delayed("r")).await;
    harness.append("r", signal(Some("early"))).await.unwrap();
    let records = harness.records("r").await;
    let forked = super::forking::forked(&harness, "r", "copy").await;
    put(&harness, "copy", forked).await;
    let what = crate::Restore::Run { logs: vec![records] };
    harness.store().restore_run(RestoreRun { key: key("import"), what, outbox: Vec::new() }).await.unwrap();
    harness.reopen();
    for id in ["copy", "import"] {
        assert_eq!(harness.head(id).await.starts_at, Some(due), "{id}");
    }
    harness.clock.set(Timestamp(due.0 - 1));
    assert_eq!((harness.expire().await.timers_fired, harness.claim("v").await.len()), (0, 0));
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 3);
    assert_eq!(harness.claim("v").await.len(), 3);
    for id in ["r", "copy", "import"] {
        harness.check_run(&key(id)).await;
    }
}
