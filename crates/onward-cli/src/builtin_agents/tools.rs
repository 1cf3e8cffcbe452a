//! MCP servers of the settings.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use onward::agent::{McpServerSettings, McpTransport, Tool, Tools};

use super::{check_variable, invalid};
use crate::config::{McpSettings, NeedsApproval};
use crate::error::Mistake;

const HINT: &str = "set `command`, `arguments`, `environment`, `inherits` and `folder`, or `url`, `headers` and `key_env`";

pub fn check(name: &str, mcp: &McpSettings, env: impl Fn(&str) -> Option<String>) -> Result<(), Mistake> {
    if mcp.command.is_some() == mcp.url.is_some() {
        return Err(invalid(format!("`mcp.{name}` must have either `command` or `url`"), HINT));
    }
    check_variable(mcp.key_env.as_deref(), &format!("mcp.{name}"))?;
    if let Some(variable) = mcp.inherits.iter().find(|variable| env(variable).is_none()) {
        let message = format!("`mcp.{name}`: the variable {variable} of `inherits` is not set");
        return Err(invalid(message, "set it for the process that starts the program, or remove it from `inherits`"));
    }
    match &mcp.key_env {
        Some(_) if mcp.url.is_none() => {
            Err(invalid(format!("`mcp.{name}`: `key_env` needs `url`; a program gets the variables of `inherits`"), HINT))
        }
        Some(variable) if env(variable).is_none_or(|key| key.is_empty()) => {
            let message = format!("`mcp.{name}`: the environment variable {variable} with its key is not set");
            Err(invalid(message, "set it for the process that calls the tools and restart that process"))
        }
        _ => Ok(()),
    }
}

/// The tools of a connected MCP server; the connection lives as long as they do.
pub struct McpTools {
    /// Names of all tools that the server offers.
    offered: BTreeSet<String>,
    /// The tools that the settings select.
    selected: Vec<Tool>,
}

/// Connects to an MCP server and lists its tools.
pub async fn connect(name: &str, mcp: &McpSettings) -> Result<McpTools> {
    let tools = Mutex::new(McpTools { offered: BTreeSet::new(), selected: Vec::new() });
    let collect = |tool: Tool| {
        let mut tools = tools.lock().unwrap_or_else(PoisonError::into_inner);
        tools.offered.insert(tool.name().to_owned());
        if mcp.tools.as_ref().is_none_or(|names| names.iter().any(|name| name == tool.name())) {
            tools.selected.push(changed(tool, mcp));
        }
        None
    };
    let connected = Tools::new().with_mcp(settings(name, mcp), collect).await;
    connected.map_err(|error| anyhow!("MCP server `{name}`: {error}"))?;
    Ok(tools.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// Adds the selected tools of a connected server. Fails for a configured name that the server does not offer and for a duplicate
/// name: either could let a tool run without its approval.
pub fn add(tools: Tools, name: &str, mcp: &McpSettings, connected: &McpTools) -> Result<Tools> {
    let before: BTreeSet<String> = tools.names().map(str::to_owned).collect();
    check_names(name, mcp, &before, &connected.offered)?;
    Ok(connected.selected.iter().cloned().fold(tools, Tools::with))
}

/// Applies the settings to a tool. Its class is that of `classes`, else that of trusted hints, else `class`.
fn changed(tool: Tool, mcp: &McpSettings) -> Tool {
    let tool = mcp.class.into_iter().fold(tool, Tool::class);
    let tool = if mcp.trust_hints { tool.trust_hints() } else { tool };
    let tool = mcp.classes.get(tool.name()).copied().into_iter().fold(tool, Tool::class);
    if mcp.needs_approval.of(tool.name()) { tool.needs_approval() } else { tool }
}

fn check_names(name: &str, mcp: &McpSettings, before: &BTreeSet<String>, offered: &BTreeSet<String>) -> Result<()> {
    let with_approval = match &mcp.needs_approval {
        NeedsApproval::These(names) => names.as_slice(),
        NeedsApproval::All(_) => &[],
    };
    let named = mcp.tools.iter().flatten().chain(with_approval).chain(mcp.classes.keys());
    if let Some(unknown) = named.into_iter().find(|tool| !offered.contains(*tool)) {
        let there = offered.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        bail!("`mcp.{name}` names the unknown tool `{unknown}`; its server has {there}");
    }
    let is_wanted = |tool: &&String| mcp.tools.as_ref().is_none_or(|names| names.contains(tool));
    if let Some(taken) = offered.iter().filter(is_wanted).find(|tool| before.contains(*tool)) {
        bail!("`mcp.{name}` offers the tool `{taken}`, and the agent has another one of that name: select tools with `tools`");
    }
    Ok(())
}

fn settings(name: &str, mcp: &McpSettings) -> McpServerSettings {
    let transport = match &mcp.url {
        Some(url) => {
            let mut headers = mcp.headers.clone();
            if let Some(key) = mcp.key_env.as_ref().and_then(|variable| std::env::var(variable).ok()) {
                headers.insert("authorization".to_owned(), format!("Bearer {key}"));
            }
            McpTransport::Http { url: url.clone(), headers }
        }
        None => McpTransport::Program {
            command: mcp.command.clone().unwrap_or_default(),
            arguments: mcp.arguments.clone(),
            environment: mcp.environment.clone(),
            inherits: mcp.inherits.clone(),
            folder: mcp.folder.clone(),
        },
    };
    let mut settings = McpServerSettings { name: Some(name.to_owned()), ..McpServerSettings::new(transport) };
    if let Some(seconds) = mcp.call_timeout_seconds {
        settings.call_timeout = Duration::from_secs(seconds);
    }
    settings
}

#[cfg(test)]
mod tests;
