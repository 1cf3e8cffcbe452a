//! Standalone tasks over HTTP and gRPC, with a remote worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::ledger::{SpendBy, SpendQuery};
use onward::prelude::*;
use onward::spend::{PicoDollars, Spend, Tokens};
use onward::{Onward, TaskStatus};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::site::{DEADLINE, Site};

#[derive(Default)]
struct World {
    tries: AtomicU32,
    begun: Notify,
    stopped: Arc<Notify>,
}

/// Notifies when it is dropped.
struct NotifyOnDrop(Arc<Notify>);

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn worker(site: &Site) -> (Onward, Arc<World>) {
    let world = Arc::new(World::default());
    let (flaky, slow) = (world.clone(), world.clone());
    let onward = Onward::connect(format!("http://{}", site.address))
        .task("double", |n: u32| async move { Ok::<_, Failure>(n * 2) })
        .input_schema(json!({"type": "integer"}))
        .task("key", |ctx: TaskCtx, (): ()| async move { Ok::<_, Failure>(ctx.idempotency_key().to_owned()) })
        .task("flaky", move |n: u32| {
            let world = flaky.clone();
            async move {
                let tries = world.tries.fetch_add(1, Ordering::SeqCst) + 1;
                if tries < n { Err(Failure::retryable("not yet")) } else { Ok(tries) }
            }
        })
        .task("slow", move |(): ()| {
            let world = slow.clone();
            async move {
                let _notify = NotifyOnDrop(world.stopped.clone());
                world.begun.notify_one();
                std::future::pending::<Result<()>>().await
            }
        })
        .task("small", |ctx: TaskCtx, (): ()| async move {
            let tokens = Tokens { input: 7, output: 3, ..Tokens::default() };
            ctx.spend(Spend::on("small").by("acme").tokens(tokens).cost(PicoDollars(810_000_000)));
            Ok::<_, Failure>(())
        })
        .queue("gpu")
        .start()
        .await
        .unwrap();
    (onward, world)
}

async fn result(site: &Site, id: &str) -> Value {
    site.get(&format!("/v1/tasks/{id}/result?wait_ms=20000")).await.expect(200)
}

#[tokio::test]
async fn a_task_is_queued_done_and_shown() {
    let site = Site::open().await;
    // Without a worker the task stays queued.
    let body = json!({"kind": "double", "input": 21, "id": "t", "queue": "gpu", "priority": 3});
    let started = site.post_json("/v1/tasks", body.clone()).await.expect(201);
    assert_eq!((&started["id"], &started["kind"], &started["created"]), (&json!("t"), &json!("double"), &json!(true)));
    let queued = site.get("/v1/tasks/t").await.expect(200);
    assert_eq!((&queued["status"], &queued["attempts"], &queued["queue"]), (&json!("queued"), &json!(0), &json!("gpu")));
    site.get("/v1/tasks/t/result").await.expect(202);
    let (onward, _) = worker(&site).await;
    assert_eq!(result(&site, "t").await["outcome"]["output"]["json"], 42);
    let shown = site.get("/v1/tasks/t").await.expect(200);
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("completed"), &json!(1)));
    assert!(shown["ended_at"].is_string() && shown["outcome"]["output"]["json"] == 42, "{shown}");
    // A repeat is the same task; another input is refused.
    assert_eq!(site.post_json("/v1/tasks", body).await.expect(200)["created"], false);
    site.post_json("/v1/tasks", json!({"kind": "double", "input": 1, "id": "t"})).await.problem(409, "run_exists");
    // It is a run as well: listed, stored and deleted like one.
    let log = site.get("/v1/runs/t/events").await.expect(200);
    let names: Vec<&Value> = log["events"].as_array().unwrap().iter().map(|event| &event["event"]["type"]).collect();
    assert_eq!(names, ["run_started", "run_completed"]);
    assert_eq!(site.get("/v1/runs?kind=task:double").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    assert_eq!(site.send("DELETE", "/v1/runs/t", "", "").await.status, 204);
    site.get("/v1/tasks/t").await.problem(404, "task_not_found");
    onward.shutdown().await;
}

