//! The test kit with code of a shell, and that it fails where it must.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::memory;
use crate::shell::{Ctx, Host, Programs, Ran, Result, failure};

async fn order(ctx: Ctx, item: Value) -> Result<Value> {
    let paid = ctx.step("charge", || Ok(json!("paid"))).await?;
    let payment = ctx.wait("recv", json!({"signal": "payment"})).await?;
    ctx.wait("sleep", json!({"ms": 86_400_000})).await?;
    let label = ctx.wait("task", json!({"kind": "print-label", "input": item, "retry": 5})).await?;
    let approval = ctx.wait("approval", json!({"name": "ship", "title": "Ship?"})).await?;
    Ok(json!([paid, payment, label, approval["approved"]]))
}

fn kit() -> Host {
    let drawn = Arc::new(AtomicU64::new(0));
    Programs::default()
        .with("order", order)
        .with("random", move |ctx: Ctx, _| {
            let number = drawn.fetch_add(1, Ordering::SeqCst);
            async move { ctx.step(&format!("step {number}"), || Ok(json!(1))).await }
        })
        .with("other", async |ctx: Ctx, _| ctx.step("refund", || Ok(json!("paid"))).await)
        .agent("chat", async |ctx: Ctx, input| {
            ctx.call("append", json!({"role": "user", "content": input}))?;
            let reply = ctx.wait("llm", json!({"model": "m", "system": "Be brief.", "max_tokens": 10})).await?;
            ctx.call("append", json!({"role": "assistant", "content": {"blocks": reply["blocks"]}}))?;
            Ok(reply["blocks"][0]["text"].clone())
        })
        .task("print-label", |_, _, input, info| {
            assert_eq!(info["is_scripted"], true);
            Ran::Now(if info["attempt"] == 1 { Err(failure("no paper")) } else { Ok(json!(format!("label {input}"))) })
        })
        .start(memory())
}

fn script(kind: &str) -> Value {
    json!({
        "kind": kind, "input": 7, "id": "order-1",
        "steps": {"charge": [{"failure": {"message": "declined", "retryable": false}}]},
        "tasks": {"print-label": [{"failure": {"message": "no paper"}}, {"value": "a label"}]},
        "approvals": {"ship": [{"after_ms": 1000}]},
        "signals": [{"after_ms": 5000, "name": "payment", "value": 42}],
    })
}

#[test]
fn a_script_runs_in_virtual_time_with_scripted_results() {
    let host = kit();
    let declined = host.request("script", script("order")).unwrap();
    assert_eq!(declined["failure"]["message"], "declined");
    assert_eq!(declined["steps_scripted"], json!(["charge"]));
    let mut paid = script("order");
    paid["steps"] = json!({});
    let outcome = host.request("script", paid.clone()).unwrap();
    assert_eq!(outcome["value"], json!(["paid", 42, "a label", true]));
    assert_eq!((outcome["steps_run"].clone(), outcome["elapsed_ms"].as_u64()), (json!(["charge"]), Some(86_407_000)));
    // The function of the task can run, too.
    paid["tasks"]["print-label"] = "function".into();
    assert_eq!(host.request("script", paid.clone()).unwrap()["value"], json!(["paid", 42, "label 7", true]));
    for check in [json!("crash_everywhere"), json!("deterministic"), json!({"schedules": 5})] {
        paid["check"] = check;
        assert_eq!(host.request("script", paid.clone()).unwrap()["value"][3], true);
    }
    let log = &outcome["logs"][0];
    assert_eq!(host.request("replay", json!({"kind": "order", "run": "order-1", "records": log})), Ok(Value::Null));
    let mut open = script("order");
    (open["signals"], open["steps"]) = (json!([]), json!({}));
    let open = host.request("script", open).unwrap();
    assert_eq!((&open["is_open"], &open["waits_for"][0]), (&json!(true), &json!("signal `payment` at 1")));
    assert_eq!(host.bridge.stats().runs, 0);
    host.stop();
}

#[test]
fn the_kit_fails_for_code_that_is_not_deterministic_or_has_changed() {
    let host = kit();
    for check in ["crash_everywhere", "deterministic"] {
        let error = host.request("script", json!({"kind": "random", "check": check})).unwrap_err();
        assert_eq!(error["code"], "check_failed");
        assert!(error["message"].as_str().unwrap().contains("step"), "{error}");
    }
    let log = host.request("script", json!({"kind": "order", "signals": [{"name": "payment"}]})).unwrap()["logs"][0].clone();
    let report = host.request("replay", json!({"kind": "other", "run": "test", "records": log})).unwrap();
    let message = report["message"].as_str().unwrap();
    assert!(message.contains("`charge`") && message.contains("`refund`"), "{message}");
    assert_eq!(host.request("script", json!({"kind": "nothing"})).unwrap_err()["code"], "unknown_kind");
    assert_eq!(host.request("script", json!({"kind": "order", "taks": {}})).unwrap_err()["code"], "value_invalid");
    host.stop();
}

#[test]
fn an_agent_runs_with_a_scripted_model() {
    let host = kit();
    let answer = |text: &str| json!({"value": {"blocks": [{"type": "text", "text": text}], "stop": "end"}});
    let outcome = host.request("script", json!({"kind": "chat", "input": "hi", "tasks": {"llm.m": [answer("hello")]}}));
    let outcome = outcome.unwrap();
    assert_eq!(outcome["value"], "hello", "{outcome}");
    let broken =
        json!({"kind": "chat", "input": "hi", "tasks": {"llm.m": [{"failure": {"message": "down", "retryable": false}}]}});
    assert_eq!(host.request("script", broken).unwrap()["failure"]["message"], "down");
    host.stop();
}
