//! Promises that callers find by a key, over every API.

use std::time::Duration;

use onward::Onward;
use onward::prelude::*;
use onward_core::Name;
use onward_server::{Bounds, Scope};
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::keys::Locked;

/// The path of the key `payment/42`.
const PATH: &str = "/v1/promises/by-key/payment%2F42";

async fn pay(ctx: Ctx, (): ()) -> Result<String> {
    ctx.promise::<String>("paid").key("payment/42").await
}

async fn worker(locked: &Locked, key: &ApiKey) -> Onward {
    Onward::connect(locked.url()).key(key.reveal()).workflow("pay", pay).start().await.unwrap()
}

fn bound(locked: &Locked, kind: &str) -> ApiKey {
    locked.make_bound(Bounds { kinds: Some([Name::new(kind).unwrap()].into()), ..Bounds::default() })
}

/// Waits until the key leads to a promise, and returns its id.
async fn found(locked: &Locked, key: &ApiKey) -> String {
    loop {
        let reply = locked.send(key, "GET", PATH, "").await;
        if reply.status == 200 {
            let found: Value = serde_json::from_str(&reply.body).unwrap();
            return found["promise"].as_str().unwrap().to_owned();
        }
        reply.problem(404, "promise_key_not_found");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_promise_is_resolved_by_its_key_without_its_id() {
    let (locked, root) = Locked::open().await;
    let onward = worker(&locked, &root).await;
    let result = |value: &str, id: &str| json!({"result": value, "resolution_id": id}).to_string();
    let resolve = async |value: &str, id: &str| locked.send(&root, "POST", PATH, &result(value, id)).await;
    resolve("early", "hook-1").await.problem(404, "promise_key_not_found");
    let run = onward.start::<String, _>("pay", &()).id("a").await.unwrap();
    assert_eq!(found(&locked, &root).await, "a~0~0");
    resolve("paid", "hook-2").await.expect(200);
    resolve("paid", "hook-2").await.expect(200);
    resolve("refunded", "hook-2").await.problem(409, "id_taken");
    resolve("paid", "hook-3").await.problem(409, "signal_lost");
    assert_eq!(run.result().await.unwrap(), "paid");
    resolve("paid", "hook-3").await.problem(409, "signal_lost");
    // The key is free again.
    let again = onward.start::<String, _>("pay", &()).id("b").await.unwrap();
    while found(&locked, &root).await != "b~0~0" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let promise = onward.find_promise("payment/42").await.unwrap();
    onward.resolve(&promise, &"paid again", "hook-4").await.unwrap();
    assert_eq!(again.result().await.unwrap(), "paid again");
    assert_eq!(onward.find_promise("payment/43").await.unwrap_err().code(), "promise_key_not_found");
    onward.shutdown().await;
}

/// PK1
#[tokio::test]
async fn the_second_open_promise_with_a_key_fails() {
    let (locked, root) = Locked::open().await;
    let onward = worker(&locked, &root).await;
    onward.start::<String, _>("pay", &()).id("a").await.unwrap();
    assert_eq!(found(&locked, &root).await, "a~0~0");
    let second = onward.start::<String, _>("pay", &()).id("b").await.unwrap();
    let error = second.result().await.unwrap_err();
    assert_eq!(error.failure().map(|failure| failure.code.as_str()), Some("promise_key_taken"), "{error}");
    onward.shutdown().await;
}

/// S4: to find a promise needs the right to resolve it.
#[tokio::test]
async fn a_promise_is_found_by_keys_that_may_resolve_it() {
    let (locked, root) = Locked::open().await;
    let onward = worker(&locked, &root).await;
    onward.start::<String, _>("pay", &()).id("a").await.unwrap();
    let promise = found(&locked, &root).await;
    let (own, other) = (bound(&locked, "pay"), bound(&locked, "other"));
    let reader = locked.make("reader", "default", &[Scope::Read]);
    let tenant = locked.make("tenant", "shop", &[Scope::Signal]);
    locked.until(&own, 200).await;
    let body = json!({"result": "paid", "resolution_id": "x"}).to_string();
    for key in [&other, &reader] {
        locked.send(key, "GET", PATH, "").await.problem(403, "not_allowed");
        locked.send(key, "POST", PATH, &body).await.problem(403, "not_allowed");
    }
    let elsewhere = Onward::connect(locked.url()).key(other.reveal()).start().await.unwrap();
    assert_eq!(elsewhere.find_promise("payment/42").await.unwrap_err().code(), "not_allowed", "over gRPC");
    locked.send(&tenant, "POST", PATH, &body).await.problem(404, "promise_key_not_found");
    locked.send_in("shop", &tenant, "POST", PATH, &body).await.problem(404, "promise_key_not_found");
    assert_eq!(found(&locked, &own).await, promise);
    locked.send(&own, "POST", PATH, &body).await.expect(200);
    elsewhere.shutdown().await;
    onward.shutdown().await;
}

/// BK3: a worker of a bound key would take results that are for other kinds.
#[tokio::test]
async fn a_worker_of_a_bound_key_gives_no_promise_a_key() {
    let (locked, root) = Locked::open().await;
    let own = bound(&locked, "pay");
    locked.until(&own, 200).await;
    let onward = worker(&locked, &own).await;
    let run = onward.start::<String, _>("pay", &()).id("a").await.unwrap();
    while run.view().await.unwrap().pause.is_none() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let pause = run.view().await.unwrap().pause.unwrap();
    assert!(pause.message.contains("bound to kinds"), "{}", pause.message);
    locked.send(&root, "GET", PATH, "").await.problem(404, "promise_key_not_found");
    onward.shutdown().await;
}
