//! Foreign pages in a browser on the same machine.

use onward_server::{Cors, Hosts, Options};
use serde_json::json;

use crate::client::{Reply, raw};
use crate::site::{Site, limits};

async fn called(site: &Site, host: &str) -> Reply {
    raw(site.address, format!("GET /v1/runs HTTP/1.1\r\n{host}Connection: close\r\n\r\n").as_bytes()).await
}

/// S20: a foreign host name that resolves to this server is refused.
#[tokio::test]
async fn a_server_on_loopback_answers_to_names_of_this_machine_only() {
    let site = Site::open().await;
    for host in ["localhost", "localhost:7400", "127.0.0.1:1", "[::1]:7400", "LOCALHOST"] {
        called(&site, &format!("Host: {host}\r\n")).await.expect(200);
    }
    for host in ["evil.test", "evil.test:7400", "localhost.evil.test", "192.168.0.1", "127.0.0.1.nip.io", ""] {
        let reply = called(&site, &format!("Host: {host}\r\n")).await;
        assert!(matches!(reply.status, 403 | 400), "{host}: {}", reply.status);
        if !host.is_empty() {
            reply.problem(403, "host_refused");
        }
    }
    called(&site, "Host: localhost\r\nHost: evil.test\r\n").await.problem(400, "header_invalid");
    let reply = raw(site.address, b"GET /healthz HTTP/1.0\r\n\r\n").await;
    reply.problem(403, "host_refused");
    let absolute = b"GET http://evil.test/v1/runs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    raw(site.address, absolute).await.problem(403, "host_refused");
    let open = Site::with(Options { hosts: Hosts::Any, limits: limits(), ..Options::default() }).await;
    called(&open, "Host: onward.example\r\n").await.expect(200);
}

/// S19: a page of another origin may not change anything.
#[tokio::test]
async fn only_pages_of_this_server_may_change_something() {
    let site = Site::open().await;
    let body = json!({"kind": "listener", "id": "a"}).to_string();
    let json = "Content-Type: application/json\r\n";
    for origin in ["http://evil.test", "null", "http://localhost:1", "https://localhost.evil.test", "file://"] {
        let headers = format!("{json}Origin: {origin}\r\n");
        site.send("POST", "/v1/runs", &headers, &body).await.problem(403, "origin_refused");
    }
    let headers = format!("{json}Sec-Fetch-Site: cross-site\r\n");
    site.send("POST", "/v1/runs", &headers, &body).await.problem(403, "origin_refused");
    site.send("DELETE", "/v1/runs/a", "Origin: http://evil.test\r\n", "").await.problem(403, "origin_refused");
    assert_eq!(site.records(), 0, "nothing was written");
    let headers = format!("{json}Origin: http://localhost\r\n");
    site.send("POST", "/v1/runs", &headers, &body).await.expect(201);
}

/// S21: security headers of every response, and no access for other origins.
#[tokio::test]
async fn every_answer_has_the_same_guards() {
    let site = Site::open().await;
    for path in ["/v1/runs", "/nowhere", "/healthz", "/v1/runs/nope"] {
        let reply = site.send("GET", path, "Origin: http://evil.test\r\n", "").await;
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(reply.header("referrer-policy"), Some("no-referrer"));
        assert_eq!(reply.header("x-frame-options"), Some("DENY"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
}

/// Pages of allowed origins may call the server and read its responses; the browser sends a preflight request first.
#[tokio::test]
async fn pages_of_allowed_origins_may_call_the_server() {
    let cors = Cors::parse("https://app.example").unwrap();
    let site = Site::with(Options { cors, limits: limits(), ..Options::default() }).await;
    let preflight_headers = |origin: &str| format!("Origin: {origin}\r\nAccess-Control-Request-Method: POST\r\n");
    let preflight = site.send("OPTIONS", "/v1/runs", &preflight_headers("https://app.example"), "").await;
    assert_eq!(preflight.status, 204, "{}", preflight.body);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(preflight.header("access-control-allow-methods"), Some("GET, POST, PUT, DELETE"));
    assert!(preflight.header("access-control-allow-headers").unwrap().contains("authorization"));
    assert_eq!(preflight.header("access-control-allow-credentials"), None);
    let body = json!({"kind": "listener", "id": "a"}).to_string();
    let headers = "Content-Type: application/json\r\nOrigin: https://app.example\r\n";
    let started = site.send("POST", "/v1/runs", headers, &body).await;
    assert_eq!(started.status, 201, "{}", started.body);
    assert_eq!(started.header("access-control-allow-origin"), Some("https://app.example"));
    assert!(started.header("access-control-expose-headers").unwrap().contains("location"));
    assert_eq!(started.header("vary"), Some("origin"));
    for origin in ["https://evil.example", "http://app.example", "https://app.example:8443", "null"] {
        site.send("OPTIONS", "/v1/runs", &preflight_headers(origin), "").await.problem(403, "origin_refused");
        let read = site.send("GET", "/v1/runs", &format!("Origin: {origin}\r\n"), "").await;
        assert_eq!((read.header("access-control-allow-origin"), read.header("vary")), (None, Some("origin")), "{origin}");
    }
    let off = Site::open().await;
    off.send("OPTIONS", "/v1/runs", &preflight_headers("https://app.example"), "").await.problem(403, "origin_refused");
    assert_eq!(off.send("GET", "/v1/runs", "", "").await.header("vary"), None);
}
