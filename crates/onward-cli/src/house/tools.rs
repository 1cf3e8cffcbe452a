//! Servers of tools, as the settings name them.

use std::time::Duration;

use anyhow::{Result, anyhow};
use onward::agent::{SourceSettings, Tool, ToolPlace, Tools};

use super::{check_variable, invalid};
use crate::config::McpSettings;
use crate::error::Mistake;

const HINT: &str =
    "a program has `command`, `arguments`, `environment` and `folder`; a server elsewhere `url`, `headers` and `key_env`";

pub fn check(name: &str, mcp: &McpSettings, env: impl Fn(&str) -> Option<String>) -> Result<(), Mistake> {
    if mcp.command.is_some() == mcp.url.is_some() {
        return Err(invalid(format!("`mcp.{name}` is neither a program nor a URL, or both"), HINT));
    }
    check_variable(mcp.key_env.as_deref(), &format!("mcp.{name}"))?;
    match &mcp.key_env {
        Some(_) if mcp.url.is_none() => {
            Err(invalid(format!("`mcp.{name}`: `key_env` goes with `url`; a program inherits the environment"), HINT))
        }
        Some(variable) if env(variable).is_none_or(|key| key.is_empty()) => {
            let message = format!("`mcp.{name}` needs a key, and the environment variable {variable} is not set");
            Err(invalid(message, "set it for the process that calls the tools, and start that process again"))
        }
        _ => Ok(()),
    }
}

/// Adds what the server offers now.
pub async fn add(tools: Tools, name: &str, mcp: &McpSettings) -> Result<Tools> {
    let settings = settings(mcp);
    let wanted = |tool: Tool| {
        let is_wanted = mcp.tools.as_ref().is_none_or(|names| names.iter().any(|name| name == tool.name()));
        let asks = mcp.needs_approval.of(tool.name());
        is_wanted.then(|| if asks { tool.needs_approval() } else { tool })
    };
    tools.with_mcp(settings, wanted).await.map_err(|error| anyhow!("the server of tools `{name}`: {error}"))
}

fn settings(mcp: &McpSettings) -> SourceSettings {
    let place = match &mcp.url {
        Some(url) => {
            let mut headers = mcp.headers.clone();
            if let Some(key) = mcp.key_env.as_ref().and_then(|variable| std::env::var(variable).ok()) {
                headers.insert("authorization".to_owned(), format!("Bearer {key}"));
            }
            ToolPlace::Http { url: url.clone(), headers }
        }
        None => ToolPlace::Program {
            command: mcp.command.clone().unwrap_or_default(),
            arguments: mcp.arguments.clone(),
            environment: mcp.environment.clone(),
            folder: mcp.folder.clone(),
        },
    };
    let mut settings = SourceSettings::new(place);
    if let Some(seconds) = mcp.call_timeout_seconds {
        settings.call_timeout = Duration::from_secs(seconds);
    }
    settings
}
