//! L8, L9, L21: a task is leased to one worker at a time, has one result, and is handed out in order.

use std::sync::Arc;

use onward_core::event::TaskCanceled;
use onward_core::spend::Spend;
use onward_core::task::{EffectClass, PANICKED, RetryPolicy, Task, TaskOptions, TaskReport, TaskState};
use onward_core::{CallId, Event, Failure, WorkerId};

use super::block_on;
use super::harness::{Harness, call_id, json, key, name, refused, seconds, task, task_of, terminate, worker};
use crate::{ClaimTasks, StoreError, TaskQuery};

pub async fn a_task_is_offered_once_while_its_lease_is_valid(mut harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let claimed = harness.claim_tasks("t", 10).await;
    assert_eq!((claimed.len(), claimed[0].claim, claimed[0].attempt), (1, 1, 1));
    harness.reopen();
    harness.pass(seconds(29));
    harness.expire().await;
    assert_eq!(harness.claim_tasks("u", 10).await, []);
}

pub async fn a_result_is_recorded_once(mut harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let task = claim_one(&harness).await;
    report(&harness, &task, done()).await.unwrap();
    harness.reopen();
    refused(report(&harness, &task, done()).await, "task_attempt_over");
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
    harness.pass(seconds(60));
    assert_eq!(harness.expire().await.tasks_expired, 0);
    assert_eq!(harness.claim_tasks("u", 10).await, []);
}

pub async fn a_failed_attempt_is_retried_after_its_delay(mut harness: Harness) {
    schedule(&harness, TaskOptions { retry: Some(RetryPolicy::attempts(2).delay(seconds(10))), ..Default::default() }).await;
    let task = claim_one(&harness).await;
    report(&harness, &task, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    let visible = harness.now().after(seconds(10));
    assert_eq!(harness.expire().await.next_due, Some(visible));
    harness.reopen();
    harness.clock.set(visible);
    let again = claim_one(&harness).await;
    assert_eq!((again.attempt, again.claim), (2, 2));
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled"]);
}

pub async fn the_last_failed_attempt_fails_the_task(harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let task = claim_one(&harness).await;
    report(&harness, &task, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_failed"]);
}

pub async fn a_lost_worker_gives_its_task_to_another(mut harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let lost = claim_one(&harness).await;
    harness.reopen();
    harness.pass(seconds(30));
    assert_eq!(harness.expire().await.tasks_expired, 1);
    let again = claim_one(&harness).await;
    assert_eq!((again.attempt, again.claim), (2, 2));
    refused(report(&harness, &lost, done()).await, "task_attempt_over");
    report(&harness, &again, done()).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

pub async fn a_heartbeat_keeps_the_lease(harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let task = claim_one(&harness).await;
    for _ in 0..3 {
        harness.pass(seconds(20));
        let progress = Some(json("\"half\""));
        report(&harness, &task, TaskReport::Heartbeat { progress }).await.unwrap();
        assert_eq!(harness.expire().await.tasks_expired, 0);
    }
    report(&harness, &task, done()).await.unwrap();
}

pub async fn a_canceled_task_is_never_offered(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default()), task(1, TaskOptions::default())]).await;
    let claimed = harness.claim_tasks("t", 1).await.remove(0);
    let cancel = |ordinal| Event::from(TaskCanceled { call_id: call_id(ordinal) });
    harness.commit(&mut held, vec![cancel(0), cancel(1)]).await;
    harness.reopen();
    refused(report(&harness, &claimed, done()).await, "task_attempt_over");
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    harness.pass(seconds(60));
    assert_eq!(harness.expire().await.tasks_expired, 0);
}

