//! Keys that are bound to kinds and queues (S4), over every API.

use onward::Onward;
use onward::prelude::*;
use onward_core::Name;
use onward_server::{Bounds, ROUTES, Scope};
use onward_wire::ApiKey;
use serde_json::{Value, json};

use crate::keys::Locked;

fn kinds(kinds: &[&str]) -> Bounds {
    Bounds { kinds: Some(kinds.iter().map(|kind| Name::new(*kind).unwrap()).collect()), ..Bounds::default() }
}

fn queues(queues: &[&str]) -> Bounds {
    Bounds { queues: Some(queues.iter().map(|queue| (*queue).to_owned()).collect()), ..Bounds::default() }
}

/// Returns a site with a run and a standalone task of the kind `theirs`, and a key that is bound to the kinds `own` and
/// `own-task`.
async fn site() -> (Locked, ApiKey, ApiKey) {
    let (locked, root) = Locked::open().await;
    let bound = locked.make_bound(kinds(&["own", "own-task"]));
    locked.until(&bound, 200).await;
    for (route, kind, id) in [("runs", "theirs", "r"), ("tasks", "theirs-task", "t"), ("runs", "own", "o")] {
        let body = json!({"kind": kind, "id": id}).to_string();
        locked.send(&root, "POST", &format!("/v1/{route}"), &body).await.expect(201);
    }
    (locked, root, bound)
}

/// BK1: every route that acts on a run by the id in its path.
#[tokio::test]
async fn every_route_that_acts_on_a_run_of_another_kind_is_refused() {
    let (locked, root, bound) = site().await;
    let schedule = json!({"kind": "theirs", "spec": {"cron": ["@daily"]}}).to_string();
    locked.send(&root, "PUT", "/v1/schedules/r", &schedule).await.expect(201);
    let before = locked.send(&root, "GET", "/v1/runs/r", "").await.body;
    let mut refused = 0;
    for route in ROUTES.iter().filter(|route| route.path.contains("{id}")) {
        let Some(scope) = route.scope.filter(|scope| *scope != Scope::Read) else { continue };
        let id = match route.path.split('/').nth(2).unwrap() {
            "workers" => continue, // kinds are checked in hello
            "approvals" | "promises" => "r~0~0",
            "tasks" if route.path.ends_with("/retry") => "r~0~0",
            "tasks" => "t",
            "agents" if route.path.ends_with("/ag-ui") => "theirs",
            _ => "r",
        };
        let path = route.path.replace("{id}", id).replace("{index}", "0");
        let body = match route.id {
            "putSchedule" => schedule.as_str(),
            "backfillSchedule" => "{\"from\":\"2020-01-01T00:00:00Z\",\"until\":\"2020-01-02T00:00:00Z\"}",
            _ => "{}",
        };
        let reply = locked.send(&bound, route.method.as_str(), &path, body).await;
        assert_eq!(reply.status, 403, "{} {path} with {scope}: {}", route.method, reply.body);
        assert!(reply.body.contains("not_allowed"), "{}", reply.body);
        refused += 1;
    }
    assert!(refused > 20, "{refused}");
    assert_eq!(locked.send(&root, "GET", "/v1/runs/r", "").await.body, before, "nothing has happened to it");
    locked.send(&bound, "POST", "/v1/runs/o/pause", "{}").await.expect(202);
    locked.send(&bound, "POST", "/v1/runs/none/pause", "{}").await.problem(404, "run_not_found");
}

