//! Ceilings of budgets: those of an agent's own code, of keys and of namespaces.

use onward::prelude::*;
use onward::{Budget, Onward};
use onward_core::{Name, Namespace};
use onward_server::keys::{NewKey, Reach};
use onward_server::{Bounds, Ceilings, Options, Scope};
use onward_store::{Clock, SystemClock};
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::keys::Locked;
use crate::site::limits;

/// Code with a budget of its own, like a ready-made agent.
async fn limited(ctx: Ctx, _: Value) -> Result<()> {
    ctx.set_budget(Budget::default().tokens(100).turns(5));
    ctx.signal("end").recv().await
}

/// Starts such a run as a child with a larger budget.
async fn parent(ctx: Ctx, _: Value) -> Result<()> {
    ctx.child::<()>("limited", &Value::Null).id("child").budget(Budget::default().tokens(1_000_000)).await
}

async fn worker(locked: &Locked, root: &ApiKey) -> Onward {
    let builder = Onward::connect(locked.url()).key(root.reveal()).workflow("limited", limited).workflow("parent", parent);
    builder.start().await.unwrap()
}

pub fn key(locked: &Locked, scopes: &[Scope], budget_max: Option<Budget>) -> ApiKey {
    let (name, scopes) = (Name::new("key").unwrap(), scopes.iter().copied().collect());
    let wanted = NewKey { name, namespace: Reach::All, scopes, lifetime: None, budget_max, bounds: Bounds::default() };
    locked.file.create(wanted, SystemClock.now()).unwrap().key
}

/// Returns the limits of a run once its code waits.
async fn limits_of(locked: &Locked, root: &ApiKey, id: &str) -> Value {
    loop {
        let view = locked.send(root, "GET", &format!("/v1/runs/{id}"), "").await;
        if view.status == 200 && view.json()["status"] == "waiting" {
            return view.json()["budget"].clone();
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn body(id: &str, tokens: u64) -> String {
    json!({"kind": "limited", "id": id, "budget": {"tokens": tokens}}).to_string()
}

/// BG4, over every API.
#[tokio::test]
async fn a_start_lowers_the_budget_of_an_agent_and_only_an_operator_raises_it() {
    let (locked, root) = Locked::open().await;
    let (start, operate) =
        (key(&locked, &[Scope::Start, Scope::Read], None), key(&locked, &[Scope::Start, Scope::Operate], None));
    let onward = worker(&locked, &root).await;
    locked.until(&start, 200).await;
    let much = 1_000_000_000_000;
    locked.send(&start, "POST", "/v1/runs", &body("http", much)).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "http").await, json!({"tokens": 100, "turns": 5}));
    let client = Onward::connect(locked.url()).key(start.reveal()).start().await.unwrap();
    client.start::<(), _>("limited", &()).id("grpc").budget(Budget::default().tokens(much)).await.unwrap();
    assert_eq!(limits_of(&locked, &root, "grpc").await, json!({"tokens": 100, "turns": 5}));
    locked.send(&start, "POST", "/v1/runs", &body("less", 7)).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "less").await, json!({"tokens": 7, "turns": 5}));
    locked
        .send(&start, "POST", "/v1/runs", &json!({"kind": "parent", "id": "p", "budget": {"tokens": much}}).to_string())
        .await
        .expect(201);
    assert_eq!(limits_of(&locked, &root, "child").await, json!({"tokens": 100, "turns": 5}), "a child, too");
    locked.send(&operate, "POST", "/v1/runs", &body("more", much)).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "more").await, json!({"tokens": much, "turns": 5}));
    // After the start it needs the scope `operate`.
    let raise = json!({"budget": {"tokens": 900}}).to_string();
    locked.send(&start, "POST", "/v1/runs/http/resume", &raise).await.problem(403, "not_allowed");
    locked.send(&operate, "POST", "/v1/runs/http/resume", &raise).await.expect(202);
    assert_eq!(limits_of(&locked, &root, "http").await, json!({"tokens": 900, "turns": 5}));
    for onward in [client, onward] {
        onward.shutdown().await;
    }
}

async fn failing(_: Ctx, _: Value) -> Result<()> {
    Err(Failure::fatal("no"))
}

