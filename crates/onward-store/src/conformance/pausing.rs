//! A paused run loses nothing and makes no progress until it is resumed.

use onward_core::budget::Budget;
use onward_core::event::{RunResumed, StepCompleted, StepFailed};
use onward_core::run::{Commit, Input};
use onward_core::task::{RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{Event, Failure, Index, Status};

use super::kit::{HeldRun, Kit, completed, json, key, name, pause, call_id, refused, resume, seconds, settled, signal, task, timer, worker};

pub async fn a_paused_run_takes_inputs_but_no_commits_and_no_claims(mut kit: Kit) {
    let held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    kit.append("r", signal(None)).await.unwrap();
    refused(kit.store().commit(held.commit(vec![settled()])).await, "run_paused");
    kit.reopen();
    assert_eq!(kit.head("r").await.status, Status::Paused);
    assert_eq!(kit.claim("v").await, []);
    kit.append("r", resume()).await.unwrap();
    let mut held = kit.regain(&held).await;
    kit.commit(&mut held, vec![completed()]).await;
    let log = ["run_started", "run_paused", "signal_received", "run_resumed", "run_completed"];
    assert_eq!(kit.log("r").await, log);
}

pub async fn a_paused_timer_keeps_its_remaining_time(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    kit.commit(&mut held, vec![timer(0, kit.now().after(seconds(10)))]).await;
    kit.pass(seconds(4));
    kit.append("r", pause()).await.unwrap();
    kit.reopen();
    kit.pass(seconds(100));
    assert_eq!(kit.expire().await.timers_fired, 0);
    kit.append("r", resume()).await.unwrap();
    let due = kit.now().after(seconds(6));
    kit.reopen();
    let early = kit.expire().await;
    assert_eq!((early.timers_fired, early.next_due), (0, Some(due)));
    kit.clock.set(due);
    assert_eq!(kit.expire().await.timers_fired, 1);
}

pub async fn a_run_that_is_not_paused_cannot_be_resumed(kit: Kit) {
    kit.start("r").await;
    refused(kit.append("r", resume()).await, "run_not_paused");
    assert_eq!(kit.log("r").await, ["run_started"]);
}

/// Timers continue, and the holder keeps its lease.
pub async fn a_budget_is_changed_also_where_nothing_is_paused(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    let due = kit.now().after(seconds(10));
    kit.commit(&mut held, vec![timer(0, due)]).await;
    kit.pass(seconds(4));
    let budget = Some(Budget { turns: Some(7), ..Budget::default() });
    kit.append("r", Input::new(RunResumed { budget })).await.unwrap();
    kit.reopen();
    let head = kit.head("r").await;
    assert_eq!(head.budget.and_then(|budget| budget.limit.turns), Some(7));
    assert!(!head.status.is_closed() && head.status != Status::Paused);
    assert_eq!(kit.expire().await.next_due, Some(due));
}

pub async fn a_pause_upon_a_pause_changes_no_timer(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    kit.commit(&mut held, vec![timer(0, kit.now().after(seconds(10)))]).await;
    kit.append("r", pause()).await.unwrap();
    kit.pass(seconds(50));
    kit.append("r", pause()).await.unwrap();
    kit.pass(seconds(50));
    kit.append("r", resume()).await.unwrap();
    assert_eq!(kit.expire().await.next_due, Some(kit.now().after(seconds(10))));
}

pub async fn a_paused_run_takes_step_results_and_nothing_else(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    for other in [settled(), completed(), timer(1, kit.now())] {
        refused(kit.store().commit(held.commit(vec![step(0), other])).await, "run_paused");
    }
    // Two steps end one after the other; the code sees nothing in between.
    for number in 0..2 {
        let committed = kit.store().commit(while_paused(&held, vec![step(number)])).await.unwrap();
        assert_eq!((committed.status, committed.index), (Status::Paused, Index(2 + u64::from(number))));
        let seen = held.horizon;
        held.advance(1, committed);
        held.horizon = seen;
    }
    kit.reopen();
    assert_eq!(kit.head("r").await.status, Status::Paused);
    assert_eq!(kit.claim("v").await, []);
    kit.append("r", resume()).await.unwrap();
    let mut held = kit.regain(&held).await;
    kit.commit(&mut held, vec![completed()]).await;
    let log = ["run_started", "run_paused", "step_completed", "step_completed", "run_resumed", "run_completed"];
    assert_eq!(kit.log("r").await, log);
}

pub async fn a_pause_leaves_the_lease_to_its_holder(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    assert_eq!(kit.head("r").await.status, Status::Paused);
    kit.append("r", resume()).await.unwrap();
    assert_eq!(kit.head("r").await.status, Status::Running);
    assert_eq!(kit.claim("v").await, []);
    kit.read_on(&mut held).await;
    kit.commit(&mut held, vec![settled()]).await;

    // A paused run that is released may be claimed by another worker after its resumption.
    kit.append("r", pause()).await.unwrap();
    kit.store().release_run(key("r"), held.head.epoch).await.unwrap();
    assert_eq!(kit.claim("v").await, []);
    kit.append("r", resume()).await.unwrap();
    kit.claim_one("v").await;
    refused(kit.store().commit(while_paused(&held, vec![step(0)])).await, "lease_lost");
}

pub async fn a_paused_run_whose_holder_falls_silent_stays_paused(kit: Kit) {
    let held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    kit.pass(seconds(60));
    assert_eq!(kit.expire().await.workers_lost, 1);
    assert_eq!(kit.head("r").await.status, Status::Paused);
    assert_eq!(kit.claim("v").await, []);
    kit.append("r", resume()).await.unwrap();
    kit.claim_one("v").await;
    refused(kit.store().commit(while_paused(&held, vec![step(0)])).await, "lease_lost");
}

pub async fn a_standing_commit_that_comes_after_the_resume_is_taken(kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    kit.append("r", resume()).await.unwrap();
    let committed = kit.store().commit(while_paused(&held, vec![step(0)])).await.unwrap();
    assert_eq!(committed.status, Status::Pending);
    refused(kit.store().commit(Commit { n: 1, ..while_paused(&held, vec![step(1), settled()]) }).await, "commit_malformed");
    held.advance(1, committed);
    kit.commit(&mut held, vec![settled()]).await;
    let behind = Commit { n: 2, horizon: Index(0), ..while_paused(&held, vec![step(1)]) };
    refused(kit.store().commit(behind).await, "commit_malformed");
    assert_eq!(kit.log("r").await.len(), 5);
}

pub async fn a_retry_that_is_set_while_the_run_is_paused_keeps_its_time(mut kit: Kit) {
    let held = kit.start_held("r").await;
    kit.append("r", pause()).await.unwrap();
    kit.pass(seconds(20));
    let retry_at = Some(kit.now().after(seconds(5)));
    let (name, failure) = (name("charge"), Failure::retryable("busy"));
    let failed = StepFailed { call_id: call_id(0), name, input_hash: None, failure, attempt: 1, took_ms: 1, retry_at };
    kit.store().commit(while_paused(&held, vec![failed.into()])).await.unwrap();
    kit.reopen();
    kit.pass(seconds(100));
    assert_eq!(kit.expire().await.timers_fired, 0);
    kit.append("r", resume()).await.unwrap();
    let due = kit.now().after(seconds(5));
    kit.reopen();
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    assert_eq!(kit.expire().await.next_due, Some(due));
    kit.clock.set(due);
    assert_eq!(kit.expire().await.timers_fired, 1);
}

pub async fn a_paused_run_begins_no_attempt_of_a_task(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(1_000)).await.unwrap();
    let options = || TaskOptions { retry: RetryPolicy::attempts(2).delay(seconds(10)), ..TaskOptions::default() };
    kit.commit(&mut held, vec![task(0, options()), task(1, options()), task(2, options())]).await;
    let [done, fails]: [Task; 2] = kit.claim_tasks("t", 2).await.try_into().unwrap();
    kit.append("r", pause()).await.unwrap();
    kit.reopen();
    assert_eq!(kit.claim_tasks("t", 10).await, [], "K4: not a first attempt");

    // Running attempts may end; a retry is not handed out, and its delay begins when the run resumes.
    let reports = [(done, TaskReport::Completed(json("1"))), (fails, TaskReport::Failed(Failure::retryable("busy")))];
    for (task, report) in reports {
        kit.store().report_task(task.id, task.claim, report, seconds(30)).await.unwrap();
    }
    kit.pass(seconds(60));
    let expired = kit.expire().await;
    assert_eq!((expired.tasks_expired, kit.claim_tasks("t", 10).await), (0, vec![]), "K4: nor a second one");
    kit.append("r", resume()).await.unwrap();
    kit.reopen();
    let call_ids = |tasks: Vec<Task>| tasks.into_iter().map(|task| task.id.call_id).collect::<Vec<_>>();
    assert_eq!(call_ids(kit.claim_tasks("t", 10).await), [call_id(2)]);
    kit.pass(seconds(9));
    assert_eq!(kit.claim_tasks("t", 10).await, []);
    kit.pass(seconds(1));
    assert_eq!(call_ids(kit.claim_tasks("t", 10).await), [call_id(1)]);
    assert_eq!(kit.log("r").await.last(), Some(&"run_resumed"));
}