/// BK1: runs, kinds and queues that a body names.
#[tokio::test]
async fn what_a_body_names_is_of_the_keys_kinds_and_queues() {
    let (locked, root, bound) = site().await;
    let refuse = async |key: &ApiKey, path: &str, body: Value| {
        let reply = locked.send(key, "POST", path, &body.to_string()).await;
        assert!(reply.body.contains("kinds and queues"), "the hint: {}", reply.body);
        reply.problem(403, "not_allowed");
    };
    refuse(&bound, "/v1/runs", json!({"kind": "theirs"})).await;
    refuse(&bound, "/v1/tasks", json!({"kind": "theirs-task"})).await;
    refuse(&bound, "/v1/bulk", json!({"verb": "pause", "all": true})).await;
    refuse(&bound, "/v1/bulk", json!({"verb": "retry", "filter": {"kind": "theirs"}})).await;
    refuse(&bound, "/v1/bulk/delete", json!({"filter": {"kind": "own"}})).await; // needs `admin`, which a bound key does not have
    locked.send(&bound, "POST", "/v1/runs", &json!({"kind": "own"}).to_string()).await.expect(201);
    locked.send(&bound, "POST", "/v1/tasks", &json!({"kind": "own-task"}).to_string()).await.expect(201);
    let bulk = json!({"verb": "pause", "filter": {"kind": "own"}}).to_string();
    locked.send(&bound, "POST", "/v1/bulk", &bulk).await.expect(200);
    // The id of a run of another kind, with a signal.
    let start = json!({"kind": "own", "id": "r", "signal": {"name": "s"}}).to_string();
    locked.send(&bound, "POST", "/v1/runs", &start).await.problem(403, "not_allowed");
    assert!(!locked.send(&root, "GET", "/v1/runs/r/events", "").await.body.contains("signal_received"));
    let night = locked.make_bound(queues(&["night"]));
    locked.until(&night, 200).await;
    refuse(&night, "/v1/tasks", json!({"kind": "mail"})).await;
    refuse(&night, "/v1/tasks", json!({"kind": "mail", "queue": "day"})).await;
    locked.send(&night, "POST", "/v1/tasks", &json!({"kind": "mail", "queue": "night"}).to_string()).await.expect(201);
    // Runs begin in the queues of the key; without one, in that of their kind.
    for queue in ["day", "default"] {
        refuse(&night, "/v1/runs", json!({"kind": "own", "id": "q", "queue": queue})).await;
    }
    locked.send(&root, "GET", "/v1/runs/q", "").await.problem(404, "run_not_found");
    locked.send(&night, "POST", "/v1/runs", &json!({"kind": "own", "id": "q", "queue": "night"}).to_string()).await.expect(201);
    refuse(&bound, "/v1/runs", json!({"kind": "theirs", "queue": "night"})).await;
    for (method, body) in [("GET", ""), ("PUT", "{}"), ("DELETE", "")] {
        for queue in ["day", "default"] {
            locked.send(&night, method, &format!("/v1/queues/{queue}"), body).await.problem(403, "not_allowed");
        }
    }
    locked.send(&night, "PUT", "/v1/queues/night", &json!({"paused": true}).to_string()).await.expect(200);
}

/// Sends frames as a worker until a reply comes, and returns it.
async fn reply_to(locked: &Locked, key: &ApiKey, worker: &str, frames: Value) -> Value {
    let mut frames = frames;
    loop {
        let body = json!({"frames": frames}).to_string();
        let sent = locked.send(key, "POST", &format!("/v1/workers/{worker}/frames?wait_ms=5000"), &body).await.expect(200);
        if let Some(reply) = sent["frames"].as_array().unwrap().iter().find_map(|frame| frame.get("reply")) {
            return reply["outcome"].clone();
        }
        frames = json!([]);
    }
}

/// Starts a run and hands it off to another kind.
async fn start_and_hand_off(locked: &Locked, root: &ApiKey, id: &str, kind: &str, to: &str) {
    locked.send(root, "POST", "/v1/runs", &json!({"kind": kind, "id": id}).to_string()).await.expect(201);
    let path = id.replace(':', "%3A");
    let driven = locked.send(root, "POST", &format!("/v1/drive/{path}"), "{}").await.expect(200);
    let run = driven["frames"].as_array().unwrap().iter().find_map(|frame| frame.get("run")).unwrap();
    let checkpoint = json!({"state": {"json": null}, "handoff": to});
    let continued = json!({"type": "run_continued", "input": {"json": null}, "checkpoint": checkpoint});
    let commit = json!({"key": run["head"]["key"], "generation": 0, "epoch": run["head"]["epoch"], "n": 0, "commit_id": "1",
        "horizon": 0, "events": [continued]});
    let frames = json!([{"commit": {"request": 1, "commit": commit}}]);
    let reply = reply_to(locked, root, driven["worker"].as_str().unwrap(), frames).await;
    assert!(reply.get("committed").is_some(), "{reply}");
    assert_eq!(locked.send(root, "GET", &format!("/v1/runs/{path}"), "").await.expect(200)["kind"], to);
}

