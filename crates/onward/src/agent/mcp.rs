//! Tools of MCP servers, as tools of an agent.

use std::sync::Arc;
use std::time::Duration;

use onward_core::task::EffectClass;
use onward_core::{Failure, Payload};
use onward_mcp::{CallOutcome, OfferedTool, SourceSettings, ToolError, ToolHints, ToolSource};
use tokio::sync::Mutex;

use super::tool::{Asked, Output, Tool, Work};
use super::tools::Tools;
use crate::Result;
use crate::registry::TaskHandler;
use crate::task::TaskCtx;

/// How long to wait before a server that could not be reached is tried again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A server of tools, opened when it is needed and again when it has gone.
struct Server {
    settings: SourceSettings,
    open: Mutex<Option<Arc<ToolSource>>>,
}

impl Server {
    async fn source(&self) -> Result<Arc<ToolSource>, ToolError> {
        let mut open = self.open.lock().await;
        if let Some(source) = open.as_ref().filter(|source| source.is_open()) {
            return Ok(source.clone());
        }
        let source = Arc::new(ToolSource::open(&self.settings).await?);
        *open = Some(source.clone());
        Ok(source)
    }

    async fn call(&self, ctx: &TaskCtx, tool: &str, arguments: &str) -> Result<CallOutcome, ToolError> {
        self.source().await?.call(tool, arguments, Some(ctx.idempotency_key())).await
    }
}

impl Tools {
    /// Adds every tool that a server offers now. `change` may give each another class, or let people agree to its calls; a tool for which
    /// it returns nothing is left out. Nothing is known of what a server does, so each is done at least once unless somebody says otherwise;
    /// what the server itself says counts only where [`Tool::trust_hints`] was said.
    ///
    /// # Errors
    /// If the server cannot be reached or does not list its tools.
    pub async fn with_mcp(self, settings: SourceSettings, change: impl Fn(Tool) -> Option<Tool>) -> Result<Tools, ToolError> {
        let server = Arc::new(Server { settings, open: Mutex::default() });
        let offered = server.source().await?.tools().await?;
        let tools = offered.into_iter().filter_map(|OfferedTool { schema, hints }| {
            let handler = handler(server.clone(), schema.name.clone());
            change(Tool { hinted: hinted(hints), ..Tool::made(schema, Work::Task(handler)) })
        });
        Ok(tools.fold(self, Tools::with))
    }
}

/// What a server's words come to; nothing where it says nothing.
fn hinted(hints: ToolHints) -> Option<EffectClass> {
    match hints {
        ToolHints { is_read_only: true, .. } => Some(EffectClass::Pure),
        ToolHints { is_idempotent: true, .. } => Some(EffectClass::Keyed),
        _ => None,
    }
}

fn handler(server: Arc<Server>, tool: String) -> TaskHandler {
    Arc::new(move |ctx, input| {
        let (server, tool) = (server.clone(), tool.clone());
        Box::pin(async move { call(&ctx, &server, &tool, &input).await })
    })
}

async fn call(ctx: &TaskCtx, server: &Server, tool: &str, input: &Payload) -> Result<Payload> {
    let Asked { arguments, result_bytes_max, is_once } = input.read()?;
    let mut outcome = server.call(ctx, tool, arguments.get()).await;
    // The connection had ended before, and the server may only have been started anew: then nothing was done, and there is another one now.
    if outcome.as_ref().is_err_and(|error| error.had_gone()) {
        outcome = server.call(ctx, tool, arguments.get()).await;
    }
    let outcome = outcome.map_err(|error| {
        let failure = failed(&error);
        let is_unknown = is_once && error.may_have_acted();
        if is_unknown { Failure { retryable: false, ..failure.with_code("outcome_unknown") } } else { failure }
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
