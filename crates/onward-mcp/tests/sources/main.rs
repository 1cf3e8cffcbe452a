//! Faulty MCP servers over pipes, processes and HTTP. Third-party servers are tested in `tests/models`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod http;
mod pipes;
mod programs;

use std::time::{Duration, Instant};

use onward_mcp::{McpServerSettings, Transport};
use serde_json::{Value, json};

/// Arguments that a JSON library would write differently.
pub const ODD: &str = r#"{"z":1.0,"a":1e2,"n":9007199254740993,"big":123456789012345678901234567890,"m":{"y":-0,"x":[1.50]}}"#;

/// Returns settings whose limits are reached only if a test changes them.
fn settings(transport: Transport) -> McpServerSettings {
    let hour = Duration::from_secs(3_600);
    McpServerSettings {
        message_bytes_max: 1_000_000,
        open_timeout: hour,
        call_timeout: hour,
        ..McpServerSettings::new(transport)
    }
}

/// Returns the response of an old server with a handshake; `None` for tool calls, which each test handles, and for
/// notifications.
fn usual_answer(message: &Value) -> Option<Value> {
    let id = &message["id"];
    match message["method"].as_str()? {
        "server/discover" => Some(json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "Method not found"}})),
        "initialize" => {
            let server = json!({"name": "bad", "version": "1"});
            let result = json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": server});
            Some(json!({"jsonrpc": "2.0", "id": id, "result": result}))
        }
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": u64::MAX}}});
            let tool = json!({"name": "f", "inputSchema": schema, "annotations": {"idempotentHint": true}});
            // Two pages, of which the second is the last.
            let next = if message["params"]["cursor"].is_null() { json!("more") } else { Value::Null };
            Some(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": [tool], "nextCursor": next}}))
        }
        _ => None,
    }
}

fn text_result(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

/// Checks that a known failure was reported without waiting for a timeout, which is an hour in these tests.
#[track_caller]
fn assert_soon(started: Instant) {
    assert!(started.elapsed() < Duration::from_secs(300), "it took {:?}", started.elapsed());
}