#[tokio::test]
async fn attempts_are_retried_counted_and_given_up_by_the_engine() {
    let site = Site::open().await;
    let (onward, world) = worker(&site).await;
    let retry = json!({"attempts_max": 5, "first_delay_ms": 1, "growth_percent": 100});
    site.post_json("/v1/tasks", json!({"kind": "flaky", "input": 3, "id": "a", "retry": retry})).await.expect(201);
    assert_eq!(result(&site, "a").await["outcome"]["output"]["json"], 3);
    assert_eq!(site.get("/v1/tasks/a").await.expect(200)["attempts"], 3);
    world.tries.store(0, Ordering::SeqCst);
    let retry = json!({"attempts_max": 2, "first_delay_ms": 1});
    site.post_json("/v1/tasks", json!({"kind": "flaky", "input": 9, "id": "b", "retry": retry})).await.expect(201);
    assert_eq!(result(&site, "b").await["outcome"]["failure"]["message"], "not yet");
    let shown = site.get("/v1/tasks/b").await.expect(200);
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("failed"), &json!(2)));
    site.post_json("/v1/tasks", json!({"kind": "nobody knows", "id": "c", "timeouts": {"queued_ms": 1}})).await.expect(201);
    // The server's runtime does not tick in this test; the worker's does, over the same store.
    assert_eq!(result(&site, "c").await["outcome"]["failure"]["code"], "timed_out");
    site.post_json("/v1/tasks", json!({"kind": "key", "id": "k", "idempotency_key": "mine"})).await.expect(201);
    assert_eq!(result(&site, "k").await["outcome"]["output"]["json"], "mine");
    onward.shutdown().await;
}

#[tokio::test]
async fn spend_is_reported_by_model_day_run_and_tree() {
    let site = Site::open().await;
    assert_eq!(site.get("/v1/spend").await.expect(200), json!({"by": "model", "rows": [], "more": false}));
    let (onward, _) = worker(&site).await;
    for id in ["a", "a/0", "b"] {
        onward.task::<(), _>("small", &()).costs().id(id).await.unwrap().result().await.unwrap();
    }
    let tokens =
        |times: u64| json!({"input": 7 * times, "cached_read": 0, "cached_write": 0, "output": 3 * times, "reasoning": 0});
    let totals =
        |times: u64, cost: &str| json!({"attempts": times, "unknown": 0, "tokens": tokens(times), "cost": cost, "unpriced": 0});
    let row = |name: &str, totals: Value| json!({"name": name, "totals": totals});
    let spend = site.get("/v1/spend").await.expect(200);
    assert_eq!(spend, json!({"by": "model", "rows": [row("small", totals(3, "0.00243"))], "more": false}));
    let spend = site.get("/v1/spend?by=tree&from=2020-01-01T00:00:00Z&limit=1").await.expect(200);
    assert_eq!(spend["rows"], json!([row("a", totals(2, "0.00162"))]));
    let spend = site.get("/v1/spend?by=run&tree=a").await.expect(200);
    assert_eq!(spend["rows"], json!([row("a", totals(1, "0.00081")), row("a/0", totals(1, "0.00081"))]));
    assert_eq!(site.get("/v1/spend?by=run&limit=1").await.expect(200)["more"], true);
    assert_eq!(site.get("/v1/spend?by=day&to=2020-01-01T00:00:00Z").await.expect(200)["rows"], json!([]));
    let rows = onward.read_spend(SpendQuery::by(SpendBy::Tree)).await.unwrap();
    assert_eq!(rows.iter().map(|row| (row.name.as_str(), row.totals.attempts)).collect::<Vec<_>>(), [("a", 2), ("b", 1)]);
    assert_eq!(site.get("/v1/runs/b").await.expect(200)["spend"], totals(1, "0.00081"));
    assert_eq!(site.get("/v1/spend?by=week").await.expect(400)["code"], "query_invalid");
    assert_eq!(site.get("/v1/spend?until=2020-01-01T00:00:00Z").await.expect(400)["code"], "query_invalid");
    onward.shutdown().await;
}

