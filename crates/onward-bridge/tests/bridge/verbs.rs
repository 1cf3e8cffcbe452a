//! Every verb of code and of callers once, and bad arguments.

use std::time::Duration;

use onward_bridge::Work;
use serde_json::{Value, json};

use crate::memory;
use crate::shell::{Ctx, Programs, Ran, Result, failure};

/// Calls every verb that does not wait.
async fn values(ctx: Ctx, _: Value) -> Result<Value> {
    assert_eq!(ctx.call("uuid", json!({}))?.as_str().unwrap().len(), 36);
    assert!(ctx.call("random", json!({}))?.as_str().unwrap().parse::<u64>().is_ok());
    assert_eq!(ctx.call("version", json!({"change": "fees", "min": 0, "max": 2}))?, 2);
    assert_eq!(ctx.call("is_canceled", json!({}))?, false);
    assert_eq!(ctx.call("trace", json!({}))?, Value::Null);
    assert_eq!(ctx.call("state_get", json!({"key": "k"}))?, Value::Null);
    ctx.call("state_set", json!({"key": "k", "value": null}))?;
    assert_eq!(ctx.call("state_get", json!({"key": "k"}))?, json!({"value": null}));
    assert_eq!(ctx.call("state_keys", json!({}))?, json!(["k"]));
    ctx.call("state_clear", json!({"key": "k"}))?;
    ctx.call("state_set", json!({"key": "stage", "value": "ready"}))?;
    for value in [json!("eu"), json!(7), json!(true), json!({"time": 1000})] {
        ctx.call("attribute_set", json!({"name": "region", "value": value}))?;
    }
    ctx.call("attribute_clear", json!({"name": "region"}))?;
    ctx.call("attribute_set", json!({"name": "region", "value": "eu"}))?;
    ctx.call("emit", json!({"name": "progress", "value": 0.5, "internal": true, "meta": {"a": 1}}))?;
    ctx.call("set_budget", json!({"budget": {"tokens": 100}}))?;
    assert!(ctx.now() > 1_600_000_000_000);

    assert_eq!(ctx.call("has", json!({"signal": "none"}))?, false);
    ctx.wait("recv", json!({"signal": "go"})).await?;
    assert_eq!(ctx.call("budget_left", json!({}))?["tokens"], 100);
    assert_eq!(ctx.call("spent", json!({}))?["tokens"], 0);
    assert_eq!(ctx.call("count", json!({"pattern": "s.*"}))?, 4);
    assert_eq!(ctx.call("try_recv", json!({"signal": "s.1"}))?, json!({"name": "s.1", "value": 1}));
    assert_eq!(ctx.call("try_recv", json!({"pattern": "s.*"}))?, json!({"name": "s.2", "value": 2}));
    assert_eq!(ctx.call("drain", json!({"signal": "s.3"}))?, json!([{"name": "s.3", "from": null, "value": 3}]));
    let answer = ctx.wait("recv", json!({"pattern": "s.*"})).await?;
    assert_eq!(answer, json!({"name": "s.4", "value": 4}));
    assert_eq!(ctx.wait("recv", json!({"signal": "late", "timeout_ms": 1})).await?, Value::Null);

    let spawned = ctx.call("spawn", json!({"kind": "echo", "input": 5, "budget": {"tokens": 10}}))?;
    ctx.call("spawned_message", json!({"run": spawned["run"], "value": 6}))?;
    assert_eq!(ctx.wait("spawned_result", json!({"run": spawned["run"]})).await?, json!([5, 6]));
    let spawned = ctx.call("spawn", json!({"kind": "echo", "input": 0}))?;
    ctx.call("spawned_cancel", json!({"run": spawned["run"]}))?;
    assert_eq!(ctx.wait("spawned_result", json!({"run": spawned["run"]})).await.unwrap_err()["code"], "canceled");
    let child = ctx.wait("child", json!({"kind": "echo", "input": 1, "id": "the-child", "on_parent_close": "abandon"}));
    assert_eq!(child.info, json!({"run": "the-child"}));
    ctx.call("send_signal", json!({"run": "the-child", "name": "message", "value": 2}))?;
    assert_eq!(child.await?, json!([1, 2]));
    assert_eq!(ctx.call("drain", json!({"signal": "message"}))?.as_array().unwrap().len(), 2, "the children have reported");

    let approval = ctx.wait("approval", json!({"name": "pay", "title": "Pay?", "show": {"sum": 3}, "within_ms": 60000}));
    let promise = ctx.wait("promise", json!({"name": "answer"}));
    ctx.call("state_set", json!({"key": "ids", "value": [approval.info["id"], promise.info["id"]]}))?;
    let decision = approval.await?;
    assert_eq!((&decision["approved"], &decision["feedback"]), (&json!(true), &json!("fine")));
    assert_eq!(promise.await?, json!({"is": "settled"}));
    let slept = ctx.wait("sleep", json!({"until": ctx.now() + 1})).await?;
    assert_eq!(slept, Value::Null);
    let long = ctx.wait("sleep", json!({"ms": 3_600_000}));
    drop(long); // is not waited for
    Ok(json!("done"))
}

