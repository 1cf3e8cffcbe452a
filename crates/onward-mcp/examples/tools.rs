//! Lists the tools of an MCP server, or calls one: `tools TRANSPORT` and `tools TRANSPORT NAME < arguments.json`.
//!
//! A transport is JSON: `{"program": {"command": "npx", "arguments": ["-y", "@modelcontextprotocol/server-everything"]}}`, or
//! `{"http": {"url": "http://127.0.0.1:3001/mcp"}}`. The output is JSON too.

use std::io::Read;

use onward_mcp::{McpServer, McpServerSettings, ToolError};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((transport, tool)) = arguments.split_first().filter(|(_, rest)| rest.len() < 2) else {
        return Err("usage: tools TRANSPORT [NAME]".into());
    };
    let settings = McpServerSettings::new(serde_json::from_str(transport)?);
    let output = match work(&settings, tool.first()).await {
        Ok(output) => output,
        Err(error) => json!({"error": error, "code": error.code(), "may_have_acted": error.may_have_acted()}),
    };
    println!("{output}");
    Ok(())
}

async fn work(settings: &McpServerSettings, tool: Option<&String>) -> Result<Value, ToolError> {
    let source = McpServer::open(settings).await?;
    let output = match tool {
        None => {
            let offered = source.tools().await?;
            json!({ "tools": offered.into_iter().map(|tool| tool.schema).collect::<Vec<_>>() })
        }
        Some(tool) => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).unwrap_or_default();
            let outcome = source.call(tool, &text, Some("a key of this call")).await?;
            json!({"blocks": outcome.blocks, "is_error": outcome.is_error, "structured": outcome.structured})
        }
    };
    source.close().await;
    Ok(output)
}
