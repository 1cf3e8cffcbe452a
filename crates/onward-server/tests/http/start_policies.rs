//! Start policies over HTTP: answers and their status codes, refusals, and the keys that may send them.

use onward::Onward;
use onward::prelude::*;
use onward_core::Name;
use onward_core::budget::Budget;
use onward_server::{Bounds, Scope};
use serde_json::{Value, json};

use crate::ceilings::key;
use crate::keys::Locked;
use crate::site::Site;

async fn report(_: Ctx, input: Value) -> Result<Value> {
    Ok(input)
}

async fn waiting(ctx: Ctx, _: Value) -> Result<u32> {
    ctx.signal("end").recv().await
}

async fn worker(site: &Site) -> Onward {
    let connect = Onward::connect(format!("http://{}", site.address));
    connect.workflow("report", report).workflow("waiting", waiting).start().await.unwrap()
}

fn start(kind: &str, policy: &str, options: Value) -> Value {
    json!({"kind": kind, "input": {"n": 1}, policy: options})
}

#[tokio::test]
async fn a_start_is_answered_with_its_run_and_with_what_happens_to_it() {
    let site = Site::open().await;
    let onward = worker(&site).await;
    let one = || start("waiting", "singleton", json!({"key": "u7"}));
    let first = site.post_json("/v1/runs", one()).await.expect(201);
    assert_eq!((&first["outcome"], &first["due_at"], &first["repeated"]), (&json!("started"), &Value::Null, &json!(false)));
    let skipped = site.post_json("/v1/runs", one()).await.expect(200);
    assert_eq!((&skipped["outcome"], &skipped["id"]), (&json!("skipped"), &first["id"]));
    let next = start("waiting", "singleton", json!({"key": "u7", "on_conflict": "cancel"}));
    let next = site.post_json("/v1/runs", next).await.expect(202);
    assert_eq!((&next["outcome"], &next["due_at"]), (&json!("held"), &Value::Null));
    let second = onward.held_run::<u32>(next["id"].as_str().unwrap()).unwrap();
    let canceled = onward.run::<u32>(first["id"].as_str().unwrap()).unwrap().result().await;
    assert!(matches!(canceled, Err(onward::Error::RunFailed { failure, .. }) if failure.code == "canceled"));
    let result = tokio::spawn(async move { second.result().await });
    let path = format!("/v1/runs/{}/signals", next["id"].as_str().unwrap());
    while site.post_json(&path, json!({"name": "end", "payload": 2})).await.status == 404 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert_eq!(result.await.unwrap().unwrap(), 2);

    let mut late = start("report", "debounce", json!({"key": "k", "window_ms": 50}));
    late["request_id"] = json!("q");
    let held = site.post_json("/v1/runs", late.clone()).await.expect(202);
    assert!(held["due_at"].is_string(), "{held}");
    let again = site.post_json("/v1/runs", late).await.expect(200);
    assert_eq!((&again["id"], &again["due_at"], &again["repeated"]), (&held["id"], &held["due_at"], &json!(true)));
    let output: Value = onward.held_run(held["id"].as_str().unwrap()).unwrap().result().await.unwrap();
    assert_eq!(output, json!({"n": 1}));

    let batch = || start("report", "batch", json!({"key": "k", "size_max": 2, "window_ms": 600_000}));
    let collected = site.post_json("/v1/runs", batch()).await.expect(202);
    let full = site.post_json("/v1/runs", batch()).await.expect(201);
    assert_eq!((&full["outcome"], &full["id"]), (&json!("started"), &collected["id"]));
    let output: Value = onward.held_run(full["id"].as_str().unwrap()).unwrap().result().await.unwrap();
    assert_eq!(output, json!([{"n": 1}, {"n": 1}]));

    assert!(!site.get("/v1/versions").await.expect(200).to_string().contains("starts:"));
    assert!(!site.get("/metrics").await.body.contains("starts:"));
    let listed = site.get("/v1/runs").await.expect(200);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 4, "{listed}");
}

