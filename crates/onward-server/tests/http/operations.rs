//! Health, metrics, the OpenAPI document, scopes, traces.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper_util::rt::{TokioExecutor, TokioIo};
use onward_server::auth::{AuthFuture, AuthRequest};
use onward_server::trace::{Format, Level, Trace};
use onward_server::{AuthRefusal, Authenticate, Caller, Options, ROUTES, Scope};
use serde_json::{Value, json};

use crate::client::raw;
use crate::site::{DEADLINE, Site, limits};

#[tokio::test]
async fn a_server_reports_that_it_lives_and_is_ready() {
    let site = Site::open().await;
    assert_eq!(site.get("/healthz").await.body, "ok\n");
    assert_eq!(site.get("/readyz").await.body, "ready\n");
    assert!(site.get("/").await.body.starts_with("onward "));
    assert_eq!(site.send("HEAD", "/healthz", "", "").await.status, 200);
}

#[tokio::test]
async fn a_server_alone_on_its_store_lists_itself() {
    let site = Site::open().await;
    let servers = site.get("/v1/servers").await.expect(200);
    let [one] = servers["servers"].as_array().unwrap().as_slice() else { panic!("{servers}") };
    assert_eq!((&one["is_this"], &one["version"]), (&json!(true), &json!(env!("CARGO_PKG_VERSION"))));
    assert!(one["id"].as_str().unwrap().starts_with("server-"), "{one}");
}

