//! Invalid requests: their errors, and that nothing is written.

use serde_json::json;

use crate::client::raw;
use crate::site::Site;

#[tokio::test]
async fn a_wrong_path_method_or_type_is_reported() {
    let site = Site::open().await;
    for path in ["/v1", "/v1/run", "/v1/runs/", "/v1/runs/a/b", "/v2/runs", "//", "/v1/runs/a/events/"] {
        site.get(path).await.problem(404, "route_not_found");
    }
    let reply = site.send("PUT", "/v1/runs", "", "").await;
    assert_eq!(reply.header("allow"), Some("POST,GET,HEAD"));
    reply.problem(405, "method_not_allowed");
    site.send("POST", "/v1/runs/a", "", "").await.problem(405, "method_not_allowed");
    site.send("OPTIONS", "/v1/runs", "", "").await.problem(405, "method_not_allowed");
    site.send("POST", "/healthz", "", "").await.problem(405, "method_not_allowed");
    let body = json!({"kind": "listener"}).to_string();
    site.send("POST", "/v1/runs", "", &body).await.problem(415, "content_type_unsupported");
    let detail =
        site.send("POST", "/v1/runs", "Content-Type: text/plain\r\n", &body).await.problem(415, "content_type_unsupported");
    assert!(detail.contains("text/plain"), "{detail}");
    let utf8 = "Content-Type: application/json; charset=utf-8\r\n";
    site.send("POST", "/v1/runs", utf8, &body).await.expect(201);
    let identity = "Content-Type: application/json\r\nContent-Encoding: identity\r\n";
    site.send("POST", "/v1/runs", identity, &body).await.expect(201);
    // A body that is declared as anything but UTF-8 without an encoding is refused.
    for (header, why) in [("; charset=utf-16\r\n", "utf-16"), ("\r\nContent-Encoding: gzip\r\n", "encoded as gzip")] {
        let headers = format!("Content-Type: application/json{header}");
        let detail = site.send("POST", "/v1/runs", &headers, &body).await.problem(415, "content_type_unsupported");
        assert!(detail.contains(why), "{detail}");
    }
}

#[tokio::test]
async fn an_invalid_body_is_reported_with_its_place_and_writes_nothing() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let before = site.records();
    let refused = async |path: &str, body: &str, why: &str| {
        let detail = site.post(path, body).await.problem(400, "json_invalid");
        assert!(detail.contains(why), "{path} {body}: {detail}");
    };
    let (start, signals) = ("/v1/runs", "/v1/runs/a/signals");
    refused(start, "", "EOF while parsing a value at line 1 column 0").await;
    refused(start, "{\n  \"kind\": \"order\",\n  oops\n}", "line 3 column 3").await;
    refused(start, "[]", "expected an object").await;
    refused(signals, r#"["foo",1,"sid"]"#, "expected an object").await;
    refused(start, "{}", "missing field `kind`").await;
    refused(start, r#"{"kind": 7}"#, "invalid type: integer `7`, expected a string at line 1 column 10").await;
    refused(start, r#"{"kind": "x", "knd": 1}"#, "unknown field `knd`").await;
    refused(start, r#"{"kind": "x", "kind": "y"}"#, "duplicate field `kind`").await;
    refused(start, r#"{"kind": "x"} {}"#, "trailing characters").await;
    refused(start, r#"{"kind": "x", "signal": {"name": "y", "color": 1}}"#, "unknown field `color`").await;
    refused(start, r#"{"kind": "x", "input": {"a": }}"#, "line 1 column 30").await;
    refused(signals, r#"{"name": "x", "name": "y"}"#, "duplicate field `name`").await;
    refused("/v1/runs/a/cancel", r#"{"resaon": "x"}"#, "unknown field `resaon`").await;
    refused("/v1/runs/a/resume", r#"{"reason": "x"}"#, "unknown field `reason`").await;
    refused("/v1/runs/a/updates", r#"{"payload": 1}"#, "missing field `name`").await;
    let names = [
        ("/v1/runs", json!({"kind": ""})),
        ("/v1/runs", json!({"kind": "x".repeat(256)})),
        ("/v1/runs", json!({"kind": "x", "id": "a\u{1b}[31m"})),
        ("/v1/runs", json!({"kind": "x", "version": ""})),
        ("/v1/runs/a/signals", json!({"name": "a\nb"})),
        ("/v1/runs/a/updates", json!({"name": ""})),
    ];
    for (path, body) in names {
        site.post_json(path, body).await.problem(400, "name_invalid");
    }
    let id = json!({"name": "x", "signal_id": ""});
    site.post_json("/v1/runs/a/signals", id).await.problem(400, "id_invalid");
    site.post_json("/v1/runs/a/cancel", json!({"reason": "x".repeat(65 * 1024)})).await.problem(400, "text_too_long");
    let bytes = b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"kind\": \"a\xff\xfe\"}";
    raw(site.address, bytes).await.problem(400, "json_invalid");
    assert_eq!(site.records(), before, "nothing was written");
}

#[tokio::test]
async fn a_payload_may_hold_whatever_json_holds() {
    let site = Site::open().await;
    site.start("listener", "a", json!(null)).await;
    let body = r#"{"name": "x", "payload": {"k": 1, "k": 2, "unknown": [1e400]}}"#;
    site.post("/v1/runs/a/signals", body).await.expect(202);
    let log = site.get("/v1/runs/a/events").await;
    assert!(log.body.contains(r#"{"k": 1, "k": 2, "unknown": [1e400]}"#), "it is kept as it is: {}", log.body);
}

#[tokio::test]
async fn an_unknown_query_parameter_is_refused_by_name() {
    let site = Site::open().await;
    let detail = site.get("/v1/runs?kidn=order").await.problem(400, "query_invalid");
    assert!(detail.contains("`kidn` is unknown; known are `kind`"), "{detail}");
    site.get("/v1/runs?kind=a&kind=b").await.problem(400, "query_invalid");
    site.get("/v1/runs/a?x=1").await.problem(400, "query_invalid");
    site.get("/healthz?x=1").await.problem(400, "query_invalid");
    site.get("/v1/runs/a/events?from=-1").await.problem(400, "query_invalid");
    site.get("/v1/runs/a/result?wait_ms=60001").await.problem(400, "query_invalid");
    site.get("/v1/runs/a/stream?wait_ms=60001").await.problem(400, "query_invalid");
    site.send("DELETE", "/v1/runs/a?raeson=x", "", "").await.problem(400, "query_invalid");
}

#[tokio::test]
async fn what_is_not_there_is_404_for_every_verb() {
    let site = Site::open().await;
    let before = site.records();
    for path in ["/v1/runs/nope", "/v1/runs/nope/events", "/v1/runs/nope/result", "/v1/runs/nope/result?wait_ms=50"] {
        site.get(path).await.problem(404, "run_not_found");
    }
    for verb in ["cancel", "terminate", "pause", "resume"] {
        site.post(&format!("/v1/runs/nope/{verb}"), "").await.problem(404, "run_not_found");
    }
    site.post_json("/v1/runs/nope/signals", json!({"name": "x"})).await.problem(404, "run_not_found");
    site.post_json("/v1/runs/nope/updates", json!({"name": "x"})).await.problem(404, "run_not_found");
    site.get("/v1/runs/%ff").await.problem(400, "name_invalid");
    site.get(&format!("/v1/runs/{}", "x".repeat(256))).await.problem(400, "name_invalid");
    site.get("/v1/runs/a%0Ab").await.problem(400, "name_invalid");
    assert_eq!(site.records(), before, "nothing was written");
}
