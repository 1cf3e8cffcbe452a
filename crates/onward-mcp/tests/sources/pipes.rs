use std::time::{Duration, Instant};

use onward_llm::Block;
use onward_mcp::{McpServer, McpServerSettings, ToolCause, ToolHints, Transport};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::sync::mpsc;

use crate::{ODD, assert_soon, settings, text_result, usual_answer};

/// Starts a server over pipes that responds to a call of `tool` as its name demands, and passes its requests to the test.
async fn open(settings: &McpServerSettings) -> (McpServer, mpsc::UnboundedReceiver<Value>) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (sender, messages) = mpsc::unbounded_channel();
    tokio::spawn(serve(theirs, sender));
    let (output, input) = tokio::io::split(ours);
    (McpServer::open_pipes(settings, output, input).await.unwrap(), messages)
}

async fn serve(stream: DuplexStream, sender: mpsc::UnboundedSender<Value>) {
    let (output, mut input) = tokio::io::split(stream);
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message: Value = serde_json::from_str(&line).unwrap();
        let answer = match message["params"]["name"].as_str() {
            None => usual_answer(&message).map(|answer| format!("{answer}\n")),
            Some("die") => return,
            Some("silent") => None,
            Some("raw") => Some(format!("{}\n", text_result(&message["id"], &line))),
            Some("refuse") => {
                let error = json!({"code": -32602, "message": "no such argument"});
                Some(format!("{}\n", json!({"jsonrpc": "2.0", "id": message["id"], "error": error})))
            }
            Some("chatter") => Some(format!("Listening on port 7\n\n{}\n", text_result(&message["id"], "still there"))),
            Some("large") => Some(format!("{}\n", text_result(&message["id"], &"x".repeat(50_000_000)))),
            Some("failing") => {
                let result = json!({"content": [], "isError": true, "structuredContent": {"why": 9_007_199_254_740_993_u64}});
                Some(format!("{}\n", json!({"jsonrpc": "2.0", "id": message["id"], "result": result})))
            }
            Some(name) => Some(format!("{}\n", text_result(&message["id"], name))),
        };
        // The test may have ended, and a source that has failed closes its pipes.
        drop(sender.send(message));
        if let Some(answer) = answer
            && input.write_all(answer.as_bytes()).await.is_err()
        {
            return;
        }
    }
}

fn pipes() -> McpServerSettings {
    settings(Transport::http("unused"))
}

#[tokio::test]
async fn tools_are_listed_to_the_last_page_with_their_schemas() {
    let (source, _messages) = open(&pipes()).await;
    let tools = source.tools().await.unwrap();
    assert_eq!(tools.len(), 2);
    assert!(tools[0].schema.input.as_str().contains("18446744073709551615"), "{:?}", tools[0]);
    assert_eq!(tools[0].hints, ToolHints { is_read_only: false, is_idempotent: true });
}

#[tokio::test]
async fn a_call_has_its_arguments_and_its_key() {
    let (source, mut messages) = open(&pipes()).await;
    let outcome = source.call("f", r#"{"n": 9007199254740993, "t": 0.1}"#, Some("task-1")).await.unwrap();
    assert_eq!((outcome.blocks, outcome.is_error), (vec![Block::text("f")], false));
    let params = loop {
        let message = messages.recv().await.unwrap();
        if message["method"] == "tools/call" {
            break message["params"].clone();
        }
    };
    assert_eq!(params["arguments"], json!({"n": 9_007_199_254_740_993_u64, "t": 0.1}));
    assert_eq!(params["_meta"]["onward/idempotency-key"], "task-1");
}

/// TA1: the text that a person has approved.
#[tokio::test]
async fn arguments_arrive_as_they_were_written() {
    let (source, _messages) = open(&pipes()).await;
    let outcome = source.call("raw", &ODD.replace(',', ",\n "), Some("task-1")).await.unwrap();
    let [Block::Text { text, .. }] = &outcome.blocks[..] else { panic!("{outcome:?}") };
    assert!(text.contains(&format!("\"arguments\":{ODD}")), "{text}");
}

#[tokio::test]
async fn a_tool_that_failed_has_an_outcome() {
    let (source, _messages) = open(&pipes()).await;
    let outcome = source.call("failing", "", None).await.unwrap();
    assert_eq!(outcome.structured.as_ref().unwrap().as_str(), r#"{"why":9007199254740993}"#);
    let result = outcome.into_result("c1");
    assert_eq!((result.blocks, result.is_error), (vec![Block::text(r#"{"why":9007199254740993}"#)], true));
}

#[tokio::test]
async fn a_refusal_is_final_and_nothing_was_done() {
    let (source, _messages) = open(&pipes()).await;
    let error = source.call("refuse", "{}", None).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), error.may_have_acted()), ("tool_call_refused", false, false));
    assert!(error.to_string().contains("no such argument (-32602)"), "{error}");
    for arguments in ["{oops", "[1]", "7"] {
        let error = source.call("f", arguments, None).await.unwrap_err();
        assert_eq!((error.cause, error.sent), (ToolCause::Refused, false));
    }
    assert!(source.is_open());
}

#[tokio::test]
async fn a_server_that_dies_is_noticed_at_once() {
    let started = Instant::now();
    let (source, _messages) = open(&pipes()).await;
    let error = source.call("die", "{}", None).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), error.may_have_acted()), ("mcp_server_gone", true, true));
    let error = source.call("f", "{}", None).await.unwrap_err();
    assert_eq!((error.code(), error.may_have_acted()), ("mcp_server_gone", false)); // it was never sent
    assert!(!source.is_open());
    assert_soon(started);
}

#[tokio::test]
async fn silence_ends_a_call_and_the_server_gets_a_cancellation() {
    let settings = McpServerSettings { call_timeout: Duration::from_millis(300), ..pipes() };
    let (source, mut messages) = open(&settings).await;
    let error = source.call("silent", "{}", None).await.unwrap_err();
    assert_eq!((error.code(), error.is_retryable(), error.may_have_acted()), ("tool_timed_out", true, true));
    while messages.recv().await.unwrap()["method"] != "notifications/cancelled" {}
    assert_eq!(source.call("f", "{}", None).await.unwrap().blocks, [Block::text("f")]);
}

#[tokio::test]
async fn a_message_has_a_limit() {
    let started = Instant::now();
    let (source, _messages) = open(&pipes()).await;
    let error = source.call("large", "{}", None).await.unwrap_err(); // MC1
    assert_eq!((error.code(), error.is_retryable(), error.may_have_acted()), ("tool_result_too_large", false, true));
    assert!(!source.is_open());
    assert_soon(started);
}

#[tokio::test]
async fn other_things_on_its_output_do_no_harm() {
    let (source, _messages) = open(&pipes()).await;
    assert_eq!(source.call("chatter", "{}", None).await.unwrap().blocks, [Block::text("still there")]);
}