#[tokio::test]
async fn what_happens_is_counted() {
    let site = Site::open().await;
    let page = site.get("/metrics").await;
    assert!(page.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"));
    for line in [
        "onward_runs_started_total 0",
        "onward_agent_entry_duplicates_prevented_total 0",
        "onward_agent_llm_empty_responses_total 0",
        "onward_agent_resume_conflicts_total 0",
        "onward_signals_dropped_total 0",
        "onward_replays_total{outcome=\"ok\"} 0",
        "onward_replays_total{outcome=\"diverged\"} 0",
    ] {
        assert!(page.body.lines().any(|found| found == line), "{line} is not in\n{}", page.body);
    }
    site.start("order", "a", json!("x")).await;
    site.signal("a", "payment", json!(1)).await;
    site.get("/v1/runs/b").await;
    site.get("/some/where").await;
    site.put_json("/v1/external/e", json!({"kind": "order", "status": "running"})).await;
    // Listeners of the store are called after the response.
    let counts = |page: &String| {
        page.contains("event=\"signal_received\"") && page.contains("onward_inputs_total{event=\"run_started\"} 2")
    };
    let mut page = site.get("/metrics").await.body;
    for _ in 0..1_000 {
        if counts(&page) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        page = site.get("/metrics").await.body;
    }
    for line in [
        "onward_runs_started_total 2", // including the external one
        "onward_inputs_total{event=\"run_started\"} 2",
        "onward_inputs_total{event=\"signal_received\"} 1",
        "onward_http_requests_total{method=\"POST\",route=\"/v1/runs\",status=\"201\"} 1",
        "onward_http_requests_total{method=\"GET\",route=\"/v1/runs/{id}\",status=\"404\"} 1",
        "onward_http_requests_total{method=\"GET\",route=\"none\",status=\"404\"} 1",
        "onward_http_requests_total{method=\"PUT\",route=\"/v1/external/{id}\",status=\"201\"} 1",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    assert!(!page.contains("onward_commits_total 0") && !page.contains("onward_store_batches_total 0"), "{page}");
}

/// Checked with an independent parser: every sample belongs to a declared metric, and every value is a number.
#[tokio::test]
async fn the_metrics_are_prometheus_text() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    // The parser ends labels at the first brace, even inside of quotes.
    let page = site.get("/metrics").await.body.replace("{id}", "<id>");
    let lines = page.lines().map(|line| Ok(line.to_owned()));
    let scrape = prometheus_parse::Scrape::parse(lines).unwrap();
    // The parser makes one sample of the buckets of a histogram.
    let is_later_bucket = |line: &&str| line.contains("_bucket{") && !line.contains("le=\"+Inf\"");
    let values = page.lines().filter(|line| !line.starts_with('#') && !is_later_bucket(line)).count();
    assert_eq!(scrape.samples.len(), values, "some lines are not understood:\n{page}");
    let mut names = Vec::new();
    for sample in &scrape.samples {
        let introduced = |what: &str| page.lines().any(|line| line.starts_with(&format!("# {what} {} ", sample.metric)));
        use prometheus_parse::Value::{Counter, Gauge, Histogram, Untyped};
        match &sample.value {
            // Sum and count of a histogram, whose buckets are introduced.
            Untyped(value) => assert!(value.is_finite() && sample.metric.starts_with("onward_task_"), "{sample:?}"),
            Histogram(buckets) => {
                assert!(introduced("HELP") && introduced("TYPE"), "{sample:?}");
                assert!(buckets.is_sorted_by(|a, b| a.less_than < b.less_than && a.count <= b.count), "{sample:?}");
            }
            Counter(value) | Gauge(value) => {
                assert!(introduced("HELP") && introduced("TYPE"), "{sample:?}");
                assert!(value.is_finite() && *value >= 0.0, "{sample:?}");
            }
            other => panic!("{other:?}"),
        }
        names.push(format!("{}{}", sample.metric, sample.labels));
    }
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(name.starts_with("onward_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
    }
    let (all, before) = (names.len(), names.clone());
    names.sort();
    names.dedup();
    assert_eq!(names.len(), all, "there are duplicate lines: {before:?}");
    let find = |name: &str| scrape.samples.iter().find(|sample| sample.metric == name).unwrap();
    assert!(matches!(find("onward_runs_started_total").value, prometheus_parse::Value::Counter(1.0)));
    for name in [
        "onward_agent_entry_duplicates_prevented_total",
        "onward_agent_llm_empty_responses_total",
        "onward_agent_resume_conflicts_total",
    ] {
        assert!(matches!(find(name).value, prometheus_parse::Value::Counter(0.0)), "{name}");
    }
}

#[tokio::test]
async fn an_entry_that_was_there_already_is_counted() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    for _ in 0..3 {
        let entry = json!({"role": "user", "content": "hello", "idempotency_key": "one"});
        site.post_json("/v1/runs/a/entries", entry).await;
    }
    let page = site.get("/metrics").await.body;
    assert!(page.lines().any(|line| line == "onward_agent_entry_duplicates_prevented_total 2"), "{page}");
}

/// Gauges of what is open are counted by the store when the page is read; histograms when tasks end.
#[tokio::test]
async fn open_runs_queues_and_task_times_are_measured() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    site.post_json("/v1/runs", json!({"kind": "of nobody", "id": "b"})).await.expect(201);
    site.post_json("/v1/tasks", json!({"kind": "mail", "id": "t", "queue": "night"})).await.expect(201);
    let page = site.get("/metrics").await.body;
    for line in [
        "onward_runs_open{kind=\"order\",status=\"waiting\"} 1",
        "onward_runs_open{kind=\"of nobody\",status=\"pending\"} 1",
        "onward_queue_tasks{queue=\"night\",kind=\"mail\",state=\"queued\"} 1",
        "onward_queue_tasks{queue=\"night\",kind=\"mail\",state=\"running\"} 0",
        "onward_task_attempts_count 0",
        "onward_resume_duplicates_prevented_total 0",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} is not in\n{page}");
    }
    assert!(page.contains("onward_queue_oldest_seconds{queue=\"night\",kind=\"mail\"} "), "{page}");
    // The count is used for some seconds.
    site.post_json("/v1/runs", json!({"kind": "of nobody", "id": "c"})).await.expect(201);
    let again = site.get("/metrics").await.body;
    assert!(again.contains("onward_runs_open{kind=\"of nobody\",status=\"pending\"} 1"), "{again}");
}

/// S30: names that clients choose are not labels.
#[tokio::test]
async fn clients_cannot_make_the_metrics_grow() {
    let site = Site::open().await;
    site.get("/metrics").await;
    site.get("/x/0").await;
    site.send("BREW0", "/v1/runs", "", "").await;
    let before = site.get("/metrics").await.body.lines().count();
    for number in 1..20 {
        site.get(&format!("/x/{number}")).await.problem(404, "route_not_found");
        site.send(&format!("BREW{number}"), "/v1/runs", "", "").await.problem(405, "method_not_allowed");
    }
    assert_eq!(site.get("/metrics").await.body.lines().count(), before);
}

