//! S8: who may decide an approval, and which decisions are refused.

use std::time::Duration;

use onward::prelude::*;
use onward::{Decide, Onward};
use onward_core::Index;
use onward_server::Scope;
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::client::Reply;
use crate::keys::Locked;
use crate::rights::{begin, result, until_status};
use crate::site::DEADLINE;

/// Returns a worker whose runs request approvals: of another person than the requester, of anyone for a moment, of a person
/// behind a child.
async fn worker(locked: &Locked, root: &ApiKey) -> Onward {
    let builder = Onward::connect(locked.url()).key(root.reveal());
    let builder = builder.workflow("careful", |ctx: Ctx, _: Value| async move {
        let decision = ctx.approval("pay", "Pay?").not_by_requester().await?;
        Ok((decision.approved, decision.decided_by))
    });
    let builder = builder.workflow("above", |ctx: Ctx, _: Value| async move { ctx.child::<Value>("careful", &()).await });
    let builder = builder.workflow("failing", |ctx: Ctx, _: Value| async move {
        ctx.approval("pay", "Pay?").not_by_requester().await?;
        Err::<(), _>(Failure::fatal("no funds"))
    });
    let builder = builder.workflow("brief", |ctx: Ctx, _: Value| async move {
        let decision = ctx.approval("pay", "Pay?").within(Duration::from_millis(1)).await?;
        ctx.signal("go").recv::<()>().await?;
        Ok(decision.approved)
    });
    builder.start().await.unwrap()
}

fn click(id: &str) -> Value {
    json!({"approved": true, "decision_id": id, "decided_by": "somebody-else"})
}

async fn decide(locked: &Locked, key: &ApiKey, approval: &str, body: Value) -> Reply {
    locked.send(key, "POST", &format!("/v1/approvals/{}", approval.replace('/', "%2F")), &body.to_string()).await
}

