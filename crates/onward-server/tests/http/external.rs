//! External runs: compare-and-set on the index, states, attach, and the separation from other runs.

use onward_core::external::EXTERNAL_KIND;
use serde_json::{Value, json};

use crate::client::{Stream, names};
use crate::site::Site;

fn append(expected: u64, events: Value) -> Value {
    json!({"expected_next_index": expected, "events": events})
}

fn state(status: &str) -> Value {
    json!({"kind": "pipeline", "version": "v2", "status": status, "data": {"runId": "x", "n": 1.0}})
}

async fn indexes(site: &Site, path: &str) -> Vec<u64> {
    let page = site.get(path).await.expect(200);
    page["events"].as_array().unwrap().iter().map(|event| event["index"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn events_are_appended_where_the_log_ends_and_nowhere_else() {
    let site = Site::open().await;
    let first = site.post_json("/v1/external/x/events", append(0, json!([{"type": "A"}, {"type": "B"}]))).await.expect(201);
    assert_eq!((&first["run"], &first["next_index"], &first["created"]), (&json!("x"), &json!(2), &json!(true)));
    for expected in [0, 1, 3, u64::MAX] {
        let reply = site.post_json("/v1/external/x/events", append(expected, json!([{"type": "C"}]))).await;
        assert_eq!(reply.json()["next_index"], json!(2));
        reply.problem(409, "log_conflict");
    }
    let second = site.post_json("/v1/external/x/events", append(2, json!(["c"]))).await.expect(200);
    assert_eq!((&second["next_index"], &second["created"], &second["repeated"]), (&json!(3), &json!(false), &json!(false)));
    let page = site.get("/v1/external/x/events").await.expect(200);
    let events: Vec<&Value> = page["events"].as_array().unwrap().iter().map(|event| &event["event"]).collect();
    assert_eq!(events, [&json!({"type": "A"}), &json!({"type": "B"}), &json!("c")]);
    assert_eq!((&page["next_index"], &page["next"]), (&json!(3), &Value::Null));
    // An append to a log that does not exist fails, and creates none.
    let reply = site.post_json("/v1/external/y/events", append(1, json!([1]))).await;
    assert_eq!(reply.json()["next_index"], json!(0));
    reply.problem(409, "log_conflict");
    site.get("/v1/external/y").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn a_repeated_append_gets_its_first_answer() {
    let site = Site::open().await;
    let mut body = append(0, json!([1]));
    body["append_id"] = json!("a-1");
    let first = site.post_json("/v1/external/x/events", body.clone()).await.expect(201);
    site.post_json("/v1/external/x/events", append(1, json!([2, 3]))).await.expect(200);
    let again = site.post_json("/v1/external/x/events", body).await.expect(200);
    assert_eq!((&again["next_index"], &again["at"], &again["repeated"]), (&first["next_index"], &first["at"], &json!(true)));
    assert_eq!(indexes(&site, "/v1/external/x/events").await, [0, 1, 2]);
}

#[tokio::test]
async fn a_state_is_stored_unchanged_and_shown_in_lists() {
    let site = Site::open().await;
    site.put_json("/v1/external/x", state("running")).await.expect(201);
    site.put_json("/v1/external/x", state("waiting")).await.expect(200);
    let run = site.get("/v1/external/x").await;
    assert!(run.body.contains("\"n\":1.0"), "{}", run.body);
    let run = run.expect(200);
    assert_eq!((&run["status"], &run["kind"], &run["version"]), (&json!("waiting"), &json!("pipeline"), &json!("v2")));
    assert_eq!((&run["next_index"], &run["data"]["runId"]), (&json!(0), &json!("x")));
    let listed = site.get("/v1/runs?status=waiting&kind=pipeline").await.expect(200);
    assert_eq!((&listed["runs"][0]["id"], &listed["runs"][0]["external"]), (&json!("x"), &json!(true)));
    // Together with its events in one write, and only if the log ends at the expected index.
    let mut body = append(0, json!([{"type": "RUN_FINISHED"}]));
    body["state"] = state("completed");
    site.post_json("/v1/external/x/events", body.clone()).await.expect(200);
    site.post_json("/v1/external/x/events", body).await.problem(409, "log_conflict");
    let mut late = state("running");
    late["expected_next_index"] = json!(0);
    site.put_json("/v1/external/x", late).await.problem(409, "log_conflict");
    let view = site.show("x").await;
    assert_eq!((&view["status"], &view["event_count"]), (&json!("completed"), &json!(4)));
}

#[tokio::test]
async fn a_run_that_was_only_appended_to_has_no_state() {
    let site = Site::open().await;
    site.post_json("/v1/external/x/events", append(0, json!([1]))).await.expect(201);
    let run = site.get("/v1/external/x").await.expect(200);
    assert_eq!((&run["data"], &run["kind"], &run["status"]), (&Value::Null, &json!(EXTERNAL_KIND), &json!("running")));
}

#[tokio::test]
async fn a_long_log_is_read_in_pages_from_any_index() {
    let site = Site::open().await;
    for index in (0..150).step_by(3) {
        site.post_json("/v1/external/x/events", append(index, json!([index, index + 1, index + 2]))).await;
        site.put_json("/v1/external/x", state("running")).await.expect(200);
    }
    assert_eq!(indexes(&site, "/v1/external/x/events?from=100&limit=7").await, (100..107).collect::<Vec<u64>>());
    assert_eq!(indexes(&site, "/v1/external/x/events?from=149").await, [149]);
    assert_eq!(indexes(&site, "/v1/external/x/events?from=150").await, [] as [u64; 0]);
    let (mut from, mut all) = (0, Vec::new());
    loop {
        let page = site.get(&format!("/v1/external/x/events?from={from}&limit=40")).await.expect(200);
        let events = page["events"].as_array().unwrap();
        all.extend(events.iter().map(|event| event["event"].as_u64().unwrap()));
        assert_eq!(page["next_index"], json!(150));
        let Some(next) = page["next"].as_u64() else { break };
        from = next;
    }
    assert_eq!(all, (0..150).collect::<Vec<u64>>());
}

#[tokio::test]
async fn a_reader_attaches_at_any_index_and_receives_what_follows_the_end() {
    let site = Site::open().await;
    site.post_json("/v1/external/x/events", append(0, json!([{"n": 0}, {"n": 1}]))).await.expect(201);
    let mut stream = Stream::open(site.address, "/v1/external/x/events?from=1", "").await;
    let frame = stream.next().await.unwrap();
    assert_eq!((frame.id.as_deref(), &frame.data.as_ref().unwrap()["event"]), (Some("0:1"), &json!({"n": 1})));
    // A state is not an event of the engine's log.
    site.put_json("/v1/external/x", state("completed")).await.expect(200);
    site.post_json("/v1/external/x/events", append(2, json!([{"n": 2}]))).await.expect(200);
    let frame = stream.next().await.unwrap();
    assert_eq!((frame.id.as_deref(), &frame.data.unwrap()["index"]), (Some("0:2"), &json!(2)));
    let mut again = Stream::open(site.address, "/v1/external/x/events", "Last-Event-ID: 0:1\r\n").await;
    assert_eq!(again.next().await.unwrap().id.as_deref(), Some("0:2"));
}

#[tokio::test]
async fn a_reader_of_the_runs_own_log_ends_when_its_engine_reports_the_end() {
    let site = Site::open().await;
    site.post_json("/v1/external/x/events", append(0, json!([{"n": 0}]))).await.expect(201);
    let mut stream = Stream::open(site.address, "/v1/runs/x/events", "").await;
    assert_eq!(stream.next().await.unwrap().name(), "run_started");
    assert_eq!(stream.next().await.unwrap().name(), "external_appended");
    site.put_json("/v1/external/x", state("completed")).await.expect(200);
    let rest = stream.rest().await;
    assert_eq!(names(&rest), ["external_appended", "end"]);
    assert_eq!(rest[1].data.as_ref().unwrap()["status"], json!("completed"));
    let mut late = Stream::open(site.address, "/v1/runs/x/events", "Last-Event-ID: 0:2\r\n").await;
    assert_eq!(names(&late.rest().await), ["end"]);
}

#[tokio::test]
async fn every_other_verb_on_an_external_run_is_refused_and_writes_nothing() {
    let site = Site::open().await;
    site.put_json("/v1/external/x", json!({"kind": "listener", "status": "waiting"})).await.expect(201);
    let before = site.records();
    site.post_json("/v1/runs/x/signals", json!({"name": "ping"})).await.problem(409, "run_external");
    site.post_json("/v1/runs/x/updates", json!({"name": "ping"})).await.problem(409, "run_external");
    for verb in ["cancel", "terminate", "pause", "resume"] {
        site.post(&format!("/v1/runs/x/{verb}"), "").await.problem(409, "run_external");
    }
    site.get("/v1/runs/x/result").await.problem(409, "run_external");
    site.send("DELETE", "/v1/runs/x", "", "").await.problem(409, "run_external");
    let bulk = json!({"filter": {"kind": "listener", "status": ["waiting"]}});
    let done = site.post_json("/v1/bulk/delete", bulk).await.expect(200);
    assert_eq!(done["refused"], json!([{"run": "x", "code": "run_external"}]));
    site.post_json("/v1/runs", json!({"kind": "listener", "id": "x"})).await.problem(409, "run_exists");
    assert_eq!(site.records(), before);
}

#[tokio::test]
async fn an_ordinary_run_is_no_outside_engines() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let before = site.records();
    site.post_json("/v1/external/a/events", append(0, json!([1]))).await.problem(409, "run_not_external");
    site.put_json("/v1/external/a", state("completed")).await.problem(409, "run_not_external");
    site.get("/v1/external/a").await.problem(409, "run_not_external");
    site.get("/v1/external/a/events").await.problem(409, "run_not_external");
    site.send("GET", "/v1/external/a/events", "Accept: text/event-stream\r\n", "").await.problem(409, "run_not_external");
    site.send("DELETE", "/v1/external/a", "", "").await.problem(409, "run_not_external");
    assert_eq!(site.records(), before);
}

#[tokio::test]
async fn an_external_run_is_deleted_open_or_closed() {
    let site = Site::open().await;
    for status in ["waiting", "failed"] {
        site.put_json("/v1/external/x", state(status)).await.expect(201);
        site.send("DELETE", "/v1/external/x?reason=aborted", "", "").await.expect(204);
        site.get("/v1/external/x").await.problem(404, "run_not_found");
    }
    site.send("DELETE", "/v1/external/x", "", "").await.problem(404, "run_not_found");
    // A closed one is deleted like any other run; an open one only by its engine (above).
    site.put_json("/v1/external/x", state("completed")).await.expect(201);
    site.send("DELETE", "/v1/runs/x", "", "").await.expect(204);
}

#[tokio::test]
async fn an_invalid_request_is_refused_and_writes_nothing() {
    let site = Site::open().await;
    let before = site.records();
    let refused = async |body: Value, why: &str| {
        let detail = site.post_json("/v1/external/x/events", body).await.problem(400, "json_invalid");
        assert!(detail.contains(why), "{detail}");
    };
    refused(json!({"events": [1]}), "missing field `expected_next_index`").await;
    refused(json!({"expected_next_index": 0}), "missing field `events`").await;
    refused(append(0, json!([])), "`events` is empty").await;
    refused(json!({"expected_next_index": -1, "events": [1]}), "expected u64").await;
    refused(json!({"expected_next_index": 0, "events": [1], "color": 1}), "unknown field `color`").await;
    for status in ["pending", "paused", "terminated", "done"] {
        let detail = site.put_json("/v1/external/x", state(status)).await.problem(400, "json_invalid");
        assert!(detail.contains("unknown variant"), "{detail}");
    }
    site.put_json("/v1/external/x", json!({"kind": "", "status": "running"})).await.problem(400, "name_invalid");
    let mut body = append(0, json!([1]));
    body["append_id"] = json!("");
    site.post_json("/v1/external/x/events", body).await.problem(400, "id_invalid");
    let large = append(0, json!(["x".repeat(2 * 1024 * 1024)]));
    let reply = site.post_json("/v1/external/x/events", large).await;
    assert_eq!(reply.status, 413, "{}", reply.body);
    site.get("/v1/external/x/events?limit=1&until=end").await.problem(400, "query_invalid");
    assert_eq!(site.records(), before);
    site.get("/v1/external/x").await.problem(404, "run_not_found");
}

#[tokio::test]
async fn a_namespace_has_external_runs_of_its_own() {
    let site = Site::open().await;
    site.post_json("/v1/external/x/events", append(0, json!([1]))).await.expect(201);
    let other = "Onward-Namespace: other\r\n";
    site.send("GET", "/v1/external/x", other, "").await.problem(404, "run_not_found");
    let body = append(0, json!([2])).to_string();
    let headers = format!("{other}Content-Type: application/json\r\n");
    site.send("POST", "/v1/external/x/events", &headers, &body).await.expect(201);
    let page = site.send("GET", "/v1/external/x/events", other, "").await.expect(200);
    assert_eq!(page["events"][0]["event"], json!(2));
}