#[tokio::test]
async fn the_document_and_the_router_know_the_same_routes() {
    let site = Site::open().await;
    let document = site.get("/openapi.json").await.expect(200);
    let mut documented = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            documented.push((method.to_uppercase(), path.clone()));
            // An existing route responds with neither "no such route" nor "method not allowed".
            let id = if path.starts_with("/console/") { "app.js" } else { "a" };
            let reply = site.send(&method.to_uppercase(), &path.replace("{id}", id).replace("{index}", "0"), "", "").await;
            assert!(!reply.body.contains(":\"route_not_found\"") && reply.status != 405, "{method} {path}: {}", reply.body);
            assert!(operation["summary"].is_string());
        }
        let reply = site.send("PATCH", &path.replace("{id}", "a").replace("{index}", "0"), "", "").await;
        assert_eq!(reply.status, 405, "{path}");
        let allowed: Vec<&str> = reply.header("allow").unwrap().split(',').filter(|method| *method != "HEAD").collect();
        assert_eq!(allowed.len(), methods.as_object().unwrap().len(), "{path} takes {allowed:?}");
    }
    let mut routed: Vec<(String, String)> =
        ROUTES.iter().map(|route| (route.method.to_string(), route.path.to_owned())).collect();
    documented.sort();
    routed.sort();
    assert_eq!(documented, routed);
}

/// Returns the fields of a schema, including the ones of referenced schemas.
fn fields(document: &Value, schema: &Value) -> Vec<String> {
    if let Some(reference) = schema["$ref"].as_str() {
        return fields(document, &document["components"]["schemas"][reference.rsplit('/').next().unwrap()]);
    }
    let mut names: Vec<String> = schema["properties"].as_object().into_iter().flat_map(|object| object.keys().cloned()).collect();
    for part in schema["allOf"].as_array().into_iter().flatten() {
        names.extend(fields(document, part));
    }
    names.sort();
    names
}

#[tokio::test]
async fn responses_have_the_documented_fields() {
    let site = Site::open().await;
    let document = site.get("/openapi.json").await.expect(200);
    let check = |schema: &str, value: &Value| {
        let mut found: Vec<String> = value.as_object().unwrap_or_else(|| panic!("{schema}: {value}")).keys().cloned().collect();
        found.sort();
        let mut documented = fields(&document, &document["components"]["schemas"][schema]);
        // A complete list does not have this field.
        documented.retain(|field| field != "missing_databases");
        assert_eq!(found, documented, "{schema}");
    };
    check("StartedRun", &site.post_json("/v1/runs", json!({"kind": "order", "id": "a", "input": "x"})).await.expect(201));
    site.until_status("a", "waiting").await;
    let view = site.show("a").await;
    check("RunView", &view);
    check("Awaited", &view["awaiting"][0]);
    assert_eq!(view["blocked_on"], json!([]));
    site.post_json("/v1/tasks", json!({"kind": "of nobody", "id": "t"})).await.expect(201);
    let blocker = site.show("t").await["blocked_on"][0].take();
    check("Blocker", &blocker);
    let task = site.get("/v1/tasks/t").await.expect(200);
    check("TaskView", &task);
    assert_eq!(task["blocked_on"], json!([blocker]));
    assert_eq!((&blocker["why"], &blocker["hint"]), (&json!("no_worker"), &json!("start a worker that has `of nobody`")));
    check("Appended", &site.signal("a", "payment", json!(1)).await);
    let page = site.get("/v1/runs").await.expect(200);
    check("RunPage", &page);
    check("Run", &page["runs"][0]);
    let log = site.get("/v1/runs/a/events").await.expect(200);
    check("EventPage", &log);
    check("LoggedEvent", &log["events"][0]);
    site.until_status("a", "waiting").await;
    let approvals = site.get("/v1/approvals").await.expect(200);
    check("ApprovalList", &approvals);
    check("Approval", &approvals["approvals"][0]);
    check("RunResult", &site.get("/v1/runs/a/result").await.expect(202));
    check("Problem", &site.get("/v1/runs/b").await.json());
    check("Session", &site.get("/v1/session").await.expect(200));
    let append = json!({"expected_next_index": 0, "events": [1]});
    check("ExternalAnswer", &site.post_json("/v1/external/x/events", append.clone()).await.expect(201));
    check("LogConflict", &site.post_json("/v1/external/x/events", append).await.expect(409));
    check("ExternalRun", &site.get("/v1/external/x").await.expect(200));
    let events = site.get("/v1/external/x/events").await.expect(200);
    check("ExternalEvents", &events);
    check("ExternalEvent", &events["events"][0]);
    site.start("dial", "d", json!(null)).await;
    let update = json!({"name": "double", "payload": 1});
    check("UpdateAnswer", &site.post_json("/v1/runs/d/updates", update).await.expect(200));
}

/// Allows the scope that the header names.
struct ByHeader;