pub async fn a_released_task_is_offered_at_once(harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let task = claim_one(&harness).await;
    report(&harness, &task, task.not_started()).await.unwrap();
    let again = claim_one(&harness).await;
    assert_eq!((again.attempt, again.claim, again.lost_workers), (1, 2, 0));
    report(&harness, &again, TaskReport::Interrupted).await.unwrap();
    let again = claim_one(&harness).await;
    assert_eq!((again.attempt, again.claim, again.lost_workers), (2, 3, 0));
    report(&harness, &again, TaskReport::WorkerLost).await.unwrap();
    let again = claim_one(&harness).await;
    assert_eq!((again.attempt, again.claim, again.lost_workers), (3, 4, 1));
    // None of these used up the single attempt that the retry policy allows.
    report(&harness, &again, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_failed"]);
}

/// K6: an `at_most_once` task is not offered again after an attempt that may have begun, however that ended.
pub async fn an_at_most_once_task_is_executed_once(mut harness: Harness) {
    let once = |attempts| TaskOptions {
        class: Some(EffectClass::AtMostOnce),
        retry: Some(RetryPolicy::attempts(attempts)),
        ..TaskOptions::default()
    };
    let panicked = || TaskReport::Failed(Failure::new(PANICKED, "index out of bounds"));
    for (run, ends) in [
        ("interrupted", Some(TaskReport::Interrupted)),
        ("spent", None),
        ("lost", Some(TaskReport::WorkerLost)),
        ("panicked", Some(panicked())),
        ("expired", None),
    ] {
        let mut held = harness.start_held(run).await;
        harness.commit(&mut held, vec![task(0, once(5))]).await;
        let claimed = claim_one(&harness).await;
        // An attempt that is known not to have started is not an execution.
        report(&harness, &claimed, claimed.not_started()).await.unwrap();
        let claimed = claim_one(&harness).await;
        assert_eq!((claimed.attempt, claimed.claim), (1, 2), "{run}");
        harness.reopen();
        match (run, ends) {
            ("expired", _) => {
                harness.pass(seconds(30));
                assert_eq!(harness.expire().await.tasks_expired, 1);
            }
            ("spent", _) => {
                let spend = claimed.attempt_spend(vec![Spend::on("m")]);
                report(&harness, &claimed, TaskReport::Interrupted.with_spend(spend)).await.unwrap();
            }
            (_, Some(ends)) => report(&harness, &claimed, ends).await.unwrap(),
            (_, None) => {}
        }
        harness.reopen();
        let records = harness.records(run).await;
        let failed = records.iter().flat_map(|record| &record.events).find_map(|event| match event {
            Event::TaskFailed(failed) => Some(failed.failure.code.as_str()),
            _ => None,
        });
        assert_eq!(failed, Some("outcome_unknown"), "{run}");
        harness.pass(seconds(600));
        harness.expire().await;
        assert_eq!(harness.claim_tasks("t", 10).await, [], "{run}");
        // Every report is too late now.
        for late in [TaskReport::Interrupted, TaskReport::WorkerLost, claimed.not_started(), done()] {
            refused(report(&harness, &claimed, late).await, "task_attempt_over");
        }
    }
}

/// K10: a worker moves its attempt to another session; the old session can neither end nor shorten it.
pub async fn a_task_that_moved_is_not_lost_by_the_session_before(mut harness: Harness) {
    schedule(&harness, TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() }).await;
    let claimed = claim_one(&harness).await;
    let (before, after) = (claimed.worker.clone().unwrap(), WorkerId::new("elsewhere").unwrap());
    report(&harness, &claimed, TaskReport::Heartbeat { progress: None }.by_session(before.clone())).await.unwrap();
    report(&harness, &claimed, TaskReport::Adopted { session: after.clone() }).await.unwrap();
    harness.reopen();
    let beat = TaskReport::Heartbeat { progress: None };
    for late in [TaskReport::WorkerLost, TaskReport::Interrupted, claimed.not_started(), beat] {
        refused(report(&harness, &claimed, late.by_session(before.clone())).await, "task_attempt_over");
    }
    harness.pass(seconds(29));
    assert_eq!(harness.expire().await.tasks_expired, 0);
    report(&harness, &claimed, TaskReport::Heartbeat { progress: None }.by_session(after.clone())).await.unwrap();
    report(&harness, &claimed, TaskReport::WorkerLost.by_session(after)).await.unwrap();
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_attempted", "task_failed"]);
}

