//! The actions that reach out of the process, against a real server and real files.

use std::sync::{Arc, Mutex};

use onward::prelude::*;
use onward::{Builder, ReplayCheck, RunHandle, Status};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::flow;

/// A server that answers each request with the next response, and keeps the requests.
struct Server {
    address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(responses: Vec<String>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = requests.clone();
        tokio::spawn(async move {
            for response in responses {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                let mut buffer = [0; 4096];
                while !is_whole(&request) {
                    let count = stream.read(&mut buffer).await.unwrap();
                    request.extend_from_slice(&buffer[..count]);
                }
                seen.lock().unwrap().push(String::from_utf8(request).unwrap());
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        Server { address, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |length| length.parse().unwrap());
    body.len() >= length
}

fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
}

fn in_memory() -> Builder {
    Onward::in_memory().check_replay(ReplayCheck::Every)
}

/// Runs a flow with one step to its end.
async fn run_step(builder: Builder, step: &str, input: Value) -> Result<Value> {
    let text = format!("flow: one\ninputs:\n  x: {{}}\nsteps:\n  - {step}\noutput: \"{{{{ state.out }}}}\"\n");
    let onward = builder.flow(&flow(&text)).start().await.unwrap();
    let run: RunHandle<Value> = onward.start("one", &json!({"x": input})).await.unwrap();
    let result = run.result().await.map_err(|error| error.failure().unwrap().clone());
    onward.shutdown().await;
    result
}

const POST: &str = "{ name: call, action: http, retry: { attempts: 3, backoff: 1ms }, store: out, \
                    with: { url: \"{{ inputs.x }}\", query: { q: a b }, json: { n: 1 } } }";

#[tokio::test]
async fn a_request_is_attempted_again_with_the_same_key_after_a_server_error() {
    let busy = response("503 Busy", "retry-after: 0\r\n", "later");
    let fine = response("200 OK", "content-type: application/json\r\nx-tag: t\r\n", r#"{"found": 3}"#);
    let server = Server::start(vec![busy, fine]).await;
    let url = format!("http://{}/find", server.address);
    let out = run_step(in_memory().flow_http([&server.address]), POST, json!(url)).await.unwrap();
    assert_eq!((&out["status"], &out["body"], &out["headers"]["x-tag"]), (&json!(200), &json!({"found": 3}), &json!("t")));
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].starts_with("POST /find?q=a%20b HTTP/1.1\r\n") && requests[0].ends_with(r#"{"n":1}"#), "{requests:?}");
    assert!(requests[0].contains("idempotency-key: "));
    assert_eq!(requests[0], requests[1]);
}

#[tokio::test]
async fn errors_of_the_caller_are_final_and_redirects_are_not_followed() {
    let moved = response("302 Found", "location: http://127.0.0.1:1/other\r\n", "");
    let server = Server::start(vec![response("404 Not Found", "", "none"), moved]).await;
    let url = json!(format!("http://{}/", server.address));
    let builder = || in_memory().flow_http([&server.address]);
    let failure = run_step(builder(), POST, url.clone()).await.unwrap_err();
    let details: Value = failure.details.as_ref().unwrap().read().unwrap();
    assert_eq!((failure.code.as_str(), &details["status"], &details["body"]), ("http_404", &json!(404), &json!("none")));
    let out = run_step(builder(), POST, url).await.unwrap();
    assert_eq!((&out["status"], &out["headers"]["location"]), (&json!(302), &json!("http://127.0.0.1:1/other")));
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn a_response_over_the_limit_is_refused() {
    let server = Server::start(vec![response("200 OK", "", &"x".repeat((1 << 20) + 1))]).await;
    let url = json!(format!("http://{}/", server.address));
    let failure = run_step(in_memory().flow_http([&server.address]), POST, url).await.unwrap_err();
    assert_eq!(failure.code, "http_response_too_large");
}

/// Security control S24: no document and no input reaches a host that the operator has not allowed.
#[tokio::test]
async fn no_host_is_reached_that_is_not_allowed() {
    let server = Server::start(vec![response("200 OK", "", "")]).await;
    let url = json!(format!("http://{}/", server.address));
    let failure = run_step(in_memory(), POST, url.clone()).await.unwrap_err();
    assert_eq!(failure.code, "http_not_allowed");
    assert!(failure.message.contains("flow_http"), "{}", failure.message);
    let other = run_step(in_memory().flow_http(["api.example.com"]), POST, url).await.unwrap_err();
    assert_eq!(other.code, "http_not_allowed");
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn documents_are_written_and_read_below_their_folder() {
    let folder = tempfile::tempdir().unwrap();
    let write = "{ name: save, action: write, with: { path: out/page.json, json: \"{{ inputs.x }}\" }, store: out }";
    let read = "{ name: load, action: read, with: { path: \"{{ inputs.x }}\", as: json }, store: out }";
    let builder = || in_memory().flow_documents(folder.path());
    let written = run_step(builder(), write, json!({"page": "text"})).await.unwrap();
    assert_eq!(written["path"], "out/page.json");
    assert_eq!(run_step(builder(), read, json!("out/page.json")).await.unwrap(), json!({"page": "text"}));
    assert_eq!(run_step(builder(), read, json!("../secret")).await.unwrap_err().code, "path_not_allowed");
    assert_eq!(run_step(in_memory(), read, json!("out/page.json")).await.unwrap_err().code, "documents_not_allowed");
}

#[tokio::test]
async fn arguments_of_an_action_are_checked() {
    let step = "{ name: call, action: json, with: \"{{ inputs.x }}\", store: out }";
    let failure = run_step(in_memory(), step, json!({"txt": "1"})).await.unwrap_err();
    assert_eq!(failure.code, "invalid_arguments");
    assert!(failure.message.contains("txt"), "{}", failure.message);
}

#[tokio::test]
async fn time_and_chance_are_results_of_steps_and_a_message_reaches_the_readers() {
    let text = "
flow: facts
steps:
  - { name: hold, wait: go }
  - { name: now, action: now, store: now }
  - { name: dice, action: random, with: { min: 1, max: 6 }, store: dice }
  - { name: id, action: uuid, store: id }
  - { name: tell, action: print, with: { message: \"{{ state.dice }} it is\" }, store: told }
  - { name: after, wait: go }
";
    let onward = in_memory().flow(&flow(text)).start().await.unwrap();
    let run: RunHandle<Value> = onward.start("facts", &json!({})).id("a").await.unwrap();
    let mut emitted = run.emitted();
    run.until(|view| view.head.status == Status::Waiting).await.unwrap();
    run.signal("go", &()).await.unwrap();
    let message = emitted.recv().await.unwrap();
    run.signal("go", &()).await.unwrap();
    let state = run.result().await.unwrap();
    let dice = state["dice"].as_i64().unwrap();
    assert!((1..=6).contains(&dice) && state["id"].as_str().unwrap().len() == 36, "{state}");
    assert!(onward::Timestamp::parse(state["now"].as_str().unwrap()).is_some(), "{state}");
    let told = format!("{dice} it is");
    assert_eq!(message.name, "print");
    assert_eq!(message.value.read::<Value>().unwrap(), json!({"step": "tell", "message": told}));
    assert_eq!(state["told"], Value::Null);
    onward.shutdown().await;
}