/// CB3: a caller that may not start such a run may not copy it either.
#[tokio::test]
async fn a_copy_has_the_limits_of_its_requester() {
    let (locked, root) = Locked::open().await;
    let builder = Onward::connect(locked.url()).key(root.reveal()).workflow("limited", limited).workflow("failing", failing);
    let onward = builder.start().await.unwrap();
    let small = key(&locked, &Scope::ALL, Some(Budget::default().tokens(50)));
    locked.until(&small, 200).await;
    locked.send(&root, "POST", "/v1/runs", &body("big", 1_000_000)).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "big").await["tokens"], 1_000_000);
    for (key, id, tokens) in [(&root, "by-root", 1_000_000), (&small, "by-small", 50)] {
        locked.send(key, "POST", "/v1/runs/big/fork", &json!({"id": id}).to_string()).await.expect(201);
        assert_eq!(limits_of(&locked, &root, id).await, json!({"tokens": tokens, "turns": 5}));
    }
    let client = Onward::connect(locked.url()).key(small.reveal()).start().await.unwrap();
    client.run::<()>("big").unwrap().fork().id("grpc").await.unwrap();
    assert_eq!(limits_of(&locked, &root, "grpc").await["tokens"], 50);
    locked.send(&small, "POST", "/v1/runs/big/reset", &json!({"id": "reset"}).to_string()).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "reset").await["tokens"], 50);
    for (id, budget, bulk) in [("retried", json!({"tokens": 1_000_000}), false), ("unlimited", json!({}), true)] {
        let start = json!({"kind": "failing", "id": id, "budget": budget, "attributes": {"id": id}});
        locked.send(&root, "POST", "/v1/runs", &start.to_string()).await.expect(201);
        locked.send(&root, "GET", &format!("/v1/runs/{id}/result?wait_ms=60000"), "").await.expect(200);
        match bulk {
            false => locked.send(&small, "POST", &format!("/v1/runs/{id}/retry"), "{}").await.expect(202),
            true => {
                let many = json!({"verb": "retry", "filter": {"attributes": {"id": id}}});
                locked.send(&small, "POST", "/v1/bulk", &many.to_string()).await.expect(200)
            }
        };
        let view = locked.send(&root, "GET", &format!("/v1/runs/{id}"), "").await.expect(200);
        assert_eq!((&view["generation"], &view["budget"]["tokens"]), (&json!(1), &json!(50)), "{view}");
    }
    for onward in [client, onward] {
        onward.shutdown().await;
    }
}

/// CB1, CB2: whatever the scope.
#[tokio::test]
async fn ceilings_of_keys_and_namespaces_hold_for_every_scope() {
    let of_default = (Namespace::default(), Budget::default().seconds(3_600));
    let ceilings = Ceilings { all: Budget::default().tokens(5_000), namespaces: [of_default].into() };
    let (locked, root) = Locked::with(Options { limits: limits(), ceilings, ..Options::default() }).await;
    let onward = worker(&locked, &root).await;
    let small = key(&locked, &Scope::ALL, Some(Budget::default().tokens(50)));
    locked.until(&small, 200).await;
    let before = locked.site.records();
    let client = Onward::connect(locked.url()).key(small.reveal()).start().await.unwrap();
    for (key, tokens) in [(&small, 51), (&root, 5_001)] {
        let refused = locked.send(key, "POST", "/v1/runs", &body("r", tokens)).await;
        assert!(refused.problem(403, "budget_too_large").contains("tokens"));
    }
    let refused = client.start::<(), _>("limited", &()).id("r").budget(Budget::default().tokens(51)).await;
    assert_eq!(refused.map(drop).unwrap_err().code(), "budget_too_large");
    assert_eq!(locked.site.records(), before);
    locked.send(&small, "POST", "/v1/runs", &json!({"kind": "limited", "id": "small"}).to_string()).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "small").await, json!({"tokens": 50, "turns": 5, "seconds": 3_600}));
    locked.send(&root, "POST", "/v1/runs", &json!({"kind": "limited", "id": "root"}).to_string()).await.expect(201);
    assert_eq!(limits_of(&locked, &root, "root").await, json!({"tokens": 100, "turns": 5, "seconds": 3_600}));
    let turn = json!({"threadId": "t", "runId": "r", "messages": [{"id": "m", "role": "user", "content": "hello"}]}).to_string();
    // The turn ends when the run waits.
    assert_eq!(locked.send(&small, "POST", "/v1/agents/limited/ag-ui", &turn).await.status, 200);
    assert_eq!(limits_of(&locked, &root, "limited:t").await["tokens"], 50, "AG-UI");
    for (key, tokens) in [(&small, 51), (&root, 5_001)] {
        let raise = json!({"budget": {"tokens": tokens}}).to_string();
        locked.send(key, "POST", "/v1/runs/small/resume", &raise).await.problem(403, "budget_too_large");
    }
    let run = client.run::<()>("small").unwrap();
    assert_eq!(run.resume_with(Budget::default().tokens(51)).await.map(drop).unwrap_err().code(), "budget_too_large");
    for onward in [client, onward] {
        onward.shutdown().await;
    }
}