/// K9, K7: two executions never have the same number in the log, however the first one ends.
pub async fn every_attempt_that_began_has_its_own_number(mut harness: Harness) {
    let class = Some(EffectClass::AtLeastOnce);
    schedule(&harness, TaskOptions { class, retry: Some(RetryPolicy::attempts(2)), ..TaskOptions::default() }).await;
    let ends =
        [Some(TaskReport::Interrupted), Some(TaskReport::WorkerLost), None, Some(TaskReport::Failed(Failure::retryable("busy")))];
    for (number, end) in (1..).zip(ends) {
        let task = claim_one(&harness).await;
        assert_eq!(task.attempt, number);
        match end {
            Some(end) => report(&harness, &task, end).await.unwrap(),
            None => {
                harness.pass(seconds(30));
                assert_eq!(harness.expire().await.tasks_expired, 1);
            }
        }
        harness.pass(seconds(5));
        harness.reopen();
    }
    let last = claim_one(&harness).await;
    report(&harness, &last, done()).await.unwrap();
    let records = harness.records("r").await;
    let numbers = records.iter().flat_map(|record| &record.events).filter_map(|event| match event {
        Event::TaskAttempted(attempted) => Some(attempted.attempt),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
}

pub async fn tasks_go_by_priority_and_then_in_order(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let with = |priority| TaskOptions { priority: Some(priority), ..Default::default() };
    harness.commit(&mut held, vec![task(0, with(0)), task(1, with(5)), task(2, with(-1)), task(3, with(0))]).await;
    harness.pass(seconds(1));
    harness.commit(&mut held, vec![task(4, with(5)), task(5, with(0))]).await;
    harness.reopen();
    let mut call_ids = Vec::new();
    for _ in 0..3 {
        call_ids.extend(harness.claim_tasks("t", 2).await.into_iter().map(|task| task.id.call_id));
    }
    assert_eq!(call_ids, [1, 4, 0, 3, 5, 2].map(CallId::root));
}

pub async fn a_worker_gets_only_its_kinds_and_queues(harness: Harness) {
    let mut held = harness.start_held("r").await;
    let gpu = TaskOptions { queue: Some(name("gpu")), ..Default::default() };
    let tasks = vec![task_of("print", 0, TaskOptions::default()), task(1, gpu.clone()), task(2, TaskOptions::default())];
    harness.commit(&mut held, tasks).await;
    let claim = |kinds: &[&str], queues: Vec<Option<&str>>| {
        let kinds = Arc::new(kinds.iter().map(|kind| name(kind)).collect());
        let queues = queues.into_iter().map(|queue| queue.map(name)).collect();
        let (store, worker) = (harness.store(), worker("t"));
        async move {
            let request = ClaimTasks { worker, namespace: Default::default(), queues, kinds, limit: 10, lease: seconds(30) };
            let tasks = store.claim_tasks(request).await.unwrap();
            tasks.into_iter().map(|task| task.id.call_id).collect::<Vec<_>>()
        }
    };
    assert_eq!(claim(&["scan"], vec![None, Some("gpu")]).await, [] as [CallId; 0]);
    assert_eq!(claim(&["mail"], vec![Some("gpu")]).await, [call_id(1)]);
    assert_eq!(claim(&["mail", "print"], vec![None]).await, [call_id(0), call_id(2)]);
}

pub async fn a_task_that_waits_too_long_fails(mut harness: Harness) {
    schedule(&harness, TaskOptions { queued_timeout_ms: Some(10_000), ..Default::default() }).await;
    let due = harness.now().after(seconds(10));
    assert_eq!(harness.expire().await.next_due, Some(due));
    harness.reopen();
    harness.clock.set(due);
    assert_eq!(harness.expire().await.tasks_expired, 1);
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "task_failed"]);
    assert_eq!(harness.claim_tasks("t", 10).await, []);
}

pub async fn concurrent_claims_never_share_a_task(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, (0..40).map(|ordinal| task(ordinal, TaskOptions::default())).collect()).await;
    let workers: Vec<_> = (0..4)
        .map(|id| {
            let store = harness.store();
            std::thread::spawn(move || {
                let mut count = 0;
                loop {
                    let (worker, kinds) = (worker(&format!("t{id}")), Arc::new(vec![name("mail")]));
                    let request = ClaimTasks {
                        worker,
                        namespace: Default::default(),
                        queues: vec![None],
                        kinds,
                        limit: 3,
                        lease: seconds(30),
                    };
                    let tasks = block_on(store.claim_tasks(request)).unwrap();
                    if tasks.is_empty() {
                        return count;
                    }
                    for task in tasks {
                        block_on(store.report_task(task.id, task.claim, done(), seconds(30))).unwrap();
                        count += 1;
                    }
                }
            })
        })
        .collect();
    assert_eq!(workers.into_iter().map(|worker| worker.join().unwrap()).sum::<u32>(), 40);
    let log = harness.log("r").await;
    assert_eq!(log.iter().filter(|event| **event == "task_completed").count(), 40);
}

