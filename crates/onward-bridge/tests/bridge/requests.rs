//! Requests whose fields are missing or contradict each other are refused.

use serde_json::{Value, json};

use crate::memory;
use crate::shell::{Ctx, Host, Programs, Ran};

/// Makes a request that is refused, and returns the message.
#[track_caller]
fn refused(host: &Host, verb: &str, arguments: Value) -> String {
    let error = host.request(verb, arguments).unwrap_err();
    assert_eq!(error["code"], "value_invalid", "{error}");
    assert!(!error["hint"].as_str().unwrap().is_empty(), "{error}");
    error["message"].as_str().unwrap().to_owned()
}

/// Starts a program that requests an approval and returns the decision, or awaits a promise.
fn asking() -> Host {
    let programs = Programs::default()
        .with("asks", async |ctx: Ctx, _| {
            let approval = ctx.wait("approval", json!({"name": "pay", "title": "Pay?"}));
            ctx.call("state_set", json!({"key": "id", "value": approval.info["id"]}))?;
            Ok(approval.await?["approved"].clone())
        })
        .with("awaits", async |ctx: Ctx, _| {
            let promise = ctx.wait("promise", json!({"name": "answer"}));
            ctx.call("state_set", json!({"key": "id", "value": promise.info["id"]}))?;
            Ok(match promise.await {
                Ok(value) => json!({"value": value}),
                Err(failure) => json!({"failure": failure["code"]}),
            })
        });
    programs.start(memory())
}

/// Starts a run and returns the id of what it waits for.
fn waiting(host: &Host, kind: &str, run: &str) -> Value {
    host.start(kind, run, Value::Null);
    host.until(run, "waiting")["state"]["id"]["json"].clone()
}

#[test]
fn a_decision_is_neither_missing_nor_contradictory() {
    let host = asking();
    let id = waiting(&host, "asks", "a");
    assert!(refused(&host, "decide", json!({"approval": id})).contains("`approved` is missing"));
    assert!(refused(&host, "approve", json!({"approval": id, "approved": false})).contains("`approved` is false"));
    assert!(refused(&host, "disapprove", json!({"approval": id, "approved": true})).contains("`approved` is true"));
    assert!(refused(&host, "decide_approval", json!({"approval": id, "decide": {}})).contains("approved"));
    assert_eq!(host.request("view", json!({"run": "a"})).unwrap()["head"]["status"], "waiting", "nothing was decided");
    host.request("decide", json!({"approval": id, "approved": true})).unwrap();
    assert_eq!(host.result("a"), Ok(json!(true)));
    for (run, verb, approved) in [("b", "disapprove", json!(false)), ("c", "approve", json!(true)), ("d", "decide", json!(false))]
    {
        let id = waiting(&host, "asks", run);
        host.request(verb, json!({"approval": id, "approved": approved})).unwrap();
        assert_eq!(host.result(run), Ok(approved));
    }
    host.stop();
}

#[test]
fn a_promise_is_rejected_with_a_failure_and_resolved_with_a_value() {
    let host = asking();
    let id = waiting(&host, "awaits", "a");
    assert!(refused(&host, "reject", json!({"promise": id})).contains("`failure` is missing"));
    assert!(refused(&host, "reject", json!({"promise": id, "value": 1})).contains("value"));
    assert!(refused(&host, "resolve", json!({"promise": id, "failure": {"message": "no"}})).contains("failure"));
    assert!(refused(&host, "reject", json!({"promise": id, "failure": {"code": "no"}})).contains("message"));
    host.request("reject", json!({"promise": id, "failure": {"message": "no", "code": "sold_out"}})).unwrap();
    assert_eq!(host.result("a"), Ok(json!({"failure": "sold_out"})));
    let id = waiting(&host, "awaits", "b");
    host.request("resolve", json!({"promise": id})).unwrap();
    assert_eq!(host.result("b"), Ok(json!({"value": null})));
    host.stop();
}

#[test]
fn fields_that_a_request_would_ignore_are_refused() {
    let host = asking();
    waiting(&host, "asks", "a");
    assert!(refused(&host, "wait", json!({"run": "a"})).contains("neither `status` nor `state`"));
    let after = json!({"generation": 0, "index": 0});
    assert!(refused(&host, "watch", json!({"run": "a", "from": 0, "after": after})).contains("both `from` and `after`"));
    assert!(refused(&host, "query", json!({"run": "a", "name": "q", "id": "once"})).contains("id"));
    assert!(refused(&host, "task_result", json!({"task": "t", "reason": "late"})).contains("reason"));
    assert!(refused(&host, "list_runs", json!({"status": ["running"]})).contains("no field `status`"));
    let cancel = json!({"verb": "cancel", "filter": {"kind": "asks", "status": ["paused"]}});
    assert!(refused(&host, "bulk_runs", cancel).contains("no field `status`"));
    let cancel = json!({"verb": "cancel", "filter": {"kind": "asks", "statuses": ["paused"]}, "bulk_id": "b"});
    assert_eq!(host.request("bulk_runs", cancel).unwrap()["done"], 0);
    let listed = host.request("list_runs", json!({"statuses": ["waiting"], "cursor": null})).unwrap();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "nothing was canceled");
    host.stop();
}

