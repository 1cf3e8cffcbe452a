//! Tools of MCP servers, as tools of an agent.
//!
//! Invariant MP1 (S15): a tool is called only as it was described when the agent got it. If the server describes it differently
//! after a reconnect, or no longer offers it, it is not called until the agent's process restarts, which requests approvals
//! again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onward_core::task::EffectClass;
use onward_core::{ErrorCode, Failure, Payload};
use onward_llm::ToolSchema;
use onward_mcp::{CallOutcome, McpServer, McpServerSettings, OfferedTool, ToolError, ToolHints};
use tokio::sync::Mutex;

use super::tool::{Output, Tool, ToolTaskInput, Work, changed};
use super::tools::Tools;
use crate::Result;
use crate::registry::TaskHandler;
use crate::task::TaskCtx;

/// Delay before an unreachable server is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// An MCP server, connected on demand and reconnected when it is gone.
struct LazyServer {
    settings: McpServerSettings,
    open: Mutex<Option<OpenServer>>,
    /// The tools as described when the agent got them.
    pinned: OnceLock<BTreeMap<String, ToolSchema>>,
}

/// A connection, and the tools whose description differs from the pinned one.
#[derive(Clone)]
struct OpenServer {
    source: Arc<McpServer>,
    changed: Arc<BTreeSet<String>>,
}

impl LazyServer {
    async fn source(&self) -> Result<OpenServer, ToolError> {
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| open.source.is_open()) {
            return Ok(open.clone());
        }
        let source = Arc::new(McpServer::open(&self.settings).await?);
        let changed = match self.pinned.get() {
            Some(pinned) => {
                let offered = source.tools().await?;
                let is_same = |schema: &ToolSchema| offered.iter().any(|tool| tool.schema == *schema);
                pinned.values().filter(|schema| !is_same(schema)).map(|schema| schema.name.clone()).collect()
            }
            None => BTreeSet::new(),
        };
        let opened = OpenServer { source, changed: Arc::new(changed) };
        *open = Some(opened.clone());
        Ok(opened)
    }

    async fn call(&self, ctx: &TaskCtx, tool: &str, arguments: &str) -> Result<Result<CallOutcome, ToolError>> {
        let OpenServer { source, changed: others } = match self.source().await {
            Ok(open) => open,
            Err(error) => return Ok(Err(error)),
        };
        if others.contains(tool) {
            let message = format!("the MCP server has changed or removed the tool `{tool}` since this process started");
            return Err(changed(&message)); // MP1
        }
        Ok(source.call(tool, arguments, Some(ctx.idempotency_key())).await)
    }
}

impl Tools {
    /// Adds every tool that an MCP server offers now. `change` may set another effect class or require approvals; a tool for
    /// which it returns `None` is left out. By default, tools run at least once, because their effects are unknown. The server's
    /// own hints count only for tools with [`Tool::trust_hints`].
    ///
    /// # Errors
    /// Fails if the server is unreachable or does not list its tools.
    pub async fn with_mcp(self, settings: McpServerSettings, change: impl Fn(Tool) -> Option<Tool>) -> Result<Tools, ToolError> {
        let server = Arc::new(LazyServer { settings, open: Mutex::default(), pinned: OnceLock::new() });
        let offered = server.source().await?.source.tools().await?;
        server.pinned.get_or_init(|| offered.iter().map(|tool| (tool.schema.name.clone(), tool.schema.clone())).collect());
        let tools = offered.into_iter().filter_map(|OfferedTool { schema, hints }| {
            let handler = handler(server.clone(), schema.name.clone());
            change(Tool { hinted: hinted(hints), ..Tool::made(schema, Work::Task(handler)) })
        });
        Ok(tools.fold(self, Tools::with))
    }
}

/// Returns the effect class that a server's hints imply; `None` without hints.
fn hinted(hints: ToolHints) -> Option<EffectClass> {
    match hints {
        ToolHints { is_read_only: true, .. } => Some(EffectClass::Pure),
        ToolHints { is_idempotent: true, .. } => Some(EffectClass::Keyed),
        _ => None,
    }
}

fn handler(server: Arc<LazyServer>, tool: String) -> TaskHandler {
    Arc::new(move |ctx, input| {
        let (server, tool) = (server.clone(), tool.clone());
        Box::pin(async move { call(&ctx, &server, &tool, &input).await })
    })
}

async fn call(ctx: &TaskCtx, server: &LazyServer, tool: &str, input: &Payload) -> Result<Payload> {
    let ToolTaskInput { arguments, result_bytes_max, is_once, .. } = input.read()?;
    let mut outcome = server.call(ctx, tool, arguments.get()).await?;
    // The connection had ended before the call, so nothing was executed. The server may just have restarted: try once more.
    if outcome.as_ref().is_err_and(|error| error.had_gone()) {
        outcome = server.call(ctx, tool, arguments.get()).await?;
    }
    let outcome = outcome.map_err(|error| {
        let failure = failed(&error);
        let is_unknown = is_once && error.may_have_acted();
        if is_unknown { Failure { retryable: false, ..failure.with_code(ErrorCode::OutcomeUnknown) } } else { failure }
    })?;
    let output = Output { blocks: outcome.blocks, is_error: outcome.is_error }.bounded(result_bytes_max)?;
    Ok(Payload::json(&output)?)
}

fn failed(error: &ToolError) -> Failure {
    let failure = Failure::new(error.code(), error.to_string());
    let retryable = error.is_retryable();
    let failure = Failure { retryable, ..failure };
    if retryable { failure.with_retry_after(RETRY_AFTER) } else { failure }
}
