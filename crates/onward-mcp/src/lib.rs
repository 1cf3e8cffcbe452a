//! Tools of MCP servers, for models.
//!
//! ```no_run
//! # async fn example() -> Result<(), onward_mcp::ToolError> {
//! use onward_mcp::{McpServer, McpServerSettings, Transport};
//!
//! let transport = Transport::program("npx", ["-y", "@modelcontextprotocol/server-everything"]);
//! let source = McpServer::open(&McpServerSettings::new(transport)).await?;
//! for tool in source.tools().await? {
//!     println!("{}: {}", tool.schema.name, tool.schema.description);
//! }
//! let outcome = source.call("echo", r#"{"message": "hello"}"#, None).await?;
//! println!("{:?}", outcome.blocks);
//! # Ok(())
//! # }
//! ```
//!
//! Owns one connection to one MCP server: a child process with pipes, or a server over streamable HTTP. The protocol is
//! `rmcp`'s, in its versions with and without a handshake. Knows nothing of runs and tasks, and never retries: an error reports
//! whether another attempt makes sense, and whether the tool may have acted.

#![forbid(unsafe_code)]

mod error;
mod http;
mod outcome;
mod program;
mod raw;
mod server;

pub use error::{ToolCause, ToolError};
pub use outcome::{CallOutcome, OfferedTool, ToolHints};
pub use server::{McpFuture, McpServer, McpServerSettings, Transport};