#[test]
fn code_gives_no_task_an_id_and_no_update_two_answers() {
    let programs = Programs::default().with("bad", async |ctx: Ctx, _| {
        let message = |error: crate::shell::Result<Value>| error.unwrap_err()["message"].as_str().unwrap().to_owned();
        assert!(message(ctx.wait("task", json!({"kind": "t", "id": "mine"})).await).contains("no `id`"));
        let failure = json!({"message": "no"});
        assert!(message(ctx.call("update_answer", json!({"update": "u"}))).contains("or neither"));
        let both = json!({"update": "u", "result": null, "failure": failure});
        assert!(message(ctx.call("update_answer", both)).contains("both `result` and `failure`"));
        Ok(json!("fine"))
    });
    let host = programs.start(memory());
    host.start("bad", "b", Value::Null);
    assert_eq!(host.result("b"), Ok(json!("fine")));
    host.stop();
}

/// The class of a standalone task was ignored, and the task could run twice.
#[test]
fn a_standalone_task_keeps_its_effect_class() {
    let host = Programs::default().task("pay", |_, _, input, _| Ran::Now(Ok(input))).start(memory());
    assert!(refused(&host, "start_task", json!({"kind": "pay", "class": "sometimes"})).contains("sometimes"));
    for (id, class) in [("once", json!("at_most_once")), ("any", Value::Null)] {
        host.request("start_task", json!({"kind": "pay", "id": id, "input": 1, "class": class})).unwrap();
        assert_eq!(host.request("task_result", json!({"task": id})), Ok(json!(1)));
        let is_recorded = host.event_names(id).contains(&"task_attempted".to_owned());
        assert_eq!(is_recorded, id == "once", "only attempts of a task with a class are recorded");
    }
    host.stop();
}

#[test]
fn a_request_stays_in_the_namespace_of_its_connection() {
    let folder = tempfile::TempDir::new().unwrap();
    let store = folder.path().join("data");
    let settings = |namespace: &str| json!({"store": store.to_str().unwrap(), "namespace": namespace});
    let programs = || Programs::default().with("waits", async |ctx: Ctx, _| ctx.wait("recv", json!({"signal": "go"})).await);
    let host = programs().start(settings("theirs"));
    host.start("waits", "r", Value::Null);
    host.until("r", "waiting");
    host.stop();
    let host = programs().start(settings("ours"));
    let theirs = json!({"namespace": "theirs", "id": "r"});
    for (verb, arguments) in [
        ("read_head", json!({"run": theirs})),
        ("terminate_run", json!({"run": theirs, "reason": ""})),
        ("terminate_run", json!({"run": "r", "namespace": "theirs"})),
        ("read_task", json!({"run": theirs})),
        ("list_approvals", json!({"run": theirs})),
        ("list_runs", json!({"namespace": "theirs"})),
        ("bulk_runs", json!({"verb": "cancel", "filter": {"namespace": "theirs", "kind": "waits"}, "bulk_id": "b"})),
        (
            "decide_approval",
            json!({"namespace": "theirs", "approval": "r~0~0", "decide": {"approved": true, "decision_id": "d"}}),
        ),
        ("retry_task", json!({"namespace": "theirs", "task": "r~0~0"})),
    ] {
        let message = refused(&host, verb, arguments);
        assert!(message.contains("names the namespace `theirs`"), "{verb}: {message}");
    }
    // The own namespace may be named.
    let own = host.request("list_runs", json!({"namespace": "ours"})).unwrap();
    assert_eq!(own["runs"], json!([]));
    assert_eq!(host.request("retry_task", json!({"task": "r~0~0"})).unwrap_err()["code"], "task_not_quarantined");
    host.stop();
    let host = programs().start(settings("theirs"));
    assert_eq!(host.request("view", json!({"run": "r"})).unwrap()["head"]["status"], "waiting");
    host.stop();
}

#[test]
fn a_listed_approval_has_the_id_that_decides_it() {
    let host = asking();
    let id = waiting(&host, "asks", "a~b");
    let listed = host.request("list_approvals", json!({})).unwrap();
    assert_eq!((&listed["waits"][0]["id"], &listed["waits"][0]["title"]), (&id, &json!("Pay?")));
    assert_eq!(listed["missing"], json!([]));
    let below = host.request("list_approvals", json!({"run": "a~b"})).unwrap();
    assert_eq!(below, listed);
    host.request("approve", json!({"approval": listed["waits"][0]["id"]})).unwrap();
    assert_eq!(host.result("a~b"), Ok(json!(true)));
    assert_eq!(host.request("list_approvals", json!({})).unwrap()["waits"], json!([]));
    host.stop();
}