pub async fn the_timeouts_of_a_paused_task_keep_their_remaining_time(mut kit: Kit) {
    let mut held = kit.start_held("r").await;
    kit.store().heartbeat(worker("w"), seconds(100_000)).await.unwrap();
    let queued = TaskOptions { queued_timeout_ms: Some(10_000), ..TaskOptions::default() };
    let total = TaskOptions { total_timeout_ms: Some(20_000), ..TaskOptions::default() };
    kit.commit(&mut held, vec![task(0, queued), task(1, total)]).await;
    kit.pass(seconds(4));
    for span in [1_000, 2_000] {
        kit.append("r", pause()).await.unwrap();
        kit.reopen();
        kit.pass(seconds(span));
        assert_eq!(kit.expire().await.tasks_expired, 0);
        kit.append("r", resume()).await.unwrap();
    }
    kit.reopen();
    kit.store().heartbeat(worker("w"), seconds(100_000)).await.unwrap();
    assert_eq!(kit.expire().await.next_due, Some(kit.now().after(seconds(6))));
    kit.pass(seconds(6));
    assert_eq!(kit.expire().await.tasks_expired, 1);
    kit.pass(seconds(9));
    assert_eq!(kit.expire().await.tasks_expired, 0);
    kit.pass(seconds(1));
    assert_eq!(kit.expire().await.tasks_expired, 1);
}

fn step(ordinal: u32) -> Event {
    StepCompleted { call_id: call_id(ordinal), name: name("charge"), input_hash: None, output: json("1"), attempt: 1, took_ms: 1 }
        .into()
}

fn while_paused(held: &HeldRun, events: Vec<Event>) -> Commit {
    Commit { is_while_paused: true, waits: false, ..held.commit(events) }
}
