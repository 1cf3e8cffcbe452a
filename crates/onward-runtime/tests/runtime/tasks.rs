//! Tasks: attempts, timeouts, heartbeats, lost workers, cancellation.

use onward_core::api::{PutQueueRequest, StartTaskRequest};
use onward_core::event::TaskCanceled;
use onward_core::queue::{HeldBack, QueueLimit, QueueSettings};
use onward_core::task::{EffectClass, RetryPolicy, Task, TaskOptions, TaskReport, TaskState};
use onward_core::{Event, Failure, Index, KindSchemas, Namespace, Payload, Status};
use onward_runtime::{Adoption, BlockReason, CallRef, DriveInput, LocalConnection, StartRequest};
use onward_store::TaskQuery;

use crate::faulty::When;
use crate::kit::*;

async fn scheduled(options: TaskOptions) -> (Harness, LocalConnection, HeldRun) {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, vec![task(0, options)]).await;
    (kit, worker, held)
}

async fn next_task(worker: &LocalConnection) -> Task {
    let mut tasks = tokio::time::timeout(seconds(600), worker.next_tasks(1)).await.expect("there is a task for the worker");
    // Let the next claim, which this call started, end before the test continues.
    tokio::task::yield_now().await;
    tasks.remove(0)
}

async fn report(worker: &LocalConnection, task: &Task, report: TaskReport) -> Result<(), &'static str> {
    worker.report_task(task.id.clone(), task.claim, report).await.map_err(|error| error.code())
}

fn done() -> TaskReport {
    TaskReport::Completed(text("sent"))
}

/// Returns the failure in the run's log.
async fn failure(kit: &Harness) -> Failure {
    let records = kit.runtime.read_log(&key("r"), None, Index(0), 100).await.unwrap();
    let failed = records.into_iter().flat_map(|record| record.events).find_map(|event| match event {
        Event::TaskFailed(event) => Some(event.failure),
        _ => None,
    });
    failed.unwrap()
}

/// Advances the clock by `span` seconds, with heartbeats of the worker's session.
async fn pass(kit: &Harness, span: u64) {
    for _ in 0..span {
        kit.advance(seconds(1));
        kit.runtime.tick().await;
    }
}

/// KI4: a worker that does not declare a kind internal may be an older one.
#[tokio::test(start_paused = true)]
async fn an_internal_kind_stays_internal_until_it_is_removed() {
    let (kit, namespace) = (Harness::new(), Namespace::default());
    let mail_kind = |is_internal, input: Option<Payload>| {
        let empty = KindSchemas::empty(Namespace::default(), name("mail"), None);
        vec![KindSchemas { is_task: true, input, is_internal, ..empty }]
    };
    let start = || {
        let (key, kind, options) = (key("t"), name("mail"), TaskOptions::default());
        kit.runtime.start_task(StartTaskRequest { task: key, kind, input: Payload::null(), options, trace: None })
    };
    kit.runtime.register_kinds(&namespace, mail_kind(true, None)).await.unwrap();
    refused(start().await, "kind_internal");
    for schema in [None, Some(Payload::from_json_text("{}"))] {
        kit.runtime.register_kinds(&namespace, mail_kind(false, schema)).await.unwrap();
        refused(start().await, "kind_internal");
        assert_eq!(kit.runtime.list_kinds(&namespace).await.unwrap(), []);
    }
    assert!(kit.runtime.forget_kind(&namespace, &name("mail")).await.unwrap());
    assert!(!kit.runtime.forget_kind(&namespace, &name("mail")).await.unwrap());
    kit.runtime.register_kinds(&namespace, mail_kind(false, None)).await.unwrap();
    start().await.unwrap();
}

