//! A paused run loses nothing and makes no progress until it is resumed.

use onward_core::budget::Budget;
use onward_core::event::{RunResumed, StepCompleted, StepFailed};
use onward_core::run::{Commit, Input};
use onward_core::task::{RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{Event, Failure, Index, Status};

use super::harness::{
    Harness, HeldRun, call_id, completed, json, key, name, pause, refused, resume, seconds, settled, signal, task, timer, worker,
};

pub async fn a_paused_run_takes_inputs_but_no_commits_and_no_claims(mut harness: Harness) {
    let held = harness.start_held("r").await;
    harness.append("r", pause()).await.unwrap();
    harness.append("r", signal(None)).await.unwrap();
    refused(harness.store().commit(held.commit(vec![settled()])).await, "run_paused");
    harness.reopen();
    assert_eq!(harness.head("r").await.status, Status::Paused);
    assert_eq!(harness.claim("v").await, []);
    harness.append("r", resume()).await.unwrap();
    let mut held = harness.regain(&held).await;
    harness.commit(&mut held, vec![completed()]).await;
    let log = ["run_started", "run_paused", "signal_received", "run_resumed", "run_completed"];
    assert_eq!(harness.log("r").await, log);
}

pub async fn a_paused_timer_keeps_its_remaining_time(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    harness.commit(&mut held, vec![timer(0, harness.now().after(seconds(10)))]).await;
    harness.pass(seconds(4));
    harness.append("r", pause()).await.unwrap();
    harness.reopen();
    harness.pass(seconds(100));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.append("r", resume()).await.unwrap();
    let due = harness.now().after(seconds(6));
    harness.reopen();
    let early = harness.expire().await;
    assert_eq!((early.timers_fired, early.next_due), (0, Some(due)));
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 1);
}

pub async fn a_run_that_is_not_paused_cannot_be_resumed(harness: Harness) {
    harness.start("r").await;
    refused(harness.append("r", resume()).await, "run_not_paused");
    assert_eq!(harness.log("r").await, ["run_started"]);
}

/// Timers continue, and the holder keeps its lease.
pub async fn a_budget_is_changed_also_where_nothing_is_paused(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    let due = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![timer(0, due)]).await;
    harness.pass(seconds(4));
    let budget = Some(Budget { turns: Some(7), ..Budget::default() });
    harness.append("r", Input::new(RunResumed { budget })).await.unwrap();
    harness.reopen();
    let head = harness.head("r").await;
    assert_eq!(head.budget.and_then(|budget| budget.limit.turns), Some(7));
    assert!(!head.status.is_closed() && head.status != Status::Paused);
    assert_eq!(harness.expire().await.next_due, Some(due));
}

pub async fn a_pause_upon_a_pause_changes_no_timer(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    harness.commit(&mut held, vec![timer(0, harness.now().after(seconds(10)))]).await;
    harness.append("r", pause()).await.unwrap();
    harness.pass(seconds(50));
    harness.append("r", pause()).await.unwrap();
    harness.pass(seconds(50));
    harness.append("r", resume()).await.unwrap();
    assert_eq!(harness.expire().await.next_due, Some(harness.now().after(seconds(10))));
}

pub async fn a_paused_run_takes_step_results_and_nothing_else(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.append("r", pause()).await.unwrap();
    for other in [settled(), completed(), timer(1, harness.now())] {
        refused(harness.store().commit(held.commit(vec![step(0), other])).await, "run_paused");
    }
    // Two steps end one after the other; the code sees nothing in between.
    for number in 0..2 {
        let committed = harness.store().commit(while_paused(&held, vec![step(number)])).await.unwrap();
        assert_eq!((committed.status, committed.index), (Status::Paused, Index(2 + u64::from(number))));
        let seen = held.horizon;
        held.advance(1, committed);
        held.horizon = seen;
    }
    harness.reopen();
    assert_eq!(harness.head("r").await.status, Status::Paused);
    assert_eq!(harness.claim("v").await, []);
    harness.append("r", resume()).await.unwrap();
    let mut held = harness.regain(&held).await;
    harness.commit(&mut held, vec![completed()]).await;
    let log = ["run_started", "run_paused", "step_completed", "step_completed", "run_resumed", "run_completed"];
    assert_eq!(harness.log("r").await, log);
}

pub async fn a_pause_leaves_the_lease_to_its_holder(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.append("r", pause()).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Paused);
    harness.append("r", resume()).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Running);
    assert_eq!(harness.claim("v").await, []);
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![settled()]).await;

    // A paused run that is released may be claimed by another worker after its resumption.
    harness.append("r", pause()).await.unwrap();
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    assert_eq!(harness.claim("v").await, []);
    harness.append("r", resume()).await.unwrap();
    harness.claim_one("v").await;
    refused(harness.store().commit(while_paused(&held, vec![step(0)])).await, "lease_lost");
}

pub async fn a_paused_run_whose_holder_falls_silent_stays_paused(harness: Harness) {
    let held = harness.start_held("r").await;
    harness.append("r", pause()).await.unwrap();
    harness.pass(seconds(60));
    assert_eq!(harness.expire().await.workers_lost, 1);
    assert_eq!(harness.head("r").await.status, Status::Paused);
    assert_eq!(harness.claim("v").await, []);
    harness.append("r", resume()).await.unwrap();
    harness.claim_one("v").await;
    refused(harness.store().commit(while_paused(&held, vec![step(0)])).await, "lease_lost");
}