#[tokio::test]
async fn combinations_that_make_no_sense_are_refused_with_a_hint() {
    let site = Site::open().await;
    let _onward = worker(&site).await;
    let singleton = json!({"key": "k"});
    let with = |field: &str, value: Value| {
        let mut body = start("report", "singleton", json!({"key": "k"}));
        body[field] = value;
        body
    };
    for (body, part) in [
        (with("batch", json!({"key": "k", "size_max": 2, "window_ms": 5})), "2 policies"),
        (with("id", json!("mine")), "id"),
        (with("signal", json!({"name": "paid"})), "signal"),
        (json!({"kind": "report", "request_id": "q"}), "request_id"),
        (start("report", "singleton", json!({"key": ""})), "key"),
        (start("report", "debounce", json!({"key": "k", "window_ms": 0})), "window_ms"),
        (start("report", "debounce", json!({"key": "k", "window_ms": 10, "max_wait_ms": 9})), "max_wait_ms"),
        (start("report", "batch", json!({"key": "k", "size_max": 1001, "window_ms": 5})), "size_max"),
    ] {
        let answer = site.post_json("/v1/runs", body.clone()).await;
        assert!(answer.json()["hint"].is_string(), "{body}");
        let text = answer.problem(400, "start_policy_invalid");
        assert!(text.contains(part), "{body}: {text}");
    }
    site.post_json("/v1/runs", start("report", "singleton", json!({"key": "k", "on_conflict": "kill"})))
        .await
        .problem(400, "request_invalid");
    site.post_json("/v1/runs", json!({"kind": "starts:86400", "singleton": singleton})).await.problem(400, "kind_reserved");
    let id = "starts:singleton:0.0";
    site.post_json("/v1/runs", json!({"kind": "report", "id": id})).await.problem(400, "id_reserved");
    site.get(&format!("/v1/runs/{}", id.replace(':', "%3A"))).await.problem(400, "id_reserved");
    assert_eq!(site.get("/v1/runs").await.expect(200)["runs"], json!([]));
}

/// S4: a policy lets a key start what it may start, and cancel what it may cancel.
#[tokio::test]
async fn a_policy_gives_a_key_nothing_that_it_may_not_do_itself() {
    let (locked, root) = Locked::open().await;
    let post = async |key: &_, body: &Value| locked.send(key, "POST", "/v1/runs", &body.to_string()).await;
    let skip = start("report", "singleton", json!({"key": "k"}));
    let cancel = start("report", "singleton", json!({"key": "k", "on_conflict": "cancel"}));
    let others = [Scope::Read, Scope::Signal, Scope::Work, Scope::Approve, Scope::Operate];
    let reader = locked.make("reader", "default", &others);
    let starter = locked.make("starter", "default", &[Scope::Start]);
    let operator = locked.make("operator", "default", &[Scope::Start, Scope::Operate]);
    let bound = locked.make_bound(Bounds { kinds: Some([Name::new("order").unwrap()].into()), ..Bounds::default() });
    locked.until(&bound, 200).await;
    post(&reader, &skip).await.problem(403, "not_allowed");
    post(&bound, &skip).await.problem(403, "not_allowed");
    let own = start("order", "singleton", json!({"key": "k", "on_conflict": "cancel"}));
    post(&bound, &own).await.expect(201);
    let first = post(&starter, &skip).await.expect(201);
    post(&starter, &cancel).await.problem(403, "not_allowed");
    let shown = locked.send(&root, "GET", &format!("/v1/runs/{}/events", first["id"].as_str().unwrap()), "").await.expect(200);
    assert!(!shown.to_string().contains("cancel_requested"), "a refused start cancels nothing");
    assert_eq!(post(&operator, &cancel).await.expect(202)["outcome"], json!("held"));
    // Another namespace has cells of its own.
    let elsewhere = locked.make("elsewhere", "other", &[Scope::Start]);
    let apart = locked.send(&elsewhere, "POST", "/v1/runs", &skip.to_string()).await.expect(201);
    assert_ne!(apart["id"], first["id"]);
}

/// CB1: the ceiling of a key holds for what it adds to or replaces.
#[tokio::test]
async fn a_ceiling_of_a_key_holds_for_its_held_starts() {
    let (locked, root) = Locked::open().await;
    let poor = key(&locked, &Scope::ALL, Some(Budget::default().tokens(100)));
    locked.until(&poor, 200).await;
    let mut rich = start("report", "debounce", json!({"key": "k", "window_ms": 60}));
    let plain = rich.clone();
    rich["budget"] = json!({"tokens": 500});
    locked.send(&poor, "POST", "/v1/runs", &rich.to_string()).await.problem(403, "budget_too_large");
    let held = locked.send(&root, "POST", "/v1/runs", &rich.to_string()).await.expect(202);
    let replaced = locked.send(&poor, "POST", "/v1/runs", &plain.to_string()).await.expect(202);
    assert_eq!(held["id"], replaced["id"]);
    let path = format!("/v1/runs/{}", held["id"].as_str().unwrap());
    loop {
        let answer = locked.send(&root, "GET", &path, "").await;
        if answer.status == 200 {
            assert_eq!(answer.expect(200)["budget"]["limit"]["tokens"], json!(100), "the later start has its own ceiling");
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
