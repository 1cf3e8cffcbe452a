//! Tools of an MCP server. Without arguments the example is its own server; name another one after `--`:
//!
//! `cargo run --example agent-mcp`
//! `cargo run --example agent-mcp -- npx -y @modelcontextprotocol/server-everything`

mod model;

use std::io::{BufRead, Write};

use onward::agent::{Agent, AgentOutcome, McpServerSettings, McpTransport, Tools};
use onward::prelude::*;
use serde_json::{Value, json};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args();
    let own = arguments.next().unwrap_or_default();
    let arguments: Vec<String> = arguments.collect();
    if arguments.first().is_some_and(|first| first == "serve") {
        return serve();
    }
    let transport = match arguments.split_first() {
        Some((command, rest)) => McpTransport::program(command, rest.iter().map(String::as_str)),
        None => McpTransport::program(&own, ["serve"]),
    };
    let model = model::talker().await?;
    // The effects of another server's tools are unknown; `echo` has none.
    let harmless = |tool: onward::agent::Tool| Some(if tool.name() == "echo" { tool.pure() } else { tool });
    let tools = Tools::new().with_mcp(McpServerSettings::new(transport), harmless).await?;
    println!("the server has echo: {}", tools.names().any(|name| name == "echo"));
    let directory = tempfile::tempdir()?;
    let agent = Agent::new("guest").model(model.name).tools(&tools);
    let builder = Onward::embedded(directory.path()).model(model.name, &model.provider).register(agent);
    let onward = builder.start().await?;
    let run = onward.start::<AgentOutcome, _>("guest", r#"Call echo {"message": "hello"}"#).await?;
    println!("{}", run.result().await?.text);
    onward.shutdown().await;
    Ok(())
}

/// The smallest MCP server: one tool, line by line over stdin and stdout.
fn serve() -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let request: Value = serde_json::from_str(&line?)?;
        let Some(id) = request.get("id") else { continue }; // a notification
        let result = match request["method"].as_str() {
            Some("initialize") => Ok(json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "echo", "version": "1"},
            })),
            Some("ping") => Ok(json!({})),
            Some("tools/list") => {
                let message = json!({"type": "string"});
                let schema = json!({"type": "object", "properties": {"message": message}, "required": ["message"]});
                Ok(json!({"tools": [{"name": "echo", "description": "Repeats a message", "inputSchema": schema}]}))
            }
            Some("tools/call") => {
                let message = request["params"]["arguments"]["message"].as_str().unwrap_or_default();
                Ok(json!({"content": [{"type": "text", "text": format!("echo: {message}")}]}))
            }
            _ => Err(json!({"code": -32601, "message": "no such method"})),
        };
        let answer = match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
        };
        writeln!(std::io::stdout(), "{answer}")?;
    }
    Ok(())
}