pub async fn a_standing_commit_that_comes_after_the_resume_is_taken(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.append("r", pause()).await.unwrap();
    harness.append("r", resume()).await.unwrap();
    let committed = harness.store().commit(while_paused(&held, vec![step(0)])).await.unwrap();
    assert_eq!(committed.status, Status::Pending);
    refused(harness.store().commit(Commit { n: 1, ..while_paused(&held, vec![step(1), settled()]) }).await, "commit_malformed");
    held.advance(1, committed);
    harness.commit(&mut held, vec![settled()]).await;
    let behind = Commit { n: 2, horizon: Index(0), ..while_paused(&held, vec![step(1)]) };
    refused(harness.store().commit(behind).await, "commit_malformed");
    assert_eq!(harness.log("r").await.len(), 5);
}

pub async fn a_retry_that_is_set_while_the_run_is_paused_keeps_its_time(mut harness: Harness) {
    let held = harness.start_held("r").await;
    harness.append("r", pause()).await.unwrap();
    harness.pass(seconds(20));
    let retry_at = Some(harness.now().after(seconds(5)));
    let (name, failure) = (name("charge"), Failure::retryable("busy"));
    let call_id = call_id(0);
    let failed = StepFailed { call_id, name, input_hash: None, failure, attempt: 1, took_ms: 1, retry_at, input: None };
    harness.store().commit(while_paused(&held, vec![failed.into()])).await.unwrap();
    harness.reopen();
    harness.pass(seconds(100));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.append("r", resume()).await.unwrap();
    let due = harness.now().after(seconds(5));
    harness.reopen();
    harness.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    assert_eq!(harness.expire().await.next_due, Some(due));
    harness.clock.set(due);
    assert_eq!(harness.expire().await.timers_fired, 1);
}

pub async fn a_paused_run_begins_no_attempt_of_a_task(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    let options = || TaskOptions { retry: Some(RetryPolicy::attempts(2).delay(seconds(10))), ..TaskOptions::default() };
    harness.commit(&mut held, vec![task(0, options()), task(1, options()), task(2, options())]).await;
    let [done, fails]: [Task; 2] = harness.claim_tasks("t", 2).await.try_into().unwrap();
    harness.append("r", pause()).await.unwrap();
    harness.reopen();
    assert_eq!(harness.claim_tasks("t", 10).await, [], "K4: not a first attempt");

    // Running attempts may end; a retry is not handed out, and its delay begins when the run resumes.
    let reports = [(done, TaskReport::Completed(json("1"))), (fails, TaskReport::Failed(Failure::retryable("busy")))];
    for (task, report) in reports {
        harness.store().report_task(task.id, task.claim, report, seconds(30)).await.unwrap();
    }
    harness.pass(seconds(60));
    let expired = harness.expire().await;
    assert_eq!((expired.tasks_expired, harness.claim_tasks("t", 10).await), (0, vec![]), "K4: nor a second one");
    harness.append("r", resume()).await.unwrap();
    harness.reopen();
    let call_ids = |tasks: Vec<Task>| tasks.into_iter().map(|task| task.id.call_id).collect::<Vec<_>>();
    assert_eq!(call_ids(harness.claim_tasks("t", 10).await), [call_id(2)]);
    harness.pass(seconds(9));
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    harness.pass(seconds(1));
    assert_eq!(call_ids(harness.claim_tasks("t", 10).await), [call_id(1)]);
    assert_eq!(harness.log("r").await.last(), Some(&"run_resumed"));
}

pub async fn the_timeouts_of_a_paused_task_keep_their_remaining_time(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.store().heartbeat(worker("w"), seconds(100_000)).await.unwrap();
    let queued = TaskOptions { queued_timeout_ms: Some(10_000), ..TaskOptions::default() };
    let total = TaskOptions { total_timeout_ms: Some(20_000), ..TaskOptions::default() };
    harness.commit(&mut held, vec![task(0, queued), task(1, total)]).await;
    harness.pass(seconds(4));
    for span in [1_000, 2_000] {
        harness.append("r", pause()).await.unwrap();
        harness.reopen();
        harness.pass(seconds(span));
        assert_eq!(harness.expire().await.tasks_expired, 0);
        harness.append("r", resume()).await.unwrap();
    }
    harness.reopen();
    harness.store().heartbeat(worker("w"), seconds(100_000)).await.unwrap();
    assert_eq!(harness.expire().await.next_due, Some(harness.now().after(seconds(6))));
    harness.pass(seconds(6));
    assert_eq!(harness.expire().await.tasks_expired, 1);
    harness.pass(seconds(9));
    assert_eq!(harness.expire().await.tasks_expired, 0);
    harness.pass(seconds(1));
    assert_eq!(harness.expire().await.tasks_expired, 1);
}

fn step(ordinal: u32) -> Event {
    let (call_id, name, output) = (call_id(ordinal), name("charge"), json("1"));
    StepCompleted { call_id, name, input_hash: None, output, attempt: 1, took_ms: 1, input: None }.into()
}

fn while_paused(held: &HeldRun, events: Vec<Event>) -> Commit {
    Commit { is_while_paused: true, waits: false, ..held.commit(events) }
}