/// K10: the server that the worker has left neither ends the attempt nor shortens its lease.
#[tokio::test(start_paused = true)]
async fn a_task_of_a_worker_that_moved_is_not_lost_by_the_server_that_it_left() {
    let (kit, here, _held) = scheduled(TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() }).await;
    let task = next_task(&here).await;
    let there = kit.other_runtime().join_worker(profile("there", 10));
    assert_eq!(there.adopt_task(&task.id, task.claim, |_| true).await.unwrap(), Adoption::Adopted);
    let lost = here.report_for_worker(task.id.clone(), task.claim, TaskReport::WorkerLost).await;
    assert_eq!(lost.unwrap_err().code(), "task_attempt_over");
    // The worker returns and leaves again: the latest session owns the task.
    assert_eq!(here.adopt_task(&task.id, task.claim, |_| true).await.unwrap(), Adoption::Adopted);
    let lost = there.report_for_worker(task.id.clone(), task.claim, TaskReport::Interrupted).await;
    assert_eq!(lost.unwrap_err().code(), "task_attempt_over");
    report(&here, &task, done()).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_attempted", "task_completed"]);
}

/// K10: a heartbeat of the new session before its adoption is written does not end the task that is being adopted.
#[tokio::test(start_paused = true)]
async fn a_task_that_is_being_adopted_is_kept_alive_afterwards() {
    let (kit, here, _held) = scheduled(TaskOptions { class: Some(EffectClass::AtMostOnce), ..TaskOptions::default() }).await;
    let task = next_task(&here).await;
    let other = kit.other_runtime();
    let there = other.join_worker(profile("there", 10));
    for _ in 0..2 {
        let gate = kit.store.stall_once("report_task", When::Before);
        let (port, id, claim) = (there.clone(), task.id.clone(), task.claim);
        let adopting = tokio::spawn(async move { port.adopt_task(&id, claim, |_| true).await });
        kit.settle().await;
        kit.advance(seconds(10));
        other.tick().await;
        gate.notify_one();
        assert_eq!(adopting.await.unwrap().unwrap(), Adoption::Adopted);
        for _ in 0..60 {
            kit.advance(seconds(1));
            other.tick().await;
        }
        // The worker goes back in between, and returns with the task.
        let back = TaskReport::Adopted { session: task.worker.clone().unwrap() };
        report(&there, &task, back).await.unwrap();
    }
    report(&there, &task, done()).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_attempted", "task_completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_completed_task_is_an_input_of_its_run_once() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    let task = next_task(&worker).await;
    assert_eq!((task.attempt, task.kind.as_str()), (1, "mail"));
    report(&worker, &task, done()).await.unwrap();
    assert_eq!(report(&worker, &task, done()).await, Err("task_attempt_over"));
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
    assert_eq!(kit.head("r").await.status, Status::Running);
}

#[tokio::test(start_paused = true)]
async fn a_queued_task_wakes_a_waiting_worker_and_an_idle_one_polls_once_per_fallback() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    assert!(waits(worker.next_tasks(1)).await);
    assert!(kit.store.calls("claim_tasks") <= 101);
    let begun = tokio::time::Instant::now();
    let late = async {
        tokio::task::yield_now().await;
        kit.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    };
    let (tasks, ()) = tokio::join!(worker.next_tasks(1), late);
    assert_eq!((tasks.len(), begun.elapsed()), (1, seconds(0)));
}

