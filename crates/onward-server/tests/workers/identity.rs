//! Q9 (S5): access of one key of a namespace to the sessions, tasks and runs of another key's worker.

use std::sync::Arc;

use axum::http::header::AUTHORIZATION;
use onward_core::event::TaskScheduled;
use onward_core::task::{Task, TaskReport};
use onward_core::{CallId, Hash, Name, Payload, WorkerId};
use onward_server::Options;
use onward_server::auth::{AuthFuture, AuthRequest, Authenticate, Caller};
use onward_wire::worker::*;
use serde_json::json;

use crate::over_http;
use crate::raw::{LEASE, Raw, Site, hello, key};
use crate::sessions::{commit, credit};

/// Every bearer token is a credential of its own, with all scopes.
struct Bearers;

impl Authenticate for Bearers {
    fn authenticate<'a>(&'a self, request: AuthRequest<'a>) -> AuthFuture<'a> {
        let credential = request.headers.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        Box::pin(std::future::ready(Ok(Caller { credential, ..Caller::default() })))
    }
}

fn options() -> Options {
    Options { auth: Arc::new(Bearers), ..Options::default() }
}

async fn site() -> Site {
    Site::with(options()).await
}

async fn welcome(site: &Site, bearer: &str, hello: Hello) -> Raw {
    let mut raw = site.connect_with(Some(bearer), vec![WorkerFrame::Hello(hello)]).await.unwrap();
    assert!(matches!(raw.next().await, Some(ServerFrame::Welcome(_))));
    raw
}

/// Returns the worker `w` of key `a`, with a run `r` and its task.
async fn with_task(site: &Site) -> (Raw, Run, Task) {
    let mut raw = welcome(site, "a", hello(1)).await;
    raw.send(credit(1, 1)).await;
    site.start("r", "pay").await;
    let run = raw.run().await;
    let input = Payload::null();
    let (kind, input_hash, options) = (Name::new("mail").unwrap(), Hash::of(&input), Default::default());
    let scheduled = TaskScheduled { call_id: CallId::root(0), kind, input_hash, input, options };
    raw.send(commit(1, &run, vec![scheduled.into()])).await;
    assert!(matches!(raw.outcome(1).await, ReplyOutcome::Committed(_)));
    let task = raw.task().await;
    (raw, run, task)
}

fn report(request: u64, task: &Task, claim: u64, report: TaskReport) -> WorkerFrame {
    WorkerFrame::Report(ReportTask { request, task: task.id.clone(), claim, report })
}

fn code(outcome: ReplyOutcome) -> String {
    match outcome {
        ReplyOutcome::Problem(problem) => problem.code,
        outcome => format!("{outcome:?}"),
    }
}

fn other(connection: u64) -> Hello {
    Hello { worker: WorkerId::new("other").unwrap(), ..hello(connection) }
}

async fn is_still_held(raw: &mut Raw, task: &Task) {
    raw.send(report(90, task, task.claim, TaskReport::Heartbeat { progress: None })).await;
    assert!(matches!(raw.outcome(90).await, ReplyOutcome::Done(_)));
    raw.send(report(91, task, task.claim, TaskReport::Completed(Payload::null()))).await;
    assert!(matches!(raw.outcome(91).await, ReplyOutcome::Done(_)), "its own worker can complete it");
}

#[tokio::test]
async fn another_key_cannot_take_over_a_live_session() {
    let site = site().await;
    let (mut raw, _, task) = with_task(&site).await;
    // The same id with another key is another worker, whatever its hello names.
    let held = HeldTask { task: task.id.clone(), claim: task.claim };
    let mut lying = welcome(&site, "b", Hello { tasks: vec![held], ..hello(2) }).await;
    assert!(matches!(lying.next().await, Some(ServerFrame::TaskOver(_))));
    drop(lying);
    let frames = |bearer: &str, frames| {
        let (headers, body) = (format!("Authorization: Bearer {bearer}\r\n"), json!({"frames": frames}));
        let site = &site;
        async move { over_http::send(site, "/v1/workers/w/frames", &headers, body).await }
    };
    is_still_held(&mut raw, &task).await;
    // Polled connections are bound to their key, too, and so are drive requests that name a worker.
    let (status, _) = frames("a", json!([over_http::hello(3, json!([]))])).await;
    assert_eq!(status, 200);
    let (status, problem) = frames("b", json!([{"heartbeat": {"request": 1}}])).await;
    assert_eq!((status, &problem["code"]), (409, &json!("hello_missing")), "{problem}");
    site.start("another", "pay").await;
    let headers = "Authorization: Bearer b\r\n";
    let (status, problem) = over_http::send(&site, "/v1/agents/another/resume", headers, json!({"worker": "w"})).await;
    assert_eq!((status, &problem["code"]), (409, &json!("hello_missing")), "{problem}");
    assert_eq!(frames("a", json!([{"heartbeat": {"request": 1}}])).await.0, 200);
}

