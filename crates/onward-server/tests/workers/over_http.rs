//! A worker that uses only HTTP and JSON.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::raw::{LEASE, Site, key};

/// Sends frames; returns the status and the document.
async fn post(site: &Site, wait_ms: u32, frames: Value) -> (u16, Value) {
    send(site, &format!("/v1/workers/w/frames?wait_ms={wait_ms}"), "", json!({"frames": frames})).await
}

/// Sends a document with further headers.
pub async fn send(site: &Site, path: &str, headers: &str, body: Value) -> (u16, Value) {
    let address = site.url.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// Sends frames and polls until there are `wanted` frames in return.
async fn talk(site: &Site, frames: Value, wanted: usize) -> Vec<Value> {
    let mut got = Vec::new();
    let mut bring = frames;
    while got.len() < wanted {
        let (status, answer) = post(site, 5_000, bring.take()).await;
        assert_eq!(status, 200, "{answer}");
        got.extend(answer["frames"].as_array().unwrap().iter().cloned());
        bring = json!([]);
    }
    got
}

pub fn hello(connection: u64, runs: Value) -> Value {
    json!({"hello": {
        "protocol": 1, "worker": "w", "task_kinds": [], "queues": [""], "runs_max": 10, "tasks": [], "sdk": "curl",
        "kinds": [{"kind": "pay", "versions": [""], "current": null, "input_schema": null, "output_schema": null}],
        "runs": runs, "connection": connection,
    }})
}

fn commit(request: u64, run: &Value, n: u64, horizon: u64, events: Value, waits: bool) -> Value {
    json!({"commit": {"request": request, "commit": {
        "key": run["head"]["key"], "generation": 0, "epoch": run["head"]["epoch"], "n": n, "commit_id": 100 + n,
        "horizon": horizon, "events": events, "waits": waits, "end_over_unread": false, "is_while_paused": false,
        "carries": {"signals": [], "cancel_reason": null},
    }}})
}

#[tokio::test]
async fn a_worker_over_plain_http_does_a_run_and_survives_a_lost_answer() {
    let site = Site::new().await;
    assert_eq!(post(&site, 0, json!([{"heartbeat": {"request": 1}}])).await.1["code"], "hello_missing");
    let welcome = talk(&site, json!([hello(1, json!([])), {"credit": {"runs": 1, "tasks": 0}}]), 1).await;
    assert_eq!(welcome[0]["welcome"]["lease_ms"], 300);
    let (status, problem) = post(&site, 0, json!([{"hello": {"worker": "w"}}])).await;
    assert_eq!((status, &problem["code"]), (400, &json!("json_invalid")));
    assert!(problem["hint"].as_str().unwrap().contains("docs/protocol.md"), "{problem}");
    site.start("r", "pay").await;
    let run = talk(&site, json!([]), 1).await[0]["run"].clone();
    let awaited = json!([{"type": "signal_awaited", "call_id": "0", "name": "s", "deadline": null, "is_pattern": false}]);
    let outcome = talk(&site, json!([commit(1, &run, 0, 0, awaited, true)]), 1).await;
    assert_eq!(outcome[0]["reply"]["outcome"]["committed"]["status"], "waiting");
    site.signal("r", "s", onward_core::Payload::null()).await;

    // The response is lost, as if the request had failed.
    let held = json!([{"run": run["head"]["key"], "generation": 0, "epoch": run["head"]["epoch"], "next_index": 2}]);
    let back = talk(&site, json!([hello(2, held)]), 2).await;
    assert_eq!(back[1]["input"]["record"]["index"], 2, "{back:?}");
    let events = json!([
        {"type": "signal_consumed", "call_id": "0", "name": "s", "index": 2}, {"type": "run_completed", "output": {"json": 7}},
    ]);
    let outcome = talk(&site, json!([commit(2, &run, 1, 2, events, false)]), 1).await;
    assert_eq!(outcome[0]["reply"]["outcome"]["committed"]["status"], "completed");
    assert!(site.runtime.read_outcome(&key("r")).await.unwrap().is_some());

    assert_eq!(talk(&site, json!([{"leave": {"request": 3}}]), 1).await[0]["reply"]["request"], 3);
    assert_eq!(post(&site, 5_000, json!([])).await.1["code"], "hello_missing", "it has left");
}

#[tokio::test]
async fn a_worker_over_plain_http_that_was_silent_sends_hello_again() {
    let site = Site::new().await;
    talk(&site, json!([hello(1, json!([]))]), 1).await;
    site.pass(LEASE * 2).await;
    let (status, problem) = post(&site, 5_000, json!([])).await;
    assert_eq!((status, &problem["code"]), (409, &json!("hello_missing")));
    assert!(talk(&site, json!([hello(2, json!([]))]), 1).await[0]["welcome"].is_object());
    let (status, problem) = post(&site, 0, json!([hello(1, json!([]))])).await;
    assert_eq!((status, &problem["code"]), (409, &json!("hello_overtaken")));
}

#[tokio::test]
async fn workers_are_listed_under_the_names_they_gave_themselves() {
    let site = Site::new().await;
    talk(&site, json!([hello(1, json!([]))]), 1).await;
    let address = site.url.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET /v1/workers HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let listed: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(listed["workers"][0]["id"], "w", "{listed}");
    assert_eq!(listed["workers"].as_array().unwrap().len(), 1);
}