/// Claims a run with a key, commits events to it and releases it; returns the outcome of each commit.
async fn drive_and_commit(locked: &Locked, key: &ApiKey, id: &str, commits: &[Value]) -> Vec<Value> {
    let path = id.replace('/', "%2F");
    let driven = locked.send(key, "POST", &format!("/v1/drive/{path}"), "{}").await.expect(200);
    let run = driven["frames"].as_array().unwrap().iter().find_map(|frame| frame.get("run")).unwrap();
    let (worker, mut outcomes) = (driven["worker"].as_str().unwrap(), Vec::new());
    for (n, events) in commits.iter().enumerate() {
        let read = json!(run["head"]["next_index"].as_u64().unwrap() - 1);
        let horizon = outcomes.last().map_or(read, |outcome: &Value| outcome["committed"]["index"].clone());
        let commit = json!({"key": run["head"]["key"], "generation": 0, "epoch": run["head"]["epoch"],
            "n": run["head"]["next_commit"].as_u64().unwrap() + n as u64, "commit_id": format!("{n}"), "horizon": horizon,
            "events": events});
        let frames = json!([{"commit": {"request": n + 1, "commit": commit}}]);
        outcomes.push(reply_to(locked, key, worker, frames).await);
    }
    let release = json!([{"release": {"request": 100, "run": run["head"]["key"], "epoch": run["head"]["epoch"]}}]);
    reply_to(locked, key, worker, release).await;
    outcomes
}

fn memo(scope: &str, key: &str) -> Value {
    json!([{"type": "memo_requested", "call_id": "0", "of_type": "step", "name": "s", "scope": scope, "key": key, "ttl_ms": 60_000}])
}

/// BK3: a memo of the namespace is neither requested nor filled; the run is paused with the reason and nothing is recorded.
#[tokio::test]
async fn a_worker_of_a_bound_key_uses_no_memo_of_the_namespace() {
    let (locked, root, bound) = site().await;
    let outcomes = drive_and_commit(&locked, &bound, "o", &[memo("namespace", "k")]).await;
    let problem = &outcomes[0]["problem"];
    assert_eq!(problem["code"], "shared_key_not_allowed", "{problem}");
    assert!(problem["hint"].as_str().unwrap().contains("`tree`"), "{problem}");
    let events = locked.send(&root, "GET", "/v1/runs/o/events", "").await.expect(200).to_string();
    assert!(events.contains("run_paused") && events.contains("bound to kinds"), "{events}");
    assert!(!events.contains("memo_requested"), "{events}");
    // A worker with a key for all kinds is not restricted.
    let body = json!({"kind": "own", "id": "p"}).to_string();
    locked.send(&root, "POST", "/v1/runs", &body).await.expect(201);
    let outcomes = drive_and_commit(&locked, &root, "p", &[memo("namespace", "k")]).await;
    assert!(outcomes[0].get("committed").is_some(), "{outcomes:?}");
}

/// BK3: the call was made by a worker with a key for all kinds, and owns the memo.
#[tokio::test]
async fn a_worker_of_a_bound_key_fills_no_memo_that_another_worker_requested() {
    let (locked, root, bound) = site().await;
    let outcomes = drive_and_commit(&locked, &root, "o", &[memo("namespace", "k")]).await;
    assert!(outcomes[0].get("committed").is_some(), "{outcomes:?}");
    let granted = async || {
        loop {
            let events = locked.send(&root, "GET", "/v1/runs/o/events", "").await.expect(200);
            if let Some(event) = find(&events, "memo_answered") {
                return event;
            }
        }
    };
    let granted = granted().await;
    let stored = json!([{"type": "memo_stored", "call_id": "0", "cell": granted["cell"], "output": {"json": "forged"}}]);
    let outcomes = drive_and_commit(&locked, &bound, "o", &[stored]).await;
    assert_eq!(outcomes[0]["problem"]["code"], "shared_key_not_allowed", "{outcomes:?}");
}

