//! Memos over HTTP: invalidation with its scope, and ids that no request reaches.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use onward::prelude::*;
use onward::{MemoKeys, Onward, Status};
use onward_core::Name;
use onward_server::{Bounds, Scope};
use onward_wire::ApiKey;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::keys::Locked;
use crate::site::Site;

const CELL: &str = "memo:00112233445566778899aabbccddeeff";

async fn fetch(ctx: Ctx, input: String) -> Result<u32> {
    ctx.task("fetch", &input).memo(Memo::new(hours(1)).key(format!("page/{input}"))).await
}

async fn worker(site: &Site) -> Onward {
    let task = |_: TaskCtx, input: String| async move { Ok::<_, Failure>(input.len()) };
    Onward::connect(format!("http://{}", site.address)).workflow("fetch", fetch).task("fetch", task).start().await.unwrap()
}

#[tokio::test]
async fn memos_are_invalidated_by_key_and_by_prefix() {
    let site = Site::open().await;
    let onward = worker(&site).await;
    for (id, input) in [("a", "x"), ("b", "yy"), ("c", "yy")] {
        onward.start::<u32, _>("fetch", &input).id(id).await.unwrap().result().await.unwrap();
    }
    let invalidate = async |body: Value| site.post_json("/v1/memos/invalidate", body).await;
    assert_eq!(invalidate(json!({"key": "page/x"})).await.expect(200), json!({"invalidated": 1}));
    assert_eq!(invalidate(json!({"prefix": "page/"})).await.expect(200), json!({"invalidated": 1}));
    assert_eq!(invalidate(json!({"prefix": "page/"})).await.expect(200), json!({"invalidated": 0}));
    assert_eq!(invalidate(json!({"prefix": "page/", "run": "a"})).await.expect(200), json!({"invalidated": 0}));
    onward.start::<u32, _>("fetch", &"yy").id("d").await.unwrap().result().await.unwrap();
    assert_eq!(onward.invalidate_memos(MemoKeys::key("page/yy")).await.unwrap(), 1, "over gRPC");
    for body in [json!({}), json!({"key": "a", "prefix": "b"})] {
        invalidate(body).await.problem(400, "message_invalid");
    }
    invalidate(json!({"key": ""})).await.problem(400, "memo_key_invalid");
    invalidate(json!({"key": "x".repeat(1_025)})).await.problem(400, "memo_key_invalid");
    invalidate(json!({"key": "x", "run": CELL})).await.problem(400, "id_reserved");
    let listed = site.get("/v1/runs").await.expect(200);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 4, "no list has cells: {listed}");
    assert!(!site.get("/metrics").await.body.contains("memo:"));
}

/// S4: a memo may have results of every kind, so that a key bound to kinds does not invalidate any.
#[tokio::test]
async fn memos_are_invalidated_by_keys_that_may_operate() {
    let (locked, root) = Locked::open().await;
    let body = json!({"prefix": ""}).to_string();
    let all = Scope::ALL.into_iter().filter(|scope| *scope != Scope::Operate).collect::<Vec<_>>();
    let caller = locked.make("caller", "default", &all);
    let operator = locked.make("operator", "default", &[Scope::Operate]);
    let bound = locked.make_bound(Bounds { kinds: Some([Name::new("fetch").unwrap()].into()), ..Bounds::default() });
    locked.until(&bound, 200).await;
    for key in [&caller, &bound] {
        locked.send(key, "POST", "/v1/memos/invalidate", &body).await.problem(403, "not_allowed");
    }
    for key in [&operator, &root] {
        locked.send(key, "POST", "/v1/memos/invalidate", &body).await.expect(200);
    }
}

/// BK3: what the code did beside the refused call is recorded, and a worker with another key continues the run.
#[tokio::test]
async fn a_run_whose_worker_may_not_use_a_memo_is_paused_and_loses_nothing() {
    let (locked, root) = Locked::open().await;
    let bound = locked
        .make_bound(Bounds { kinds: Some(["own", "fetch"].map(|kind| Name::new(kind).unwrap()).into()), ..Bounds::default() });
    locked.until(&bound, 200).await;
    let (began, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
    let connect = async |key: &ApiKey| {
        let task = |_: TaskCtx, input: String| async move { Ok::<_, Failure>(input.len()) };
        Onward::connect(locked.url())
            .key(key.reveal())
            .workflow("own", beside)
            .task("fetch", task)
            .dep((began.clone(), gate.clone()))
            .start()
            .await
            .unwrap()
    };
    let worker = connect(&bound).await;
    let run = worker.start::<u32, _>("own", &()).id("a").await.unwrap();
    while run.view().await.unwrap().head.status != Status::Paused {
        tokio::task::yield_now().await;
    }
    gate.notify_one();
    while !locked.send(&root, "GET", "/v1/runs/a/events", "").await.body.contains("step_completed") {
        tokio::task::yield_now().await;
    }
    worker.shutdown().await;
    let worker = connect(&root).await;
    let run = worker.run::<u32>("a").unwrap();
    run.resume().await.unwrap();
    assert_eq!(run.result().await.unwrap(), 7);
    assert_eq!(began.load(SeqCst), 1, "the step that was running is not executed again");
    worker.shutdown().await;
}

/// Requests a memo of the namespace while a step is running.
async fn beside(ctx: Ctx, (): ()) -> Result<u32> {
    let shared = ctx.dep::<(Arc<AtomicU32>, Arc<Notify>)>();
    let charge = ctx.step("charge", async || {
        shared.0.fetch_add(1, SeqCst);
        shared.1.notified().await;
        Ok::<u32, Failure>(4)
    });
    let page = async {
        ctx.step("first", async || Ok::<(), Failure>(())).await?;
        ctx.task::<u32>("fetch", &"xyz").memo(hours(1)).await
    };
    let (charged, fetched) = join!(charge, page);
    Ok(charged? + fetched?)
}

/// MM6: over every route that names a run.
#[tokio::test]
async fn no_route_reaches_a_cell() {
    let site = Site::open().await;
    let before = site.records();
    site.post_json("/v1/runs", json!({"kind": "fetch", "id": CELL})).await.problem(400, "id_reserved");
    site.post_json("/v1/tasks", json!({"kind": "fetch", "id": CELL})).await.problem(400, "id_reserved");
    let mut refused = 0;
    for route in
        onward_server::ROUTES.iter().filter(|route| route.path.contains("/runs/{id}") || route.path.contains("/drive/{id}"))
    {
        let path = route.path.replace("{id}", &CELL.replace(':', "%3A")).replace("{index}", "0").replace("{hash}", "0");
        let body = if route.method.as_str() == "GET" { "" } else { "{}" };
        let reply = site.send(route.method.as_str(), &path, "Content-Type: application/json\r\n", body).await;
        assert!(reply.status == 400 || reply.status == 404, "{} {path}: {} {}", route.method, reply.status, reply.body);
        refused += u32::from(reply.body.contains("id_reserved"));
    }
    assert!(refused > 15, "{refused}");
    assert_eq!(site.records(), before);
}
