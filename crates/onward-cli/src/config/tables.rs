//! The tables of the settings file: providers, models, agents, MCP servers, namespaces and kinds.
//!
//! Defines their format; unknown fields fail when the file is read. References and keys are checked where they are used. Must
//! never print a value that may be a key.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use onward::agent::{EffectClass, ModelSettings, ProviderSettings};
use onward::budget::WrittenBudget;
use onward_core::budget::Budget;
use onward_core::task::RetryPolicy;
use onward_core::time::millis;
use onward_core::{KindDefaults, Name, NameError, Namespace};
use onward_server::Ceilings;
use serde::Deserialize;

use crate::span;

/// Tables that contain no settings of [`KEYS`](super::KEYS).
pub const TABLES: [&str; 6] = ["providers", "models", "agents", "mcp", "namespaces", "kinds"];

#[derive(Debug, Clone, Default, Deserialize)]
pub struct Tables {
    #[serde(default)]
    pub providers: BTreeMap<String, ProviderSettings>,
    #[serde(default)]
    pub models: BTreeMap<String, ModelSettings>,
    #[serde(default)]
    pub agents: BTreeMap<String, AgentSettings>,
    #[serde(default)]
    pub mcp: BTreeMap<String, McpSettings>,
    /// Settings by namespace; `*` is every namespace.
    #[serde(default)]
    pub namespaces: BTreeMap<String, NamespaceSettings>,
    /// Defaults by kind.
    #[serde(default)]
    pub kinds: BTreeMap<Name, KindSettings>,
}

/// Defaults of a kind of tasks or workflows.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindSettings {
    pub queue: Option<Name>,
    pub priority: Option<i32>,
    /// Maximum number of attempts.
    pub retry: Option<u32>,
    /// Delay after the first attempt.
    pub retry_delay: Option<WrittenSpan>,
    pub queued_timeout: Option<WrittenSpan>,
    pub attempt_timeout: Option<WrittenSpan>,
    pub total_timeout: Option<WrittenSpan>,
    pub heartbeat_timeout: Option<WrittenSpan>,
    /// Of runs, after their start.
    pub deadline: Option<WrittenSpan>,
    /// The key of runs in their queue.
    pub key: Option<String>,
}

/// A duration with its unit: `90s`, `2h`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
pub struct WrittenSpan(Duration);

impl TryFrom<String> for WrittenSpan {
    type Error = String;

    fn try_from(text: String) -> Result<WrittenSpan, String> {
        span::parse_positive(&text).map(WrittenSpan)
    }
}

impl KindSettings {
    /// Returns the defaults, or why they cannot apply.
    fn defaults(&self) -> Result<KindDefaults, String> {
        let ms = |span: Option<WrittenSpan>| span.map(|WrittenSpan(time)| millis(time));
        if self.retry_delay.is_some() && self.retry.is_none() {
            return Err("`retry_delay` needs `retry`".to_owned());
        }
        let retry = self.retry.map(RetryPolicy::attempts);
        Ok(KindDefaults {
            queue: self.queue.clone(),
            priority: self.priority,
            retry: retry
                .map(|policy| self.retry_delay.into_iter().fold(policy, |policy, WrittenSpan(delay)| policy.delay(delay))),
            queued_timeout_ms: ms(self.queued_timeout),
            attempt_timeout_ms: ms(self.attempt_timeout),
            total_timeout_ms: ms(self.total_timeout),
            heartbeat_timeout_ms: ms(self.heartbeat_timeout),
            deadline_ms: ms(self.deadline),
            key: self.key.clone(),
        })
    }
}

/// Settings of a namespace.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    /// Maximum budget of runs that callers start or resume.
    pub budget_max: Option<WrittenBudget>,
}