/// Returns the first event of a type in a document.
fn find(document: &Value, of_type: &str) -> Option<Value> {
    match document {
        Value::Object(map) if map.get("type").is_some_and(|found| found == of_type) => Some(document.clone()),
        Value::Object(map) => map.values().find_map(|value| find(value, of_type)),
        Value::Array(list) => list.iter().find_map(|value| find(value, of_type)),
        _ => None,
    }
}

/// BK3: callers choose ids, so an id alone puts no run into the tree of another one.
#[tokio::test]
async fn a_worker_of_a_bound_key_uses_only_memos_of_a_tree_that_its_run_belongs_to() {
    let (locked, _, bound) = site().await;
    for id in ["r/guest", "o/copy", "nothing/yet"] {
        locked.send(&bound, "POST", "/v1/runs", &json!({"kind": "own", "id": id}).to_string()).await.expect(201);
    }
    for (id, commits, allowed) in [
        ("o", vec![memo("tree", "k")], true),
        ("o/copy", vec![memo("tree", "k")], true),
        ("r/guest", vec![memo("tree", "k")], false),
        ("nothing/yet", vec![memo("tree", "k")], false),
    ] {
        let outcome = drive_and_commit(&locked, &bound, id, &commits).await.pop().unwrap();
        assert_eq!(outcome.get("committed").is_some(), allowed, "{id}: {outcome}");
        assert!(allowed || outcome["problem"]["code"] == "shared_key_not_allowed", "{id}: {outcome}");
    }
}

/// BK1: a copy of an earlier generation would be a run of the kind before the handoff.
#[tokio::test]
async fn a_generation_of_another_kind_is_not_copied() {
    let (locked, root, bound) = site().await;
    start_and_hand_off(&locked, &root, "h", "theirs", "own").await;
    let earlier = json!({"id": "copy", "generation": 0}).to_string();
    for verb in ["fork", "reset"] {
        locked.send(&bound, "POST", &format!("/v1/runs/h/{verb}"), &earlier).await.problem(403, "not_allowed");
    }
    locked.send(&root, "GET", "/v1/runs/copy", "").await.problem(404, "run_not_found");
    locked.send(&bound, "POST", "/v1/runs/h/fork", &json!({"id": "own-copy"}).to_string()).await.expect(201);
    locked.send(&root, "POST", "/v1/runs/h/fork", &earlier).await.expect(201);
    assert_eq!(locked.send(&root, "GET", "/v1/runs/copy", "").await.expect(200)["kind"], "theirs");
}

/// BK1: neither live nor by its failures.
#[tokio::test]
async fn a_generation_of_another_kind_is_not_watched() {
    let (locked, root, bound) = site().await;
    start_and_hand_off(&locked, &root, "h", "theirs", "own").await;
    for path in ["/v1/runs/h/live?generation=0&from=1", "/v1/runs/h/failures?generation=0"] {
        locked.send(&bound, "GET", path, "").await.problem(403, "not_allowed");
    }
    locked.send(&root, "GET", "/v1/runs/h/failures?generation=0", "").await.expect(200);
    locked.send(&bound, "GET", "/v1/runs/h/failures", "").await.expect(200);
}

/// BK1: after a handoff the current kind decides.
#[tokio::test]
async fn a_run_that_was_handed_off_to_another_kind_gets_no_signal() {
    let (locked, root, bound) = site().await;
    start_and_hand_off(&locked, &root, "own:T1", "own", "theirs").await;
    let start = json!({"kind": "own", "id": "own:T1", "signal": {"name": "message"}});
    let ag_ui = json!({"threadId": "T1", "runId": "1", "messages": [{"id": "m", "role": "user", "content": "hi"}],
        "state": {}, "tools": [], "context": [], "forwardedProps": {}});
    for (path, body) in
        [("/v1/runs", start.clone()), ("/v1/agents/own/ag-ui", ag_ui), ("/v1/runs/own%3AT1/messages", json!({"content": "hi"}))]
    {
        locked.send(&bound, "POST", path, &body.to_string()).await.problem(403, "not_allowed");
    }
    let events = locked.send(&root, "GET", "/v1/runs/own%3AT1/events", "").await.body;
    assert!(!events.contains("signal_received"), "{events}");
    locked.send(&root, "POST", "/v1/runs", &start.to_string()).await.expect(200);
}

