use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use onward_llm::Block;
use onward_mcp::{McpServer, Transport};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{ODD, assert_soon, settings, text_result, usual_answer};

async fn start() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, Router::new().route("/mcp", post(answer))).await });
    url
}

async fn open(url: &str) -> McpServer {
    McpServer::open(&settings(Transport::http(url))).await.unwrap()
}

/// Responds to a tool call as the tool's name demands.
async fn answer(headers: HeaderMap, body: Bytes) -> Response {
    if headers.get("authorization").is_some_and(|key| key == "Bearer wrong") {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let message: Value = serde_json::from_slice(&body).unwrap();
    let id = &message["id"];
    let sse = |chunks: Vec<Result<String, std::io::Error>>| {
        ([("content-type", "text/event-stream")], Body::from_stream(stream::iter(chunks))).into_response()
    };
    let json =
        |value: &Value| ([("content-type", "application/json"), ("mcp-session-id", "s1")], value.to_string()).into_response();
    let progress = || {
        Ok(format!(
            "data: {}\n\n",
            json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}})
        ))
    };
    let event = |value: &Value| Ok(format!("event: message\ndata: {value}\n\n"));
    let large = || text_result(id, &"x".repeat(50_000_000));
    match message["params"]["name"].as_str() {
        None if id.is_null() => StatusCode::ACCEPTED.into_response(),
        None => usual_answer(&message).map_or_else(|| StatusCode::NOT_FOUND.into_response(), |answer| json(&answer)),
        Some("streams") => sse(vec![progress(), event(&text_result(id, "in the end"))]),
        Some("breaks") => sse(vec![progress(), Err(std::io::Error::other("cut"))]),
        Some("ends") => sse(vec![progress()]),
        Some("large") => sse(vec![event(&large())]),
        Some("large-whole") => json(&large()),
        Some("raw") => json(&text_result(id, std::str::from_utf8(&body).unwrap())),
        Some("fails") => StatusCode::BAD_GATEWAY.into_response(),
        Some("page") => ([("content-type", "text/html")], "<html>").into_response(),
        Some("expired") => StatusCode::NOT_FOUND.into_response(),
        Some("restarted") => {
            let error = json!({"code": -32000, "message": "Bad Request: No valid session ID provided"});
            (StatusCode::BAD_REQUEST, json!({"jsonrpc": "2.0", "error": error, "id": null}).to_string()).into_response()
        }
        Some("redirected") => {
            let to = headers.get("x-elsewhere").and_then(|to| to.to_str().ok()).unwrap_or_default().to_owned();
            (StatusCode::TEMPORARY_REDIRECT, [("location", to)]).into_response()
        }
        Some("refused") => (StatusCode::BAD_REQUEST, "no such tool").into_response(),
        Some(name) => json(&text_result(id, name)),
    }
}

#[tokio::test]
async fn answers_come_whole_or_as_events() {
    let source = open(&start().await).await;
    assert_eq!(source.tools().await.unwrap().len(), 2);
    assert_eq!(source.call("f", "{}", None).await.unwrap().blocks, [Block::text("f")]);
    assert_eq!(source.call("streams", "{}", None).await.unwrap().blocks, [Block::text("in the end")]);
    source.close().await;
}

/// TA1, over HTTP.
#[tokio::test]
async fn arguments_arrive_as_they_were_written() {
    let source = open(&start().await).await;
    let outcome = source.call("raw", ODD, None).await.unwrap();
    let [Block::Text { text, .. }] = &outcome.blocks[..] else { panic!("{outcome:?}") };
    assert!(text.contains(&format!("\"arguments\":{ODD}")), "{text}");
    source.close().await;
}

#[tokio::test]
async fn every_failure_is_reported_at_once_and_others_go_on() {
    let started = Instant::now();
    let source = open(&start().await).await;
    let cases = [
        ("breaks", "mcp_server_gone", true),
        ("ends", "mcp_server_gone", true),
        ("large", "tool_result_too_large", true),
        ("large-whole", "tool_result_too_large", true),
        ("fails", "mcp_server_gone", true),
        ("page", "mcp_server_broken", true),
    ];
    for (tool, code, acted) in cases {
        let error = source.call(tool, "{}", None).await.unwrap_err(); // MC2
        assert_eq!((error.code(), error.may_have_acted()), (code, acted), "{tool}: {error}");
        assert_eq!(source.call("f", "{}", None).await.unwrap().blocks, [Block::text("f")], "after {tool}");
    }
    let error = source.call("refused", "{}", None).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), source.is_open()), ("tool_call_refused", false, true));
    assert_soon(started);
}

/// A restarted server does not know the session: the next attempt opens a new one.
#[tokio::test]
async fn a_source_whose_session_is_over_is_to_be_opened_anew() {
    let url = start().await;
    for tool in ["expired", "restarted"] {
        let source = open(&url).await;
        let error = source.call(tool, "{}", None).await.unwrap_err();
        let properties = (error.code(), error.is_retryable(), error.may_have_acted(), source.is_open());
        assert_eq!(properties, ("mcp_server_gone", true, false, false), "{tool}: {error}");
        assert_eq!(open(&url).await.call("f", "{}", None).await.unwrap().blocks, [Block::text("f")]);
    }
}

#[tokio::test]
async fn a_refusing_or_missing_server_is_reported() {
    let started = Instant::now();
    let url = start().await;
    let transport = Transport::Http { url, headers: [("authorization".to_owned(), "Bearer wrong".to_owned())].into() };
    let error = McpServer::open(&settings(transport)).await.err().unwrap();
    assert_eq!((error.code(), error.is_retryable()), ("tool_key_refused", false), "{error}");
    let error = McpServer::open(&settings(Transport::http("http://127.0.0.1:1/mcp"))).await.err().unwrap();
    assert_eq!((error.code(), error.may_have_acted()), ("mcp_server_unreachable", false), "{error}");
    assert_soon(started);
}

/// S13: only the configured URL is requested, not one that the server names.
#[tokio::test]
async fn a_redirect_is_not_followed() {
    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/mcp", elsewhere.local_addr().unwrap());
    let mut transport = Transport::http(&start().await);
    if let Transport::Http { headers, .. } = &mut transport {
        headers.insert("authorization".to_owned(), "Bearer secret".to_owned());
        headers.insert("x-elsewhere".to_owned(), target);
    }
    let source = McpServer::open(&settings(transport)).await.unwrap();
    let error = source.call("redirected", "{}", None).await.unwrap_err();
    assert!(!error.to_string().contains("secret"), "{error}");
    let nobody = tokio::time::timeout(std::time::Duration::from_millis(50), elsewhere.accept()).await;
    assert!(nobody.is_err(), "the key went elsewhere");
}

#[tokio::test]
async fn a_url_with_a_password_or_of_another_scheme_is_not_opened() {
    for url in ["http://ada:secret@127.0.0.1:9/mcp", "file:///etc/passwd", "ftp://127.0.0.1/mcp", "127.0.0.1/mcp", ""] {
        let error = McpServer::open(&settings(Transport::http(url))).await.err().expect("it is refused");
        assert!(error.to_string().contains("URL") && !error.to_string().contains("secret"), "{url}: {error}");
    }
}