pub async fn a_result_for_a_closed_run_is_stale(harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let task = claim_one(&harness).await;
    harness.append("r", terminate()).await.unwrap();
    refused(report(&harness, &task, done()).await, "task_attempt_over");
    assert_eq!(harness.log("r").await, ["run_started", "task_scheduled", "terminate_requested"]);
}

fn done() -> TaskReport {
    TaskReport::Completed(json("true"))
}

/// Starts run `r`, schedules one task and releases the run.
async fn schedule(harness: &Harness, options: TaskOptions) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, options)]).await;
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    // Keeps the session of the worker that started the run from expiring.
    harness.store().heartbeat(worker("w"), seconds(1_000_000)).await.unwrap();
}

async fn claim_one(harness: &Harness) -> Task {
    let mut tasks = harness.claim_tasks("t", 10).await;
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

async fn report(harness: &Harness, task: &Task, report: TaskReport) -> Result<(), StoreError> {
    harness.store().report_task(task.id.clone(), task.claim, report, seconds(30)).await
}

pub async fn a_quarantined_task_is_listed_and_can_be_retried(mut harness: Harness) {
    schedule(&harness, TaskOptions::default()).await;
    let quarantined = |harness: &Harness| {
        let (store, state) = (harness.store(), Some(TaskState::Quarantined));
        async move { store.list_tasks(TaskQuery { state, ..TaskQuery::default() }).await.unwrap() }
    };
    let id = harness.store().list_tasks(TaskQuery::default()).await.unwrap().remove(0).id;
    refused(harness.store().retry_task(id.clone()).await, "task_not_quarantined");
    let mut lost = 0;
    while quarantined(&harness).await.is_empty() {
        claim_one(&harness).await;
        harness.pass(seconds(30));
        harness.expire().await;
        harness.pass(seconds(10)); // the delay after a lost worker (K5)
        harness.expire().await;
        lost += 1;
    }
    harness.reopen();
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    let listed = quarantined(&harness).await;
    assert_eq!((listed.len(), &listed[0].id, listed[0].lost_workers, listed[0].counted_attempt()), (1, &id, lost, 1));

    let elsewhere = TaskQuery { run: Some(key("other")), ..TaskQuery::default() };
    assert_eq!(harness.store().list_tasks(elsewhere).await.unwrap(), []);
    harness.store().retry_task(id.clone()).await.unwrap();
    refused(harness.store().retry_task(id.clone()).await, "task_not_quarantined");
    harness.reopen();
    assert_eq!(quarantined(&harness).await, []);
    let task = claim_one(&harness).await;
    assert_eq!((task.attempt, task.claim, task.lost_workers), (lost + 1, u64::from(lost) + 1, 0));
    report(&harness, &task, done()).await.unwrap();
    refused(harness.store().retry_task(id).await, "task_not_quarantined");
    assert_eq!(harness.store().list_tasks(TaskQuery::default()).await.unwrap(), []);
}

pub async fn tasks_are_listed_in_the_order_they_were_scheduled(harness: Harness) {
    let mut held = harness.start_held("r").await;
    let with = |priority| TaskOptions { priority: Some(priority), ..Default::default() };
    harness.commit(&mut held, vec![task(2, with(0)), task(0, with(9)), task(1, with(5))]).await;
    harness.claim_tasks("t", 1).await;
    let call_ids = |tasks: Vec<Task>| tasks.into_iter().map(|task| task.id.call_id.ordinal()).collect::<Vec<_>>();
    assert_eq!(call_ids(harness.store().list_tasks(TaskQuery::default()).await.unwrap()), [2, 0, 1]);
    let first = TaskQuery { limit: 1, state: Some(TaskState::Queued), ..TaskQuery::default() };
    assert_eq!(call_ids(harness.store().list_tasks(first).await.unwrap()), [2]);
    let leased = TaskQuery { state: Some(TaskState::Leased), ..TaskQuery::default() };
    assert_eq!(call_ids(harness.store().list_tasks(leased).await.unwrap()), [0]);
}
