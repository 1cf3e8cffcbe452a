//! Limits of size and time: just below, at, and just above each limit.

use std::time::Duration;

use onward_server::{JSON_DEPTH_MAX, Limits};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Stream, raw};
use crate::site::{BODY_BYTES_MAX, DEADLINE, PAYLOAD_BYTES_MAX, Site, limits};

/// Returns a body of exactly `bytes` bytes, padded with blanks.
fn body_of(bytes: usize) -> String {
    let body = r#"{"kind": "listener", "id": "a"}"#;
    body.to_owned() + &" ".repeat(bytes - body.len())
}

#[tokio::test]
async fn a_body_has_a_largest_size() {
    let site = Site::open().await;
    site.post("/v1/runs", &body_of(BODY_BYTES_MAX - 1)).await.expect(201);
    site.post("/v1/runs", &body_of(BODY_BYTES_MAX)).await.expect(200);
    site.post("/v1/runs", &body_of(BODY_BYTES_MAX + 1)).await.problem(413, "body_too_large");
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
    let chunked = |bytes: usize| {
        let body = body_of(bytes);
        format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
    };
    raw(site.address, chunked(BODY_BYTES_MAX).as_bytes()).await.expect(200);
    raw(site.address, chunked(BODY_BYTES_MAX + 1).as_bytes()).await.problem(413, "body_too_large");
    let request = format!("{head}Content-Length: 10000000000\r\nExpect: 100-continue\r\n\r\n");
    // With `Expect: 100-continue` the response comes at once: after the body timeout it would be too slow.
    raw(site.address, request.as_bytes()).await.problem(413, "body_too_large");
}

#[tokio::test]
async fn a_payload_has_a_largest_size() {
    let site = Site::open().await;
    let before = site.records();
    // The quotes are part of the payload.
    let body = |bytes: usize| json!({"kind": "listener", "id": format!("p-{bytes}"), "input": "x".repeat(bytes - 2)});
    site.post_json("/v1/runs", body(PAYLOAD_BYTES_MAX + 1)).await.problem(413, "payload_too_large");
    assert_eq!(site.records(), before);
    site.post_json("/v1/runs", body(PAYLOAD_BYTES_MAX)).await.expect(201);
}

#[tokio::test]
async fn json_has_a_largest_depth_and_a_deep_text_costs_nothing() {
    let site = Site::open().await;
    let nested = |depth: usize| {
        // The document itself is one level.
        let (open, close) = ("[".repeat(depth - 1), "]".repeat(depth - 1));
        format!(r#"{{"kind": "listener", "id": "d-{depth}", "input": {open}{close}}}"#)
    };
    site.post("/v1/runs", &nested(JSON_DEPTH_MAX - 1)).await.expect(201);
    site.post("/v1/runs", &nested(JSON_DEPTH_MAX)).await.expect(201);
    let detail = site.post("/v1/runs", &nested(JSON_DEPTH_MAX + 1)).await.problem(400, "json_too_deep");
    assert!(detail.contains("line 1 column"), "{detail}");
    let opened = format!(r#"{{"kind": "x", "input": {}"#, "[".repeat(100_000));
    site.post("/v1/runs", &opened).await.problem(400, "json_too_deep");
    site.post("/v1/runs", &"[{\"a\":".repeat(30_000)).await.problem(400, "json_too_deep");
}

#[tokio::test]
async fn headers_have_a_largest_size_and_number() {
    let site = Site::open().await;
    let with = |bytes: usize| format!("X-Long: {}\r\n", "x".repeat(bytes));
    assert_eq!(site.send("GET", "/healthz", &with(15 * 1024), "").await.status, 200);
    assert_eq!(site.send("GET", "/healthz", &with(17 * 1024), "").await.status, 431);
    let many = |count: usize| (0..count).map(|number| format!("X-{number}: 1\r\n")).collect::<String>();
    assert_eq!(site.send("GET", "/healthz", &many(90), "").await.status, 200);
    assert_eq!(site.send("GET", "/healthz", &many(110), "").await.status, 431);
}

/// Longer than any test: a request that gets a response did not wait for it.
const HOUR: Duration = Duration::from_secs(3_600);

/// Waits until the server has closed the connection; returns what it sent.
async fn closed(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    drop(tokio::time::timeout(DEADLINE, stream.read_to_end(&mut response)).await.expect("the connection is closed"));
    String::from_utf8_lossy(&response).into_owned()
}

#[tokio::test]
async fn a_slow_client_is_not_waited_for() {
    let quick = Limits {
        header_timeout: Duration::from_millis(200),
        body_timeout: Duration::from_millis(200),
        idle_timeout: Duration::from_millis(300),
        ..limits()
    };
    let site = Site::with_limits(quick).await;
    // Nothing at all; the first bytes of HTTP/2; a header that does not end; one byte at a time.
    for beginning in ["", "PRI * HT", "GET /healthz HTTP/1.1\r\nHost: local"] {
        let mut stream = TcpStream::connect(site.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let response = closed(&mut stream).await;
        assert!(response.is_empty() || response.starts_with("HTTP/1.1 408"), "{beginning:?}: {response}");
    }
    let mut drip = TcpStream::connect(site.address).await.unwrap();
    for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: xxxxxxxxxxxxxxxxxxxxxxx" {
        if drip.write_all(&[*byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    closed(&mut drip).await;
    let mut body = TcpStream::connect(site.address).await.unwrap();
    let head =
        "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{\"kind\"";
    body.write_all(head.as_bytes()).await.unwrap();
    let response = closed(&mut body).await;
    assert!(response.starts_with("HTTP/1.1 408") && response.contains("body_too_slow"), "{response}");
    let mut idle = TcpStream::connect(site.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert!(closed(&mut idle).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn a_crowd_of_idle_connections_does_not_keep_others_out() {
    let site = Site::with_limits(Limits { connections_max: 50, header_timeout: HOUR, idle_timeout: HOUR, ..limits() }).await;
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(TcpStream::connect(site.address).await.unwrap());
    }
    let answered = tokio::time::timeout(DEADLINE, site.get("/healthz")).await.expect("idle connections make room");
    assert_eq!(answered.status, 200);
    assert!(site.server.metrics().connections.value() <= 51);
}

#[tokio::test]
async fn only_idle_connections_make_room() {
    let site = Site::with_limits(Limits { connections_max: 50, header_timeout: HOUR, idle_timeout: HOUR, ..limits() }).await;
    site.start("listener", "a", json!(null)).await;
    let mut readers = Vec::new();
    for _ in 0..45 {
        readers.push(Stream::open(site.address, "/v1/runs/a/events", "").await);
    }
    let mut crowd = Vec::new();
    for _ in 0..20 {
        crowd.push(TcpStream::connect(site.address).await.unwrap());
    }
    let answered = tokio::time::timeout(DEADLINE, site.get("/healthz")).await.expect("idle connections make room");
    assert_eq!(answered.status, 200);
    site.signal("a", "ping", json!(0)).await;
    for reader in &mut readers {
        assert_eq!(reader.rest().await.pop().unwrap().name(), "end", "no busy connection was closed");
    }
}

#[tokio::test]
async fn a_broken_body_is_no_run() {
    let site = Site::open().await;
    let before = site.records();
    let mut stream = TcpStream::connect(site.address).await.unwrap();
    let head = "POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{\"kind\": \"listener\"}";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    closed(&mut stream).await;
    assert_eq!(site.records(), before);
}