/// Returns the open approval of a run or of one below it.
async fn open(locked: &Locked, root: &ApiKey, below: &str) -> String {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let listed = locked.send(root, "GET", &format!("/v1/approvals?below={below}"), "").await.expect(200);
        if let Some(id) = listed["approvals"][0]["id"].as_str() {
            return id.to_owned();
        }
        assert!(tokio::time::Instant::now() < deadline, "{below} has no open approval");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_requester_cannot_approve_what_another_must() {
    let (locked, root) = Locked::open().await;
    let onward = worker(&locked, &root).await;
    let (ada, bob) = (locked.make("ada", "*", &Scope::ALL), locked.make("bob", "*", &Scope::ALL));
    // The same person with another key.
    let second = locked.make("ada", "*", &[Scope::Approve, Scope::Read]);
    locked.until(&second, 200).await;
    for kind in ["careful", "above"] {
        begin(&locked, &ada, kind, kind, Value::Null).await;
        let approval = open(&locked, &root, kind).await;
        let listed = locked.send(&root, "GET", &format!("/v1/approvals?below={kind}"), "").await.expect(200);
        assert_eq!(listed["approvals"][0]["not_by_requester"], true);
        for key in [&ada, &second] {
            // The body cannot claim another decider.
            decide(&locked, key, &approval, click("1")).await.problem(403, "not_a_decider");
        }
        let client = Onward::connect(locked.url()).key(ada.reveal()).start().await.unwrap();
        let own = Decide {
            approved: true,
            feedback: None,
            decided_by: Some("bob".to_owned()),
            answer: None,
            decision_id: "2".to_owned(),
        };
        assert_eq!(client.decide_approval(&approval, own).await.unwrap_err().code(), "not_a_decider", "gRPC");
        client.shutdown().await;
        let run = approval.split('~').next().unwrap().replace('/', "%2F");
        let brought =
            json!({"approval": {"id": approval, "approved": true, "decision_id": "3", "decided_by": "bob"}}).to_string();
        locked.send(&ada, "POST", &format!("/v1/drive/{run}"), &brought).await.problem(403, "not_a_decider");
        decide(&locked, &bob, &approval, click("4")).await.expect(200);
        assert_eq!(result(&locked, &root, kind).await["output"]["json"], json!([true, "bob"]));
        // The same decision id again is the same decision; another one has lost.
        assert_eq!(decide(&locked, &bob, &approval, click("4")).await.expect(200)["repeated"], true);
        decide(&locked, &bob, &approval, click("5")).await.problem(409, "signal_lost");
    }
    onward.shutdown().await;
}

/// Z10: over HTTP and gRPC, of a fork, a reset, a retry and a bulk retry, also of a child that the copy starts.
#[tokio::test]
async fn the_caller_of_a_copy_cannot_approve_what_another_must() {
    let (locked, root) = Locked::open().await;
    let onward = worker(&locked, &root).await;
    let [ada, bob, carol] = ["ada", "bob", "carol"].map(|name| locked.make(name, "*", &Scope::ALL));
    locked.until(&carol, 200).await;
    let client = Onward::connect(locked.url()).key(ada.reveal()).start().await.unwrap();
    let settle = async |below: &str| {
        let approval = open(&locked, &root, below).await;
        for key in [&ada, &bob] {
            decide(&locked, key, &approval, click("1")).await.problem(403, "not_a_decider");
        }
        decide(&locked, &carol, &approval, click("2")).await.expect(200);
    };
    for kind in ["careful", "above"] {
        begin(&locked, &bob, kind, kind, Value::Null).await;
        open(&locked, &root, kind).await;
        let fork = json!({"from": 0, "id": format!("{kind}-fork")}).to_string();
        locked.send(&ada, "POST", &format!("/v1/runs/{kind}/fork"), &fork).await.expect(201);
        client.run::<Value>(kind).unwrap().fork().at(Index(0)).id(format!("{kind}-grpc")).await.unwrap();
        let reset = json!({"to": 0, "id": format!("{kind}-reset")}).to_string();
        locked.send(&ada, "POST", &format!("/v1/runs/{kind}/reset"), &reset).await.expect(201);
        let view = locked.send(&root, "GET", &format!("/v1/runs/{kind}-fork"), "").await.expect(200);
        assert_eq!((&view["requester"], &view["copied_by"]), (&json!("bob"), &json!(["ada"])));
        for copy in ["fork", "grpc", "reset"] {
            settle(&format!("{kind}-{copy}")).await;
        }
    }
    for how in ["http", "grpc", "bulk"] {
        begin(&locked, &bob, "failing", how, Value::Null).await;
        let first = open(&locked, &root, how).await;
        decide(&locked, &ada, &first, click("0")).await.expect(200);
        until_status(&locked, &root, how, "failed").await;
        match how {
            "http" => drop(locked.send(&ada, "POST", "/v1/runs/http/retry", "{}").await.expect(202)),
            "grpc" => client.run::<Value>(how).unwrap().retry("again").await.unwrap(),
            _ => {
                let bulk = json!({"verb": "retry", "filter": {"kind": "failing"}}).to_string();
                locked.send(&ada, "POST", "/v1/bulk", &bulk).await.expect(200);
            }
        }
        settle(how).await;
    }
    client.shutdown().await;
    onward.shutdown().await;
}

#[tokio::test]
async fn a_click_on_a_question_that_is_over_decides_nothing() {
    let (locked, root) = Locked::open().await;
    let onward = worker(&locked, &root).await;
    let approver = locked.make("bob", "*", &[Scope::Approve, Scope::Read]);
    locked.until(&approver, 200).await;
    // Expired.
    locked.send(&root, "POST", "/v1/runs", &json!({"kind": "brief", "id": "late"}).to_string()).await.expect(201);
    loop {
        let events = locked.send(&root, "GET", "/v1/runs/late/events", "").await.body;
        if events.contains("timer_fired") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    decide(&locked, &approver, "late~0~0", click("1")).await.problem(409, "signal_lost");
    locked.send(&root, "POST", "/v1/runs/late/signals", &json!({"name": "go"}).to_string()).await.expect(202);
    assert_eq!(result(&locked, &root, "late").await["output"]["json"], false);
    // Canceled.
    begin(&locked, &root, "careful", "stopped", Value::Null).await;
    locked.send(&root, "POST", "/v1/runs/stopped/cancel", "{}").await.expect(202);
    until_status(&locked, &root, "stopped", "canceled").await;
    let refused = decide(&locked, &approver, "stopped~0~0", click("2")).await;
    assert!([404, 409].contains(&refused.status), "{}", refused.body);
    let events = locked.send(&root, "GET", "/v1/runs/stopped/events", "").await.body;
    assert!(!events.contains("approval_decided"), "{events}");
    onward.shutdown().await;
}