impl Authenticate for ByHeader {
    fn authenticate<'a>(&'a self, request: AuthRequest<'a>) -> AuthFuture<'a> {
        let scopes = request.headers.get("x-scopes").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let allowed = scopes.split(' ').any(|scope| scope == request.scope.to_string());
        let refused = || AuthRefusal::Scope { scope: request.scope };
        let name = Some("ada".to_owned());
        Box::pin(std::future::ready(allowed.then_some(Caller { name, ..Caller::default() }).ok_or_else(refused)))
    }
}

/// S7: every route checks its scope first.
#[tokio::test]
async fn every_route_requires_its_scope() {
    let options = Options { auth: Arc::new(ByHeader), limits: limits(), ..Options::default() };
    let site = Site::with(options).await;
    for route in ROUTES {
        for scope in Scope::ALL {
            let path = route.path.replace("{id}", "a~0~0").replace("{index}", "0");
            let reply =
                site.send(route.method.as_str(), &path, &format!("X-Scopes: {scope}\r\nX-Onward-Console: 1\r\n"), "").await;
            let let_in = route.scope.is_none_or(|needed| needed == scope);
            assert_eq!(reply.status != 403, let_in, "{} {path} with {scope}: {}", route.method, reply.status);
        }
    }
    let public: Vec<&str> = ROUTES.iter().filter(|route| route.scope.is_none()).map(|route| route.path).collect();
    assert_eq!(public, crate::keys::PUBLIC);
}

#[tokio::test]
async fn http_2_is_spoken_on_the_same_port() {
    let site = Site::open().await;
    let stream = TokioIo::new(tokio::net::TcpStream::connect(site.address).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut send = async |method: &str, host: &str, body: &str| {
        let request = hyper::Request::builder().method(method).uri(format!("http://{host}/v1/runs"));
        let request = request.header("content-type", "application/json").body(body.to_owned()).unwrap();
        sender.send_request(request).await.unwrap().status().as_u16()
    };
    assert_eq!(send("POST", "localhost", r#"{"kind": "listener", "id": "a"}"#).await, 201);
    assert_eq!(send("POST", "localhost", r#"{"kind": "listener", "id": "a"}"#).await, 200);
    assert_eq!(send("GET", "evil.test", "").await, 403);
}

/// Another service whose fallback answers every path, as gRPC does.
#[tokio::test]
async fn other_services_share_the_port_and_the_guard() {
    let others = axum::Router::new()
        .route("/onward.v1.Worker/Poll", axum::routing::post(async || "polled"))
        .fallback(async || "unimplemented");
    let site = Site::with_others(Options { limits: limits(), ..Options::default() }, others).await;
    assert_eq!(site.post("/onward.v1.Worker/Poll", "").await.body, "polled");
    site.post("/onward.v1.Worker/Push", "").await.problem(404, "route_not_found");
    let foreign = site.send("POST", "/onward.v1.Worker/Poll", "Origin: http://evil.test\r\n", "").await;
    foreign.problem(403, "origin_refused");
    assert_eq!(site.get("/healthz").await.body, "ok\n");
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// S29, S12: one escaped line per request, without payloads.
#[tokio::test]
async fn requests_are_traced_without_their_payloads() {
    let lines = Lines::default();
    let trace = Trace::to(Format::Json, Level::Debug, Box::new(lines.clone()));
    let site = Site::with(Options { trace, limits: limits(), ..Options::default() }).await;
    let body = json!({"kind": "listener", "id": "a", "input": "SECRET", "signal": {"name": "ping", "payload": "SECRET"}});
    site.post_json("/v1/runs", body).await.expect(201);
    site.post("/v1/runs", r#"{"kind": "x", "input": SECRET}"#).await.problem(400, "json_invalid");
    site.post("/v1/runs", r#"{"kind": {"SECRET": 1}}"#).await.problem(400, "json_invalid");
    raw(site.address, b"GET /v1/runs/a%1b%0ab HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await;
    let text = async || loop {
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        if text.lines().count() >= 4 {
            return text;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    let text = tokio::time::timeout(DEADLINE, text()).await.expect("four lines");
    assert!(!text.contains("SECRET"), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(
        (&lines[0]["route"], &lines[0]["status"], &lines[0]["level"]),
        (&json!("/v1/runs"), &json!("201"), &json!("info"))
    );
    assert_eq!((&lines[1]["code"], &lines[3]["id"]), (&json!("json_invalid"), &json!("a\u{1b}\nb")));
    assert!(!text.contains('\u{1b}'));
}