/// Returns its input and the first message, and reports both to its parent.
async fn echo(ctx: Ctx, input: Value) -> Result<Value> {
    let message = ctx.wait("recv", json!({"signal": "message"})).await?;
    ctx.call("parent_message", json!({"value": message}))?;
    Ok(json!([input, message]))
}

#[test]
fn every_verb_of_code_does_what_its_function_does() {
    let host = Programs::default().with("values", values).with("echo", echo).start(memory());
    host.start("values", "v", Value::Null);
    host.request("wait", json!({"run": "v", "state": {"key": "stage", "value": "ready"}})).unwrap();
    for number in 1..=4 {
        host.request("signal", json!({"run": "v", "name": format!("s.{number}"), "value": number})).unwrap();
    }
    host.request("signal", json!({"run": "v", "name": "go"})).unwrap();
    let view = host.request("wait", json!({"run": "v", "state": {"key": "ids"}})).unwrap();
    let ids = &view["state"]["ids"]["json"];
    host.request("approve", json!({"approval": ids[0], "feedback": "fine"})).unwrap();
    host.request("resolve", json!({"promise": ids[1], "value": {"is": "settled"}, "id": "once"})).unwrap();
    assert_eq!(host.result("v"), Ok(json!("done")));
    host.stop();
}

#[test]
fn every_request_has_a_reply() {
    let programs = Programs::default()
        .with("wait", async |ctx: Ctx, input| {
            if input == "continue" {
                return ctx.wait("continue_as_new", json!({"input": "last"})).await;
            }
            if input == "fail" {
                return Err(failure("as asked"));
            }
            ctx.step("work", || Ok(json!(1))).await?;
            ctx.wait("recv", json!({"signal": "go"})).await
        })
        .task("work", |_, _, input, _| Ran::Now(Ok(input)));
    let host = programs.start(memory());
    let start = json!({"kind": "wait", "id": "a", "attributes": {"region": "eu"}, "budget": {"tokens": 9}, "signal": {"name": "other", "id": "s"}});
    assert_eq!(host.request("start", start), Ok(json!({"id": "a"})));
    host.until("a", "waiting");
    assert_eq!(host.request("view", json!({"run": "a"})).unwrap()["head"]["status"], "waiting");
    assert!(host.event_names("a").len() > 2 || !host.request("log", json!({"run": "a"})).unwrap().as_array().unwrap().is_empty());
    let first = host.request("signal", json!({"run": "a", "name": "x", "value": 1, "id": "once"})).unwrap();
    let again = host.request("signal", json!({"run": "a", "name": "x", "value": 1, "id": "once"})).unwrap();
    assert_eq!((&first["index"], &again["repeated"]), (&again["index"], &json!(true)));
    host.request("pause", json!({"run": "a", "reason": "lunch"})).unwrap();
    host.until("a", "paused");
    host.request("resume", json!({"run": "a", "budget": {"tokens": 20}})).unwrap();
    assert_eq!(host.request("fork", json!({"run": "a", "id": "b"})), Ok(json!({"id": "b"})));
    host.request("cancel", json!({"run": "b"})).unwrap();
    assert_eq!(host.result("b").unwrap_err()["failure"]["code"], "canceled");
    let running = host.begin("result", json!({"run": "a"}));
    host.request("signal", json!({"run": "a", "name": "go", "value": [1.5]})).unwrap();
    assert_eq!(running(), Ok(json!([1.5])));
    let attached = host.items("attach", json!({"run": "a"}));
    assert!(attached.len() > 3, "{attached:?}");
    assert!(!host.items("watch", json!({"run": "a"})).is_empty());
    drop(host.items("stream", json!({"run": "a"})));

    host.start("wait", "c", json!("continue"));
    host.request("wait", json!({"run": "c", "status": ["waiting"]})).unwrap();
    host.request("terminate", json!({"run": "c", "reason": "enough"})).unwrap();
    assert_eq!(host.request("view", json!({"run": "c"})).unwrap()["head"]["generation"], 1);
    host.start("wait", "f", json!("fail"));
    assert_eq!(host.result("f").unwrap_err()["failure"]["message"], "as asked");
    host.request("retry", json!({"run": "f", "reason": "again"})).unwrap();

    // Verbs of the table of the API, with the defaults of their fields.
    let listed = host.request("list_runs", json!({"kind": "wait"})).unwrap();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 4);
    assert!(host.request("list_approvals", json!({})).is_ok());
    assert!(host.request("read_blockers", json!({"run": "a"})).is_ok());
    assert!(host.request("count_runs", json!({})).is_ok());
    assert_eq!(host.request("delete_run", json!({"run": "a", "reason": "test"})), Ok(json!({})));
    host.stop();
}