#[tokio::test(start_paused = true)]
async fn tasks_of_other_queues_and_kinds_are_left_alone() {
    let (_kit, worker, _held) = scheduled(TaskOptions { queue: Some(name("slow")), ..Default::default() }).await;
    assert!(waits(worker.next_tasks(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_failed_attempt_is_tried_again_when_its_pause_is_over() {
    let (kit, worker, _held) = scheduled(TaskOptions { retry: Some(RetryPolicy::attempts(2)), ..Default::default() }).await;
    let first = next_task(&worker).await;
    report(&worker, &first, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    assert!(waits(worker.next_tasks(1)).await);
    kit.advance(seconds(1));
    let begun = tokio::time::Instant::now();
    let (again, _) = tokio::join!(next_task(&worker), kit.runtime.tick());
    assert_eq!((again.attempt, begun.elapsed()), (2, seconds(0)), "the tick reports that it is visible");
    report(&worker, &again, TaskReport::Failed(Failure::retryable("still busy"))).await.unwrap();
    assert_eq!(failure(&kit).await.message, "still busy");
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_not_claimed_in_time_fails() {
    let (kit, worker, _held) = scheduled(TaskOptions { queued_timeout_ms: Some(5_000), ..Default::default() }).await;
    pass(&kit, 4).await;
    assert_eq!(kit.log("r").await.len(), 2);
    pass(&kit, 1).await;
    assert!(failure(&kit).await.is_timed_out());
    assert!(waits(worker.next_tasks(1)).await);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_over_its_time_is_over_for_its_worker_too() {
    let retry = Some(RetryPolicy::attempts(2));
    let (kit, worker, _held) = scheduled(TaskOptions { retry, attempt_timeout_ms: Some(5_000), ..Default::default() }).await;
    let first = next_task(&worker).await;
    pass(&kit, 5).await;
    assert_eq!(report(&worker, &first, done()).await, Err("task_attempt_over"));
    pass(&kit, 1).await;
    let second = next_task(&worker).await;
    assert_eq!(second.attempt, 2);
    report(&worker, &second, done()).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

#[tokio::test(start_paused = true)]
async fn all_attempts_together_have_a_limit() {
    let (retry, total_timeout_ms) = (Some(RetryPolicy::forever()), Some(5_000));
    let (kit, worker, _held) = scheduled(TaskOptions { retry, total_timeout_ms, ..Default::default() }).await;
    let task = next_task(&worker).await;
    report(&worker, &task, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    pass(&kit, 5).await;
    assert!(failure(&kit).await.is_timed_out());
}

#[tokio::test(start_paused = true)]
async fn a_long_task_is_kept_alive_by_its_worker() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    let task = next_task(&worker).await;
    pass(&kit, 300).await;
    report(&worker, &task, done()).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_promised_heartbeats_is_not_kept_alive_without() {
    for timeout in [10, 60] {
        let options = TaskOptions { heartbeat_timeout_ms: Some(timeout * 1_000), ..Default::default() };
        let (kit, worker, _held) = scheduled(options).await;
        let task = next_task(&worker).await;
        pass(&kit, timeout - 1).await;
        report(&worker, &task, TaskReport::Heartbeat { progress: Some(text("half")) }).await.unwrap();
        pass(&kit, timeout - 1).await;
        assert_eq!(kit.log("r").await.len(), 2, "a lease shorter than {timeout} s does not take it away");
        pass(&kit, 1).await;
        assert_eq!(failure(&kit).await.code, "heartbeat_timed_out");
    }
}

/// Claims a task with a worker that then vanishes.
async fn vanish(kit: &Harness, number: u32) -> Task {
    let other = kit.other_runtime();
    let worker = other.join_worker(profile(&format!("vanishing {number}"), 1));
    let task = next_task(&worker).await;
    std::mem::forget(worker);
    task
}

#[tokio::test(start_paused = true)]
async fn a_lost_worker_burns_no_attempt_and_its_late_report_changes_nothing() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    let lost = vanish(&kit, 0).await;
    pass(&kit, 30).await;
    let again = next_task(&worker).await;
    assert_eq!((again.attempt, again.counted_attempt(), again.claim, again.lost_workers), (2, 1, 2, 1));
    assert_eq!(report(&worker, &lost, TaskReport::Completed(text("late"))).await, Err("task_attempt_over"));
    report(&worker, &again, done()).await.unwrap();
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled", "task_completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_loses_worker_after_worker_is_quarantined() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    for number in 0..6 {
        vanish(&kit, number).await;
        pass(&kit, 30).await;
        pass(&kit, 10).await; // apart from others that lost a worker with it (K5)
    }
    assert!(waits(worker.next_tasks(1)).await);
    assert_eq!(kit.log("r").await, ["run_started", "task_scheduled"]);

    // An operator retries the task; waiting workers are notified.
    let quarantined = TaskQuery { state: Some(TaskState::Quarantined), ..TaskQuery::default() };
    let listed = kit.runtime.store().list_tasks(quarantined).await.unwrap();
    let id = CallRef::from(listed[0].id.clone());
    let mut blockers = kit.runtime.blocked_on(&key("r")).await.unwrap();
    blockers.retain(|blocker| blocker.task.is_some());
    assert_eq!(
        (blockers.len(), CallRef::from(blockers[0].task.clone().unwrap()), blockers[0].why, blockers[0].lost_workers),
        (1, id.clone(), BlockReason::Quarantined, 6)
    );
    let (since, until) = (blockers[0].since.unwrap(), blockers[0].until);
    assert_eq!((kit.runtime.clock().now().since(since), until), (seconds(10), None), "since its last worker was lost");
    assert_eq!(blockers[0].hint().unwrap(), "find out why its workers vanish, then run `onward queue retry r~0~0`");
    let (task, retried) = tokio::join!(next_task(&worker), kit.runtime.retry_task(&id));
    retried.unwrap();
    assert_eq!((task.id, task.lost_workers), (listed[0].id.clone(), 0));
    assert_eq!(kit.runtime.retry_task(&id).await.unwrap_err().code(), "task_not_quarantined");
}

#[tokio::test(start_paused = true)]
async fn a_run_names_the_limit_that_holds_its_task_back_although_a_worker_would_take_it() {
    let (kit, worker, _held) = scheduled(TaskOptions { key: Some(name("a")), ..TaskOptions::default() }).await;
    let pause = async |paused| {
        let (namespace, settings) = (Namespace::default(), QueueSettings { paused, ..QueueSettings::default() });
        kit.runtime.put_queue(PutQueueRequest { namespace, queue: None, settings, replaces: None }).await.unwrap()
    };
    let blockers = async || {
        let found = kit.runtime.blocked_on(&key("r")).await.unwrap();
        found.into_iter().filter(|blocker| blocker.task.is_some()).map(|of| (of.why, of.held_back)).collect::<Vec<_>>()
    };
    assert_eq!(blockers().await, []);
    let queue = pause(true).await;
    assert_eq!((queue.held_back_by, queue.held_back), (Some(QueueLimit::Paused), 1));
    let held_back = HeldBack { by: QueueLimit::Paused, queue: None, key: Some(name("a")) };
    assert_eq!(blockers().await, [(BlockReason::QueueLimit, Some(held_back))]);
    assert!(waits(worker.next_tasks(1)).await);
    assert_eq!(pause(false).await.held_back, 0);
    assert_eq!(blockers().await, []);
    next_task(&worker).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_notified_when_its_task_is_given_up() {
    for how in ["canceled", "completed", "terminated"] {
        let (kit, worker, mut held) = scheduled(TaskOptions::default()).await;
        let task = next_task(&worker).await;
        assert!(waits(worker.task_over(task.id.clone(), task.claim)).await);
        let give_up = async {
            tokio::task::yield_now().await;
            match how {
                "canceled" => drop(kit.commit(&mut held, vec![TaskCanceled { call_id: at(0) }.into()]).await),
                "completed" => kit.complete(&mut held).await,
                _ => drop(kit.runtime.terminate_run(&key("r"), "").await.unwrap()),
            }
        };
        tokio::join!(worker.task_over(task.id.clone(), task.claim), give_up);
        worker.task_over(task.id.clone(), task.claim).await;
        assert_eq!(report(&worker, &task, done()).await, Err("task_attempt_over"), "{how}");
    }
}

/// W5: the end of the task reaches the runtime before the store's reply to the claim.
#[tokio::test(start_paused = true)]
async fn a_task_that_ends_while_it_is_claimed_is_not_delivered() {
    for how in ["canceled", "completed", "terminated", "timed out"] {
        let options = TaskOptions { total_timeout_ms: Some(5_000), ..TaskOptions::default() };
        let (kit, worker, mut held) = scheduled(options).await;
        let gate = kit.store.stall_once("claim_tasks", When::After);
        assert!(waits(worker.next_tasks(1)).await);
        match how {
            "canceled" => drop(kit.commit(&mut held, vec![TaskCanceled { call_id: at(0) }.into()]).await),
            "completed" => kit.complete(&mut held).await,
            "terminated" => drop(kit.runtime.terminate_run(&key("r"), "").await.unwrap()),
            _ => pass(&kit, 5).await,
        }
        gate.notify_one();
        assert!(waits(worker.next_tasks(1)).await, "{how}");
    }
}

/// W5: a claim forgets what ended before it.
#[tokio::test(start_paused = true)]
async fn a_task_of_a_run_that_was_deleted_and_started_again_while_it_is_claimed_is_delivered() {
    let (kit, worker, mut held) = scheduled(TaskOptions::default()).await;
    let gate = kit.store.stall_once("claim_tasks", When::Before);
    assert!(waits(worker.next_tasks(1)).await);
    kit.complete(&mut held).await;
    kit.runtime.delete_run(&key("r"), "").await.unwrap();
    kit.runtime.start_run(StartRequest { seed: 8, ..start("r") }).await.unwrap();
    let mut held = kit.next_held(&worker).await;
    kit.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    gate.notify_one();
    let task = next_task(&worker).await;
    report(&worker, &task, done()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_is_notified_when_its_task_times_out() {
    let (kit, worker, _held) = scheduled(TaskOptions { total_timeout_ms: Some(5_000), ..TaskOptions::default() }).await;
    let task = next_task(&worker).await;
    pass(&kit, 5).await; // less than the interval of heartbeats
    assert!(!waits(worker.task_over(task.id.clone(), task.claim)).await);
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_notification_learns_it_with_its_next_heartbeat() {
    let (kit, worker, mut held) = scheduled(TaskOptions::default()).await;
    let task = next_task(&worker).await;
    kit.store.go_deaf();
    kit.commit(&mut held, vec![TaskCanceled { call_id: at(0) }.into()]).await;
    assert!(waits(worker.task_over(task.id.clone(), task.claim)).await);
    pass(&kit, 10).await;
    worker.task_over(task.id.clone(), task.claim).await;
}

#[tokio::test(start_paused = true)]
async fn a_task_on_its_way_to_a_worker_that_leaves_goes_back_at_once() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    let gate = kit.store.stall_once("claim_tasks", crate::faulty::When::After);
    assert!(waits(worker.next_tasks(1)).await);
    worker.leave().await;
    gate.notify_one();
    let other = kit.worker("other");
    let task = next_task(&other).await;
    assert_eq!((task.attempt, task.lost_workers), (1, 0));
    report(&other, &task, TaskReport::Interrupted).await.unwrap();
    let task = next_task(&other).await;
    report(&other, &task, TaskReport::Completed(Payload::null())).await.unwrap();
}

/// W4: the store does not reply to the release, and no worker executes the task any more.
#[tokio::test(start_paused = true)]
async fn a_task_that_could_not_be_given_back_is_not_kept_alive() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    let task = next_task(&worker).await;
    kit.store.fail_once("report_task", crate::faulty::When::Before);
    assert_eq!(report(&worker, &task, TaskReport::Interrupted).await, Err("store_unavailable"));
    pass(&kit, 60).await;
    let again = next_task(&worker).await;
    assert_eq!((again.attempt, again.claim), (2, 2));
    report(&worker, &again, done()).await.unwrap();
}

/// W4: the task was on its way to a worker whose connection is gone.
#[tokio::test(start_paused = true)]
async fn a_task_that_an_absent_worker_could_not_give_back_is_not_kept_alive() {
    let (kit, worker, _held) = scheduled(TaskOptions::default()).await;
    let gate = kit.store.stall_once("claim_tasks", crate::faulty::When::After);
    assert!(waits(worker.next_tasks(1)).await);
    worker.set_present(false);
    kit.store.fail_once("report_task", crate::faulty::When::Before);
    gate.notify_one();
    assert!(waits(worker.next_tasks(1)).await);
    assert!(kit.store.is_exhausted());
    pass(&kit, 60).await;
    worker.set_present(true);
    let again = next_task(&worker).await;
    assert_eq!((again.attempt, again.claim), (2, 2));
    report(&worker, &again, done()).await.unwrap();
}

/// R9: the run waits for its one task and has no code to query or to run.
#[tokio::test(start_paused = true)]
async fn a_standalone_task_is_neither_queried_nor_driven() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let start = StartTaskRequest {
        task: key("t"),
        kind: name("mail"),
        input: Payload::null(),
        options: TaskOptions::default(),
        trace: None,
    };
    kit.runtime.start_task(start).await.unwrap();
    let answer = kit.runtime.query_run(&key("t"), name("stage"), Payload::null()).await;
    assert_eq!(answer.unwrap_err().code(), "run_is_task");
    let driven = worker.claim_run(key("t"), DriveInput::Nothing).await;
    assert_eq!(driven.unwrap_err().code(), "run_is_task");
}