/// BK1, BK2: an external engine may give its run any kind and queue.
#[tokio::test]
async fn a_bound_key_writes_no_external_run() {
    let (locked, root, bound) = site().await;
    let night = locked.make_bound(queues(&["night"]));
    locked.until(&night, 200).await;
    locked.send(&root, "PUT", "/v1/external/e", &json!({"kind": "mail", "status": "running"}).to_string()).await.expect(201);
    for key in [&bound, &night] {
        for method in ["PUT", "DELETE"] {
            let body = json!({"kind": "mail", "status": "running"}).to_string();
            locked.send(key, method, "/v1/external/e", &body).await.problem(403, "not_allowed");
        }
    }
}

/// BK1: the scope `work` is enough to read the logs of the worker's own kinds and of runs whose tasks it executes, no others.
#[tokio::test]
async fn a_worker_reads_no_log_of_a_kind_that_it_has_no_code_for() {
    let (locked, _, bound) = site().await;
    let mut frames: Value = serde_json::from_str(&hello(&["own"], &["own-task"], &[""])).unwrap();
    let forged = json!([{"task": {"run": {"namespace": "default", "id": "r"}, "generation": 0, "call_id": "0"}, "claim": 0}]);
    frames["frames"][0]["hello"]["tasks"] = forged;
    locked.send(&bound, "POST", "/v1/workers/w/frames", &frames.to_string()).await.expect(200);
    let read = |id: &str| json!([{"read_log": {"request": 1, "run": {"namespace": "default", "id": id}}}]);
    let reply = reply_to(&locked, &bound, "w", read("r")).await;
    assert_eq!(reply["problem"]["code"], "run_not_found", "{reply}");
    let reply = reply_to(&locked, &bound, "w", read("o")).await;
    assert_eq!(reply["log"]["records"][0]["events"][0]["type"], "run_started", "{reply}");
}

/// BK1: to reopen the key of a kind releases the tasks of all kinds that use it.
#[tokio::test]
async fn a_rate_limited_key_is_reopened_only_with_bounds_for_all_of_its_kinds() {
    let (locked, root, bound) = site().await;
    let reopen = async |key: &ApiKey, kind: &str| {
        locked.send(key, "POST", "/v1/rate-limits/reopen", &json!({"kind": kind}).to_string()).await
    };
    let mut worker: Value = serde_json::from_str(&hello(&[], &["own-task", "theirs-task"], &[""])).unwrap();
    let limits = ["own-task", "theirs-task"].map(|kind| json!({"kind": kind, "limit": "shared"}));
    worker["frames"][0]["hello"]["task_limits"] = json!(limits);
    reopen(&bound, "theirs-task").await.problem(403, "not_allowed");
    reopen(&bound, "own-task").await.expect(200);
    locked.send(&root, "POST", "/v1/workers/w/frames", &worker.to_string()).await.expect(200);
    reopen(&bound, "own-task").await.problem(403, "not_allowed");
    reopen(&root, "own-task").await.expect(200);
}

/// S6: to reopen a key releases the tasks of every namespace that uses it.
#[tokio::test]
async fn a_key_for_one_namespace_reopens_no_limit_of_another() {
    let (locked, root) = Locked::open().await;
    let tenant = locked.make("tenant", "default", &Scope::ALL);
    locked.until(&tenant, 200).await;
    let reopen =
        async |key: &ApiKey| locked.send(key, "POST", "/v1/rate-limits/reopen", &json!({"kind": "own-task"}).to_string()).await;
    let worker = |id: &str, kind: &str| {
        let mut frames: Value = serde_json::from_str(&hello(&[], &[kind], &[""])).unwrap();
        frames["frames"][0]["hello"]["worker"] = json!(id);
        frames["frames"][0]["hello"]["task_limits"] = json!([{"kind": kind, "limit": "shared"}]);
        frames.to_string()
    };
    locked.send(&tenant, "POST", "/v1/workers/w/frames", &worker("w", "own-task")).await.expect(200);
    reopen(&tenant).await.expect(200);
    locked.send_in("shop", &root, "POST", "/v1/workers/v/frames", &worker("v", "theirs-task")).await.expect(200);
    reopen(&tenant).await.problem(403, "not_allowed");
    reopen(&root).await.expect(200);
}