#[test]
fn bad_arguments_are_errors_with_code_and_hint() {
    let programs = Programs::default().with("bad", async |ctx: Ctx, _| {
        let code = |error: Result<Value>| error.unwrap_err()["code"].clone();
        let message = |error: Result<Value>| error.unwrap_err()["message"].as_str().unwrap().to_owned();
        assert_eq!(code(ctx.call("no_such_verb", json!({}))), "value_invalid");
        assert_eq!(code(ctx.call("state_set", json!({"key": "k"}))), "value_invalid");
        assert!(message(ctx.call("state_set", json!({"key": "k", "value": 1, "valeu": 2}))).contains("valeu"));
        assert!(message(ctx.wait("recv", json!({})).await).contains("`signal` or `pattern`"));
        assert!(message(ctx.wait("sleep", json!({"ms": 1, "until": 2})).await).contains("`ms` or `until`"));
        assert!(message(ctx.wait("task", json!({"kind": "t", "class": "sometimes"})).await).contains("sometimes"));
        let large = "x".repeat(40 << 20);
        assert_eq!(code(ctx.call("state_set", json!({"key": "k", "value": large}))), "payload_too_large");
        Ok(json!("fine"))
    });
    let host = programs.start(memory());
    host.start("bad", "b", Value::Null);
    assert_eq!(host.result("b"), Ok(json!("fine")));
    let error = host.request("view", json!({"run": "nobody"})).unwrap_err();
    assert_eq!((error["code"].as_str(), error["status"].as_u64()), (Some("run_not_found"), Some(404)));
    assert!(error["hint"].is_string());
    assert_eq!(host.request("start", json!({"kind": "nothing"})).unwrap_err()["code"], "unknown_kind");
    assert_eq!(host.request("start", json!({"kidn": "bad"})).unwrap_err()["code"], "value_invalid");
    assert_eq!(host.request("no_such_verb", json!({})).unwrap_err()["code"], "value_invalid");
    host.stop();
    for (settings, expected) in [("{}", "store"), (r#"{"store":"memory:","kindz":[]}"#, "kindz"), ("", "settings")] {
        let error = onward_bridge::Bridge::start(settings).map(drop).unwrap_err();
        assert!(error.text.contains("config_invalid") && error.text.contains(expected), "{error}");
    }
}

#[test]
fn a_misuse_pauses_the_run_with_its_message() {
    let programs = Programs::default().with("clock", async |ctx: Ctx, _| {
        drop(ctx.call("misuse", json!({"message": "`time.time` is not replayed; use `ctx.now`"})));
        std::future::pending().await
    });
    let host = programs.start(memory());
    host.start("clock", "c", Value::Null);
    let view = host.until("c", "paused");
    assert!(view["pause"]["message"].as_str().unwrap().contains("use `ctx.now`"), "{view}");
    // Code that awaits nothing of the context can never go on.
    host.stop();
    let stuck = Programs::default().with("stuck", async |_: Ctx, _| std::future::pending().await);
    let host = stuck.start(memory());
    host.start("stuck", "s", Value::Null);
    assert!(host.until("s", "paused")["pause"]["message"].as_str().unwrap().contains("not from `ctx`"));
    host.stop();
}

#[test]
fn calls_outside_of_an_activation_are_refused() {
    let bridge = onward_bridge::Bridge::start(r#"{"store":"memory:","kinds":[{"kind":"k"}]}"#).unwrap();
    bridge.request("start", r#"{"kind":"k","id":"r"}"#);
    let mut run = None;
    while run.is_none() {
        for work in bridge.take(16, Duration::from_secs(10)) {
            if let Work::Start { run: number, .. } = work {
                run = Some(number);
            }
        }
    }
    let run = run.unwrap();
    bridge.call(run, "recv", r#"{"signal":"go"}"#).unwrap();
    bridge.hand_back([onward_bridge::HandBack { run, ..Default::default() }]);
    let error = bridge.call(run, "uuid", "").unwrap_err();
    assert!(error.text.contains("context_misused"), "{error}");
    assert_eq!(error.kind, onward_bridge::ErrorKind::Error);
    assert!(bridge.call(run, "state_keys", "").is_ok(), "reads are allowed at any time");
    assert_eq!(bridge.call(99, "uuid", "").unwrap_err().kind, onward_bridge::ErrorKind::Stopped);
}