impl Tables {
    /// Returns the defaults of kinds, or the kind whose defaults are wrong.
    pub fn defaults(&self) -> Result<BTreeMap<Name, KindDefaults>, (Name, String)> {
        let of = |(kind, settings): (&Name, &KindSettings)| match settings.defaults() {
            Ok(defaults) => Ok((kind.clone(), defaults)),
            Err(why) => Err((kind.clone(), why)),
        };
        self.kinds.iter().map(of).collect()
    }

    /// Returns the maximum budgets that callers may give to runs.
    pub fn ceilings(&self) -> Result<Ceilings, NameError> {
        let mut ceilings = Ceilings::default();
        for (name, settings) in &self.namespaces {
            let Some(budget) = settings.budget_max.map(Budget::from) else { continue };
            match name.as_str() {
                "*" => ceilings.all = budget,
                name => drop(ceilings.namespaces.insert(Namespace::new(name)?, budget)),
            }
        }
        Ok(ceilings)
    }
}

/// A ready-made agent.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    pub model: String,
    pub system: Option<String>,
    pub max_turns: Option<u32>,
    pub max_tool_calls: Option<u32>,
    /// Wait for the next message instead of ending.
    #[serde(default)]
    pub converse: bool,
    /// Input tokens from which old entries are summarized.
    pub compact_at: Option<u64>,
    /// Default budget of its runs.
    pub budget: Option<WrittenBudget>,
    /// Stop instead of pausing when the budget is exhausted.
    #[serde(default)]
    pub stop_at_budget: bool,
    /// Tables of `mcp` whose tools the agent has.
    #[serde(default)]
    pub mcp: Vec<String>,
}

/// An MCP server: a program or a URL.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpSettings {
    pub command: Option<String>,
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Environment variables of the program.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Environment variables that the program inherits from this process.
    #[serde(default)]
    pub inherits: Vec<String>,
    pub folder: Option<PathBuf>,
    pub url: Option<String>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Environment variable with the bearer token for the URL.
    pub key_env: Option<String>,
    /// Tools for the agent; `None` for all.
    pub tools: Option<Vec<String>>,
    #[serde(default)]
    pub needs_approval: NeedsApproval,
    /// Effect class of tools without a more specific one; `at_least_once` by default.
    pub class: Option<EffectClass>,
    /// Effect classes of single tools.
    #[serde(default)]
    pub classes: BTreeMap<String, EffectClass>,
    /// Derive the class of tools that are not in `classes` from the hints of the server.
    #[serde(default)]
    pub trust_hints: bool,
    pub call_timeout_seconds: Option<u64>,
}

/// Omits environment variables and headers, which may contain keys.
impl std::fmt::Debug for McpSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpSettings").field("command", &self.command).field("url", &self.url).finish_non_exhaustive()
    }
}

/// Tools whose calls need an approval.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "`needs_approval` must be true, false or a list of tools")]
pub enum NeedsApproval {
    All(bool),
    These(Vec<String>),
}

impl Default for NeedsApproval {
    fn default() -> NeedsApproval {
        NeedsApproval::All(false)
    }
}

impl NeedsApproval {
    pub fn of(&self, tool: &str) -> bool {
        match self {
            NeedsApproval::All(all) => *all,
            NeedsApproval::These(names) => names.iter().any(|name| name == tool),
        }
    }
}

/// An error: position in the text, message and hint.
pub type Wrong = (usize, String, Option<String>);

pub fn read(text: &str) -> Result<Tables, Wrong> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().to_owned();
        let hint = if message.starts_with("unknown field `key`") {
            "set `key_env` to the name of an environment variable with the key; keys are not read from this file"
        } else {
            "see docs/operations.md for these tables"
        };
        (at, without_values(&message), Some(hint.to_owned()))
    })
}

/// Removes values from messages like `invalid type: string "sk-…", expected …`, because they may be keys.
fn without_values(message: &str) -> String {
    match (message.find(": string \""), message.rfind("\", expected ")) {
        (Some(from), Some(to)) => format!("{}: a string, {}", &message[..from], &message[to + 3..]),
        _ => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