#[tokio::test]
async fn a_canceled_task_ends_at_once_and_its_worker_stops() {
    let site = Site::open().await;
    let (onward, world) = worker(&site).await;
    site.post_json("/v1/tasks", json!({"kind": "slow", "id": "s"})).await.expect(201);
    tokio::time::timeout(DEADLINE, world.begun.notified()).await.unwrap();
    assert_eq!(site.get("/v1/tasks/s").await.expect(200)["status"], "running");
    site.post("/v1/tasks/s/cancel", r#"{"reason": "enough"}"#).await.expect(202);
    let shown = site.get("/v1/tasks/s").await.expect(200);
    assert_eq!((&shown["status"], &shown["outcome"]["failure"]["code"]), (&json!("canceled"), &json!("canceled")));
    tokio::time::timeout(DEADLINE, world.stopped.notified()).await.unwrap();
    site.post("/v1/tasks/s/cancel", "").await.problem(409, "run_closed");
    // Also through the route of runs.
    site.post_json("/v1/tasks", json!({"kind": "nobody", "id": "n"})).await.expect(201);
    site.post("/v1/runs/n/cancel", "").await.expect(202);
    assert_eq!(site.get("/v1/tasks/n").await.expect(200)["status"], "canceled");
    onward.shutdown().await;
}

#[tokio::test]
async fn what_a_task_does_not_take_is_refused_and_writes_nothing() {
    let site = Site::open().await;
    let (onward, _) = worker(&site).await;
    site.start("listener", "r", Value::Null).await;
    site.post_json("/v1/tasks", json!({"kind": "nobody", "id": "t"})).await.expect(201);
    let before = site.records();
    site.post_json("/v1/tasks", json!({"kind": "double", "input": "x"})).await.problem(400, "input_invalid");
    site.post_json("/v1/tasks", json!({"kind": ""})).await.problem(400, "name_invalid");
    site.post_json("/v1/tasks", json!({"kind": "x", "queue": ""})).await.problem(400, "name_invalid");
    site.post_json("/v1/tasks", json!({"kind": "x".repeat(255)})).await.problem(400, "name_invalid");
    site.post_json("/v1/tasks", json!({"kind": "x", "idempotency_key": ""})).await.problem(400, "id_invalid");
    for body in [
        json!({}),
        json!({"kind": "x", "retries": 1}),
        json!({"kind": "x", "retry": "often"}),
        json!({"kind": "x", "timeouts": {"ms": 1}}),
    ] {
        site.post_json("/v1/tasks", body).await.problem(400, "json_invalid");
    }
    site.post_json("/v1/runs", json!({"kind": "task:double", "input": 1})).await.problem(400, "kind_reserved");
    site.post_json("/v1/runs/t/signals", json!({"name": "a"})).await.problem(409, "run_is_task");
    site.post("/v1/runs/t/pause", "").await.problem(409, "run_is_task");
    site.post_json("/v1/runs/t/queries", json!({"name": "a"})).await.problem(409, "run_is_task");
    site.post("/v1/drive/t", "").await.problem(409, "run_is_task");
    for path in ["/v1/tasks/r", "/v1/tasks/r/result", "/v1/tasks/nope", "/v1/tasks/nope/result"] {
        site.get(path).await.problem(404, "task_not_found");
    }
    for path in ["/v1/tasks/r/cancel", "/v1/tasks/nope/cancel"] {
        site.post(path, "").await.problem(404, "task_not_found");
    }
    assert_eq!(site.records(), before);
    let elsewhere = "Onward-Namespace: other\r\n";
    site.send("GET", "/v1/tasks/t", elsewhere, "").await.problem(404, "task_not_found");
    onward.shutdown().await;
}

/// The crate, over gRPC.
#[tokio::test]
async fn a_client_queues_waits_looks_and_cancels() {
    const DOUBLE: Task<u32, u32> = Task::new("double");
    let site = Site::open().await;
    let (onward, world) = worker(&site).await;
    let task = onward.task(&DOUBLE, &4).id("c").retry(3).timeout(Duration::from_secs(60)).await.unwrap();
    assert_eq!((task.id(), task.result().await.unwrap()), ("c", 8));
    let again = onward.task_handle::<u32>("c").unwrap();
    assert_eq!(again.result().await.unwrap(), 8);
    let view = again.view().await.unwrap();
    assert_eq!((view.state, view.attempts, view.kind.as_str()), (TaskStatus::Completed, 1, "double"));
    assert_eq!(onward.task::<u32, _>("double", "no number").await.map(drop).unwrap_err().code(), "input_invalid");
    let slow = onward.task::<(), _>("slow", &()).await.unwrap();
    tokio::time::timeout(DEADLINE, world.begun.notified()).await.unwrap();
    assert_eq!(slow.view().await.unwrap().state, TaskStatus::Running);
    slow.cancel("enough").await.unwrap();
    let ended = slow.result().await.unwrap_err();
    assert_eq!(ended.failure().unwrap().code, "canceled");
    assert_eq!(onward.task_handle::<()>("nope").unwrap().view().await.unwrap_err().code(), "task_not_found");
    onward.shutdown().await;
}