fn hello(kinds: &[&str], task_kinds: &[&str], queues: &[&str]) -> String {
    let offer =
        |kind: &&str| json!({"kind": kind, "versions": [""], "current": null, "input_schema": null, "output_schema": null});
    let hello = json!({
        "protocol": 1, "worker": "w", "task_kinds": task_kinds, "queues": queues, "runs_max": 10, "tasks": [], "sdk": "curl",
        "kinds": kinds.iter().map(offer).collect::<Vec<_>>(), "runs": [], "connection": 1,
    });
    json!({"frames": [{"hello": hello}]}).to_string()
}

/// Adds a default queue to the worker's task.
fn with_default_queue(hello: &str, queue: &str) -> String {
    let mut frames: Value = serde_json::from_str(hello).unwrap();
    frames["frames"][0]["hello"]["task_schemas"] = json!([{"kind": "own-task", "defaults": {"queue": queue}}]);
    frames.to_string()
}

#[tokio::test]
async fn a_worker_works_on_the_kinds_and_queues_of_its_key() {
    let (locked, root, bound) = site().await;
    let night = locked.make_bound(queues(&["night"]));
    locked.until(&night, 200).await;
    let cases = [
        (&bound, hello(&["theirs"], &[], &[""])),
        (&bound, hello(&["own"], &["theirs-task"], &[""])),
        (&night, hello(&["own"], &["own-task"], &[""])),
        (&night, hello(&["own"], &["own-task"], &["night", "day"])),
        (&night, with_default_queue(&hello(&["own"], &["own-task"], &["night"]), "day")),
    ];
    for (key, hello) in cases {
        locked.send(key, "POST", "/v1/workers/w/frames", &hello).await.problem(403, "not_allowed");
        let listed = locked.send(&root, "GET", "/v1/kinds", "").await.body;
        assert!(!listed.contains("own") && !listed.contains("theirs"), "nothing is registered: {listed}");
    }
    locked.send(&night, "POST", "/v1/workers/w/frames", &hello(&["any"], &["any"], &["night"])).await.expect(200);
    let body = hello(&["own"], &["own-task"], &["", "day"]).replace("\"w\"", "\"v\"");
    locked.send(&bound, "POST", "/v1/workers/v/frames", &body).await.expect(200);
}

/// The same over gRPC.
#[tokio::test]
async fn verbs_and_workers_over_grpc_have_the_same_bounds() {
    let (locked, _, bound) = site().await;
    let connect = || Onward::connect(locked.url()).key(bound.reveal());
    let worker = connect().workflow("theirs", |_: Ctx, (): ()| async { Ok(()) }).start().await;
    assert_eq!(worker.err().map(|error| error.code()), Some("not_allowed"));
    let onward = connect().start().await.unwrap();
    let code = |error: onward::Error| error.code();
    let not_allowed = Err("not_allowed");
    assert_eq!(onward.start::<(), _>("theirs", &()).await.map(drop).map_err(code), not_allowed);
    let run = onward.run::<()>("r").unwrap();
    assert_eq!(run.signal("s", &()).await.map(drop).map_err(code), not_allowed);
    assert_eq!(run.cancel("enough").await.map(drop).map_err(code), not_allowed);
    assert_eq!(run.terminate("enough").await.map(drop).map_err(code), not_allowed);
    assert_eq!(run.pause("enough").await.map(drop).map_err(code), not_allowed);
    assert_eq!(run.resume().await.map(drop).map_err(code), not_allowed);
    run.view().await.unwrap(); // reading is not restricted
    onward.run::<()>("o").unwrap().signal("s", &()).await.unwrap();
    onward.shutdown().await;
}
