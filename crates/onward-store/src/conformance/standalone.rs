//! R9: a standalone task is a run that consists of one task.

use onward_core::event::{CancelRequested, RunCanceled, RunPaused, StandaloneTask};
use onward_core::run::{Input, NewRun};
use onward_core::task::{RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{Event, Failure, RunHead, Status};

use super::harness::{Harness, json, key, name, new_run_of, refused, seconds, signal, terminate};
use crate::StoreError;

fn new_task(id: &str, options: TaskOptions) -> NewRun {
    let mut run = new_run_of("task:mail", id);
    run.started.task = Some(StandaloneTask { kind: name("mail"), options });
    run
}

async fn start(harness: &Harness, options: TaskOptions) -> RunHead {
    let started = harness.store().start_run(new_task("t", options), None).await.unwrap();
    assert!(started.created);
    started.head
}

async fn claim_one(harness: &Harness) -> Task {
    let mut tasks = harness.claim_tasks("w", 10).await;
    assert_eq!(tasks.len(), 1);
    tasks.remove(0)
}

async fn report(harness: &Harness, task: &Task, report: TaskReport) -> Result<(), StoreError> {
    harness.store().report_task(task.id.clone(), task.claim, report, seconds(30)).await
}

fn canceled() -> Input {
    Input::new(Event::RunCanceled(RunCanceled { failure: Failure::fatal("enough") }))
}

pub async fn a_standalone_task_is_queued_by_its_start(mut harness: Harness) {
    let head = start(&harness, TaskOptions { priority: Some(3), ..TaskOptions::default() }).await;
    assert_eq!((head.status, head.is_task), (Status::Waiting, true));
    harness.reopen();
    assert_eq!(harness.claim("w").await.len(), 0, "there is no code to run");
    let task = claim_one(&harness).await;
    assert_eq!((task.kind.as_str(), task.options.priority(), task.input.clone()), ("mail", 3, json("{}")));
    assert_eq!(harness.log("t").await, ["run_started"]);
}

pub async fn its_result_closes_its_run_in_the_same_write(mut harness: Harness) {
    start(&harness, TaskOptions::default()).await;
    let task = claim_one(&harness).await;
    report(&harness, &task, TaskReport::Completed(json("7"))).await.unwrap();
    harness.reopen();
    let head = harness.head("t").await;
    assert_eq!((head.status, head.ended_at), (Status::Completed, Some(harness.now())));
    assert_eq!(harness.log("t").await, ["run_started", "run_completed"]);
    let Event::RunCompleted(end) = &harness.records("t").await[1].events[0] else { panic!("it has ended") };
    assert_eq!((end.output.clone(), end.attempts), (json("7"), Some(1)));
    refused(report(&harness, &task, TaskReport::Completed(json("8"))).await, "task_attempt_over");
    assert_eq!(harness.claim_tasks("w", 10).await, []);
}

pub async fn its_last_failure_fails_its_run_and_its_attempts_are_counted(mut harness: Harness) {
    start(&harness, TaskOptions { retry: Some(RetryPolicy::attempts(2).delay(seconds(10))), ..TaskOptions::default() }).await;
    let task = claim_one(&harness).await;
    report(&harness, &task, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    assert_eq!(harness.head("t").await.status, Status::Waiting);
    harness.reopen();
    harness.pass(seconds(10));
    let task = claim_one(&harness).await;
    report(&harness, &task, TaskReport::Failed(Failure::retryable("busy"))).await.unwrap();
    assert_eq!(harness.head("t").await.status, Status::Failed);
    let Event::RunFailed(end) = &harness.records("t").await[1].events[0] else { panic!("it has ended") };
    assert_eq!(end.attempts, Some(2));
}

pub async fn a_canceled_or_terminated_run_is_not_claimable(mut harness: Harness) {
    for (input, status) in [(canceled(), Status::Canceled), (terminate(), Status::Terminated)] {
        let id = status.as_str();
        harness.store().start_run(new_task(id, TaskOptions::default()), None).await.unwrap();
        let task = claim_one(&harness).await;
        harness.store().append_input(key(id), input.clone()).await.unwrap();
        assert_eq!(harness.head(id).await.status, status);
        refused(report(&harness, &task, TaskReport::Completed(json("7"))).await, "task_attempt_over");
        refused(harness.store().append_input(key(id), input).await, "run_closed");
        harness.reopen();
        assert_eq!(harness.claim_tasks("w", 10).await, []);
        assert_eq!(harness.log(id).await.len(), 2);
    }
}

pub async fn it_takes_nothing_that_is_for_workflows(harness: Harness) {
    start(&harness, TaskOptions::default()).await;
    let pause = RunPaused::because(onward_core::event::PauseReason::Requested, "");
    let cancel = Input::new(CancelRequested::new(String::new()));
    for input in [signal(None), signal(Some("a")), Input::new(pause), cancel] {
        refused(harness.store().append_input(key("t"), input).await, "run_is_task");
    }
    let mut with_signal = new_task("u", TaskOptions::default());
    with_signal.signal = Some(Box::new(signal(None)));
    refused(harness.store().start_run(with_signal, None).await, "run_is_task");
    assert_eq!(harness.store().read_run(key("u"), None).await.unwrap(), None);
    assert_eq!(harness.log("t").await, ["run_started"]);
    // An event that ends a standalone task does not end a workflow.
    harness.start("r").await;
    refused(harness.store().append_input(key("r"), canceled()).await, "commit_malformed");
}

pub async fn the_same_start_is_the_same_task(harness: Harness) {
    start(&harness, TaskOptions::default()).await;
    let again = harness.store().start_run(new_task("t", TaskOptions::default()), None).await.unwrap();
    assert!(!again.created);
    claim_one(&harness).await;
    refused(harness.store().start_run(new_run_of("mail", "t"), None).await, "run_exists");
}
