//! Timelines, moments, counts and activity over HTTP and gRPC, and the keys that may read them.

use std::collections::BTreeSet;

use onward_core::api::{CountQuery, MomentRequest, TimelineRequest};
use onward_core::{Index, Name, Namespace, RunId, RunKey};
use onward_server::{Bounds, Scope};
use serde_json::{Value, json};

use crate::keys::Locked;
use crate::site::Site;

async fn ended_order(site: &Site) {
    site.start("order", "o", json!("teapot")).await;
    site.post_json("/v1/runs/o/signals", json!({"name": "payment", "payload": 7})).await.expect(202);
    let approvals = loop {
        let approvals = site.get("/v1/approvals").await.expect(200);
        if approvals["approvals"].as_array().is_some_and(|found| !found.is_empty()) {
            break approvals;
        }
        tokio::task::yield_now().await;
    };
    let path = format!("/v1/approvals/{}", approvals["approvals"][0]["id"].as_str().unwrap());
    site.post_json(&path, json!({"approved": true, "decided_by": "ada", "decision_id": "d"})).await.expect(200);
    site.until_status("o", "completed").await;
}

#[tokio::test]
async fn a_waterfall_can_be_drawn_from_one_request() {
    let site = Site::open().await;
    ended_order(&site).await;
    let timeline = site.get("/v1/runs/o/timeline").await.expect(200);
    let lines: Vec<Value> = timeline["calls"].as_array().unwrap().clone();
    let shown: Vec<(&str, &str, &str)> = lines
        .iter()
        .map(|line| (line["type"].as_str().unwrap(), line["name"].as_str().unwrap(), line["status"].as_str().unwrap()))
        .collect();
    assert_eq!(shown, [("step", "charge", "completed"), ("signal", "payment", "completed"), ("approval", "ship", "completed")]);
    for line in &lines {
        assert!(line["started_at"].as_str() <= line["ended_at"].as_str() && line["ended_at"].is_string(), "{line}");
    }
    let fields = ["run", "kind", "generation", "generations", "status", "next"].map(|field| timeline[field].clone());
    assert_eq!(fields, [json!("o"), json!("order"), json!(0), json!(1), json!("completed"), json!(null)]);
    assert!(timeline["started_at"].as_str() <= timeline["now"].as_str(), "{timeline}");
    let page = site.get("/v1/runs/o/timeline?limit=2").await.expect(200);
    let rest = site.get(&format!("/v1/runs/o/timeline?limit=2&cursor={}", page["next"].as_str().unwrap())).await.expect(200);
    assert_eq!((page["calls"].as_array().unwrap(), &rest["calls"][0]), (&lines[..2].to_vec(), &lines[2]));
    site.get("/v1/runs/o/timeline?cursor=9").await.problem(400, "cursor_invalid");
    site.get("/v1/runs/o/timeline?generation=1").await.problem(404, "run_not_found");
    site.get("/v1/runs/nothing/timeline").await.problem(404, "run_not_found");
    site.get("/v1/runs/o/timeline?limit=5001").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn each_generation_has_its_timeline_and_its_moments() {
    let site = Site::open().await;
    site.start("chapters", "c", json!(0)).await;
    site.post_json("/v1/runs/c/signals", json!({"name": "next"})).await.expect(202);
    loop {
        if site.show("c").await["generation"] == 1 {
            break;
        }
        tokio::task::yield_now().await;
    }
    let first = site.get("/v1/runs/c/timeline?generation=0").await.expect(200);
    assert_eq!((&first["generation"], &first["generations"], &first["status"]), (&json!(0), &json!(2), &json!("completed")));
    assert_eq!(site.get("/v1/runs/c/timeline").await.expect(200)["generation"], 1);
    let at = site.get("/v1/runs/c/at/1?generation=0").await.expect(200);
    assert_eq!((&at["generation"], &at["state"]["chapter"]["json"]), (&json!(0), &json!(0)));
}

#[tokio::test]
async fn a_run_is_shown_as_of_each_of_its_events() {
    let site = Site::open().await;
    ended_order(&site).await;
    let events = site.get("/v1/runs/o/events").await.expect(200)["events"].as_array().unwrap().clone();
    for (index, event) in events.iter().enumerate() {
        let at = site.get(&format!("/v1/runs/o/at/{index}")).await.expect(200);
        assert_eq!((&at["event"], &at["index"], &at["run"]), (event, &json!(index), &json!("o")));
    }
    let last = site.get(&format!("/v1/runs/o/at/{}", events.len() - 1)).await.expect(200);
    let view = site.show("o").await;
    for field in ["status", "state", "awaiting", "counts", "pause", "cancel_reason", "outcome", "attributes"] {
        assert_eq!(last[field], view[field], "MO2: {field}");
    }
    let waits = site.get("/v1/runs/o/at/3").await.expect(200);
    assert_eq!((&waits["awaiting"][0]["name"], &waits["open_calls"]), (&json!("payment"), &json!(["2"])));
    assert_eq!((&waits["state"]["stage"]["json"], &waits["outcome"]), (&json!("charged"), &json!(null)));
    site.get(&format!("/v1/runs/o/at/{}", events.len())).await.problem(400, "index_out_of_range");
    site.get("/v1/runs/o/at/0?generation=3").await.problem(404, "run_not_found");
    site.get("/v1/runs/nothing/at/0").await.problem(404, "run_not_found");
    site.get("/v1/runs/o/at/x").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn a_moment_has_the_leaf_of_the_conversation() {
    let site = Site::open().await;
    site.start("chat", "a", json!("be kind")).await;
    let entries = site.get("/v1/runs/a/entries").await.expect(200);
    let events = site.show("a").await["event_count"].as_u64().unwrap();
    let last = site.get(&format!("/v1/runs/a/at/{}", events - 1)).await.expect(200);
    assert_eq!((&last["leaf"], &last["entries"]), (&entries["entries"][0]["id"], &json!(1)));
}

#[tokio::test]
async fn a_run_says_what_it_is_doing() {
    let site = Site::open().await;
    site.start("order", "o", json!("teapot")).await;
    let view = site.show("o").await;
    let since = view["doing_since"].as_str().unwrap();
    assert_eq!(view["doing"], format!("Waits for the signal payment since {since}"));
    site.post_json("/v1/runs", json!({"kind": "of no worker", "id": "p"})).await.expect(201);
    let doing = site.show("p").await["doing"].as_str().unwrap().to_owned();
    assert!(doing.starts_with("Waits for a worker with the kind of no worker since ") && doing.ends_with("; none is connected"));
}

#[tokio::test]
async fn runs_are_counted_by_status_and_over_time() {
    let site = Site::open().await;
    for id in ["a", "b"] {
        site.start("listener", id, json!(null)).await;
    }
    site.post_json("/v1/runs", json!({"kind": "other", "id": "c", "attributes": {"city": "Ulm"}})).await.expect(201);
    site.post_json("/v1/runs/b/terminate", json!({})).await.expect(202);
    let counts = async |query: &str| site.get(&format!("/v1/counts{query}")).await.expect(200);
    let all = counts("").await;
    let expected = json!({"pending": 1, "running": 0, "waiting": 1, "paused": 0, "completed": 0, "failed": 0, "canceled": 0,
        "terminated": 1});
    assert_eq!((&all["counts"], &all["scanned"], &all["complete"]), (&expected, &json!(3), &json!(true)));
    assert_eq!(counts("?kind=listener").await["scanned"], 2);
    assert_eq!(counts("?attr.city=Ulm").await["counts"]["pending"], 1);
    assert_eq!(counts("?created_from=2100-01-01T00:00:00Z").await["scanned"], 0);

    let activity = async |query: &str| site.get(&format!("/v1/activity{query}")).await.expect(200);
    let day = activity("").await;
    let sum = |field: &str| day["buckets"].as_array().unwrap().iter().map(|bucket| bucket[field].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("started"), sum("canceled"), sum("completed"), sum("failed")), (3, 1, 0, 0));
    assert_eq!(
        (day["buckets"].as_array().unwrap().len(), &day["bucket_ms"], &day["complete"]),
        (60, &json!(1_440_000), &json!(true))
    );
    let later = activity("?from=2100-01-01T00:00:00Z&until=2100-01-01T01:00:00Z&buckets=4").await;
    let at: Vec<&str> = later["buckets"].as_array().unwrap().iter().map(|bucket| bucket["at"].as_str().unwrap()).collect();
    assert_eq!((at.len(), at[1], &later["buckets"][0]["canceled"]), (4, "2100-01-01T00:15:00.000Z", &json!(0)));
    site.get("/v1/activity?buckets=501").await.problem(400, "query_invalid");
    site.get("/v1/activity?buckets=0").await.problem(400, "query_invalid");
    site.get("/v1/activity?from=2100-01-01T00:00:00Z").await.problem(400, "message_invalid");
}

/// S6 and S7 for `ReadTimeline`, `ReadAt`, `CountRuns` and `ReadActivity`.
#[tokio::test]
async fn only_keys_of_the_namespace_that_may_read_see_timelines_and_counts() {
    let (locked, root) = Locked::open().await;
    let (reader, starter) = (locked.make("r", "default", &[Scope::Read]), locked.make("s", "default", &[Scope::Start]));
    let other = locked.make("o", "b", &Scope::ALL);
    locked.until(&reader, 200).await;
    locked.until(&starter, 403).await;
    locked.send(&root, "POST", "/v1/runs", &json!({"kind": "k", "id": "r"}).to_string()).await.expect(201);
    for path in ["/v1/runs/r/timeline", "/v1/runs/r/at/0", "/v1/counts", "/v1/activity"] {
        locked.send(&reader, "GET", path, "").await.expect(200);
        locked.send(&starter, "GET", path, "").await.problem(403, "not_allowed");
        let (status, code) = if path.contains("runs") { (404, "run_not_found") } else { (403, "not_allowed") };
        locked.send(&other, "GET", path, "").await.problem(status, code);
    }
    let namespace = Namespace::new("b").unwrap();
    let client = onward::connect_client(&locked.url(), &namespace, Some(other.reveal())).unwrap();
    let run = RunKey::new(Namespace::default(), RunId::new("r").unwrap());
    let timeline = TimelineRequest { run: run.clone(), generation: None, limit: 0, cursor: None };
    assert_eq!(client.read_timeline(timeline).await.unwrap_err().code(), "run_not_found", "a run of another namespace");
    let moment = MomentRequest { run, generation: None, index: Index(0) };
    assert_eq!(client.read_at(moment).await.unwrap_err().code(), "run_not_found");
    assert_eq!(client.count_runs(CountQuery::default()).await.unwrap().scanned, 0, "of its own namespace");
}

/// BK1: a key that is bound to kinds counts only runs of these.
#[tokio::test]
async fn a_key_that_is_bound_to_kinds_counts_no_others() {
    let (locked, root) = Locked::open().await;
    let kinds = ["own", "own-task"].map(|kind| Name::new(kind).unwrap());
    let bound = locked.make_bound(Bounds { kinds: Some(BTreeSet::from(kinds)), ..Bounds::default() });
    locked.until(&bound, 200).await;
    for (route, kind, id) in [("runs", "own", "o"), ("runs", "theirs", "t"), ("tasks", "own-task", "w"), ("tasks", "task", "v")] {
        locked.send(&root, "POST", &format!("/v1/{route}"), &json!({"kind": kind, "id": id}).to_string()).await.expect(201);
    }
    let started = |activity: &Value| {
        activity["buckets"].as_array().unwrap().iter().map(|bucket| bucket["started"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(locked.send(&root, "GET", "/v1/counts", "").await.expect(200)["scanned"], 4);
    assert_eq!(locked.send(&bound, "GET", "/v1/counts", "").await.expect(200)["scanned"], 2);
    assert_eq!(locked.send(&bound, "GET", "/v1/counts?kind=own", "").await.expect(200)["scanned"], 1);
    assert_eq!(started(&locked.send(&bound, "GET", "/v1/activity", "").await.expect(200)), 2);
    for path in ["/v1/counts?kind=theirs", "/v1/activity?kind=theirs", "/v1/counts?kind=task%3Atask"] {
        locked.send(&bound, "GET", path, "").await.problem(403, "not_allowed");
    }
    let client = onward::connect_client(&locked.url(), &Namespace::default(), Some(bound.reveal())).unwrap();
    assert_eq!(client.count_runs(CountQuery::default()).await.unwrap().scanned, 2);
}