#[tokio::test]
async fn another_key_with_the_id_of_a_worker_does_not_keep_it_from_another_server() {
    let site = site().await;
    let (raw, _, task) = with_task(&site).await;
    let other = site.beside_with(options()).await;
    let _squatting = welcome(&other, "b", hello(9)).await;
    drop(raw);
    let held = vec![HeldTask { task: task.id.clone(), claim: task.claim }];
    let mut moved = welcome(&other, "a", Hello { tasks: held, ..hello(2) }).await;
    is_still_held(&mut moved, &task).await;
}

#[tokio::test]
async fn a_task_is_reported_only_by_the_worker_that_holds_it() {
    let site = site().await;
    let (mut raw, _, task) = with_task(&site).await;
    // Whatever its hello claims: that it holds the task, or held it.
    let held = vec![HeldTask { task: task.id.clone(), claim: task.claim }];
    let mut lying = welcome(&site, "b", Hello { tasks: held.clone(), ..other(1) }).await;
    let over = TaskOver { task: task.id.clone(), claim: task.claim };
    assert_eq!(lying.next().await, Some(ServerFrame::TaskOver(over)));
    let reports = [
        TaskReport::Completed(Payload::null()),
        TaskReport::Heartbeat { progress: Some(Payload::null()) },
        TaskReport::Interrupted,
        TaskReport::NotStarted,
        TaskReport::WorkerLost,
    ];
    for (request, forged) in (2..).zip(reports) {
        lying.send(report(request, &task, task.claim, forged.clone())).await;
        assert_eq!(code(lying.outcome(request).await), "task_attempt_over", "{forged:?}");
    }
    // Giving up what it never held ends no attempt.
    drop(lying);
    let mut lying = welcome(&site, "b", other(2)).await;
    lying.send(WorkerFrame::Heartbeat(Heartbeat { request: 20 })).await;
    assert!(matches!(lying.outcome(20).await, ReplyOutcome::Done(_)));
    // The same holds for another worker of the same key.
    let mut second = welcome(&site, "a", Hello { tasks: held, worker: WorkerId::new("second").unwrap(), ..hello(1) }).await;
    second.send(report(30, &task, task.claim, TaskReport::Completed(Payload::null()))).await;
    assert_eq!(code(second.outcome(30).await), "task_attempt_over");
    is_still_held(&mut raw, &task).await;
}

#[tokio::test]
async fn a_claim_that_is_altered_reused_or_expired_is_refused() {
    let site = site().await;
    let (mut raw, _, task) = with_task(&site).await;
    let done = || TaskReport::Completed(Payload::null());
    for (request, bit) in (2..).zip(0..64) {
        raw.send(report(request, &task, task.claim ^ (1 << bit), done())).await;
        assert_eq!(code(raw.outcome(request).await), "task_attempt_over", "bit {bit}");
    }
    let mut elsewhere = task.clone();
    elsewhere.id.call_id = CallId::root(1);
    raw.send(report(80, &elsewhere, task.claim, done())).await;
    assert_eq!(code(raw.outcome(80).await), "task_attempt_over", "the claim of another task");
    site.pass(LEASE * 2).await;
    while raw.next().await.is_some() {} // the session is over
    let held = vec![HeldTask { task: task.id.clone(), claim: task.claim }];
    let mut raw = welcome(&site, "a", Hello { tasks: held, ..hello(2) }).await;
    raw.send(report(81, &task, task.claim, done())).await;
    assert_eq!(code(raw.outcome(81).await), "task_attempt_over", "its lease has expired");
    raw.send(credit(0, 1)).await;
    let again = raw.task().await;
    assert!(again.claim > task.claim);
    raw.send(report(82, &again, task.claim, done())).await;
    assert_eq!(code(raw.outcome(82).await), "task_attempt_over", "the claim before");
    is_still_held(&mut raw, &again).await;
}

#[tokio::test]
async fn a_run_is_committed_released_and_spoken_for_only_by_the_worker_that_holds_it() {
    let site = site().await;
    let (mut raw, run, task) = with_task(&site).await;
    let mut emitted = site.runtime.listen(&key("r"));
    let (epoch, generation) = (run.head.epoch, run.head.generation);
    let held = HeldRun { run: key("r"), generation, epoch, next_index: run.head.next_index };
    let mut lying = welcome(&site, "b", Hello { runs: vec![held], ..other(1) }).await;
    assert!(matches!(lying.next().await, Some(ServerFrame::RunLost(_))));
    let (name, value, audience) = ("x".to_owned(), Payload::null(), Default::default());
    lying.send(WorkerFrame::Emit(Emit { run: key("r"), name, value, audience, meta: None })).await;
    lying.send(commit(2, &run, Vec::new())).await;
    assert_eq!(code(lying.outcome(2).await), "lease_lost");
    lying.send(WorkerFrame::Release(ReleaseRun { request: 3, run: key("r"), epoch })).await;
    assert!(matches!(lying.outcome(3).await, ReplyOutcome::Done(_)), "nothing is released");
    assert!(emitted.try_recv().is_err());
    let leases = site.runtime.read_run(&key("r")).await.unwrap();
    assert_eq!(leases.head.epoch, epoch, "no other worker has got it");
    is_still_held(&mut raw, &task).await;
}
