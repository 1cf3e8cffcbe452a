//! The built-in workers: models and agents of the settings, run by this process. An MCP server that does not answer delays only
//! its own agents; it is retried until it answers.
//!
//! Validates the tables before anything starts: unknown providers, models and MCP servers, and unset variables. Must never print
//! a key, and never connect to an address that is not in the settings.

mod tools;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use onward::agent::{Agent, ApiFormat, Attachments, Http, ModelTable, Models, ProviderSettings, TableError, Tools};
use onward::{Builder, Onward};
use onward_core::{ErrorCode, Namespace};
use onward_runtime::Runtime;
use onward_server::trace::{Level, Trace};
use tokio::task::JoinHandle;

use crate::config::{AgentSettings, Config, McpSettings, Tables};
use crate::error::Mistake;
use tools::McpTools;

/// Delay between attempts to reach an MCP server.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// The validated tables of the settings.
pub struct BuiltinAgents {
    models: Models,
    agents: BTreeMap<String, AgentSettings>,
    mcp: BTreeMap<String, McpSettings>,
    namespaces: Vec<Namespace>,
    attachments: Option<Attachments>,
}

impl BuiltinAgents {
    /// Validates the tables; `None` if the settings define neither models nor agents.
    pub fn open(config: &Config) -> Result<Option<BuiltinAgents>, Mistake> {
        let namespaces = namespaces_of(config)?;
        let Some(tables) = config.tables().filter(|tables| !tables.models.is_empty() || !tables.agents.is_empty()) else {
            return Ok(None);
        };
        let mut builtin = BuiltinAgents::of(tables, &Http::new(), |name| std::env::var(name).ok())?;
        builtin.namespaces = namespaces;
        builtin.attachments = config.text("server.attachments").map(Attachments::folder);
        // Paths are relative to the file.
        if let Some(near) = config.file().and_then(|path| path.parent()).filter(|near| !near.as_os_str().is_empty()) {
            let folders = builtin.mcp.values_mut().filter_map(|mcp| mcp.folder.as_mut());
            folders.for_each(|folder| *folder = near.join(&*folder));
        }
        Ok(Some(builtin))
    }

    fn of(tables: &Tables, http: &Http, env: impl Fn(&str) -> Option<String> + Copy) -> Result<BuiltinAgents, Mistake> {
        let mut providers = tables.providers.clone();
        for settings in tables.models.values() {
            if let Some(usual) = usual_provider(&settings.provider) {
                providers.entry(settings.provider.clone()).or_insert(usual);
            }
        }
        for (name, provider) in &providers {
            check_variable(provider.key_env.as_deref(), &format!("providers.{name}"))?;
        }
        let known: Vec<&str> = providers.keys().map(String::as_str).collect();
        for (name, settings) in &tables.models {
            if !providers.contains_key(&settings.provider) {
                let message = format!("`models.{name}`: unknown provider `{}`", settings.provider);
                let hint = format!("use `openai`, `anthropic` or a table{}", listed("[providers.…]", &known));
                return Err(invalid(message, &hint));
            }
        }
        let table = ModelTable { providers, models: tables.models.clone() };
        let models = Models::open(&table, http, env).map_err(invalid_table)?;
        for name in models.names() {
            models.find(name).map_err(invalid_table)?; // fails if the key is missing
        }
        check_agents(tables)?;
        for (name, mcp) in &tables.mcp {
            tools::check(name, mcp, env)?;
        }
        Ok(BuiltinAgents {
            models,
            agents: tables.agents.clone(),
            mcp: tables.mcp.clone(),
            namespaces: vec![Namespace::default()],
            attachments: None,
        })
    }

    /// Returns the names of the models.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.names()
    }

    /// Returns the names of the agents.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Returns the agent to suggest first: one that needs no MCP server, if there is one.
    pub fn first_agent(&self) -> Option<&str> {
        let (name, _) = self.agents.iter().min_by_key(|(_, settings)| !settings.mcp.is_empty())?;
        Some(name)
    }

    /// Registers all models and agents with one worker. Fails if an MCP server does not answer.
    pub async fn equip(&self, builder: Builder) -> Result<Builder> {
        let mut builder = self.equip_plain(builder);
        for (name, settings) in self.agents.iter().filter(|(_, settings)| !settings.mcp.is_empty()) {
            let mut connected = BTreeMap::new();
            self.connect_all(settings, &mut connected).await?;
            builder = builder.register(agent(name, settings).tools(&self.tools_of(settings, &connected)?));
        }
        Ok(builder)
    }

    /// Registers the models, and the agents without MCP servers.
    fn equip_plain(&self, builder: Builder) -> Builder {
        let builder = self.attachments.iter().cloned().fold(builder, Builder::attachments);
        let plain = self.agents.iter().filter(|(_, settings)| settings.mcp.is_empty());
        plain.fold(builder.models(&self.models), |builder, (name, settings)| builder.register(agent(name, settings)))
    }

    /// Connects to the MCP servers of an agent that are not connected yet. Tries all of them and returns the first error.
    async fn connect_all(&self, settings: &AgentSettings, connected: &mut BTreeMap<String, McpTools>) -> Result<()> {
        let mut first_error = None;
        for name in &settings.mcp {
            if !connected.contains_key(name) {
                match tools::connect(name, &self.mcp[name]).await {
                    Ok(tools) => drop(connected.insert(name.clone(), tools)),
                    Err(error) => first_error = first_error.or(Some(error)),
                }
            }
        }
        first_error.map_or(Ok(()), Err)
    }

    /// Returns the tools of an agent, all of whose MCP servers are connected.
    fn tools_of(&self, settings: &AgentSettings, connected: &BTreeMap<String, McpTools>) -> Result<Tools> {
        settings.mcp.iter().try_fold(Tools::new(), |tools, name| tools::add(tools, name, &self.mcp[name], &connected[name]))
    }
}

fn agent(name: &str, settings: &AgentSettings) -> Agent {
    let AgentSettings { model, system, max_turns, max_tool_calls, converse, compact_at, budget, stop_at_budget, mcp: _ } =
        settings;
    let agent = system.iter().fold(Agent::new(name).model(model), |agent, system| agent.system(system));
    let agent = max_turns.iter().fold(agent, |agent, max| agent.max_turns(*max));
    let agent = max_tool_calls.iter().fold(agent, |agent, max| agent.max_tool_calls(*max));
    let agent = compact_at.iter().fold(agent, |agent, tokens| agent.compact_at(*tokens));
    let agent = budget.iter().fold(agent, |agent, budget| agent.budget((*budget).into()));
    let agent = if *stop_at_budget { agent.stop_at_budget() } else { agent };
    if *converse { agent.converse() } else { agent }
}

/// Returns the settings of the two providers that need no table.
fn usual_provider(name: &str) -> Option<ProviderSettings> {
    let (api_format, base_url, key_env) = match name {
        "openai" => (ApiFormat::OpenAi, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        "anthropic" => (ApiFormat::Anthropic, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        _ => return None,
    };
    Some(ProviderSettings { key_env: Some(key_env.to_owned()), ..ProviderSettings::new(api_format, base_url) })
}

fn check_agents(tables: &Tables) -> Result<(), Mistake> {
    for (name, settings) in &tables.agents {
        if !tables.models.contains_key(&settings.model) {
            let known: Vec<&str> = tables.models.keys().map(String::as_str).collect();
            let message = format!("`agents.{name}`: unknown model `{}`", settings.model);
            return Err(invalid(message, &format!("use a model with a table{}", listed("[models.…]", &known))));
        }
        if let Some(mcp) = settings.mcp.iter().find(|mcp| !tables.mcp.contains_key(*mcp)) {
            let known: Vec<&str> = tables.mcp.keys().map(String::as_str).collect();
            let message = format!("`agents.{name}`: unknown MCP server `{mcp}`");
            return Err(invalid(message, &format!("use an MCP server with a table{}", listed("[mcp.…]", &known))));
        }
        if settings.max_turns == Some(0) {
            return Err(invalid(format!("`agents.{name}`: `max_turns` is 0"), "omit it for the default of 50"));
        }
        if settings.compact_at == Some(0) {
            return Err(invalid(
                format!("`agents.{name}`: `compact_at` is 0"),
                "omit it to summarize only when the context is too long",
            ));
        }
    }
    Ok(())
}

/// Fails if `key_env` is not a variable name. The error omits the value, which may be the key itself.
fn check_variable(name: Option<&str>, table: &str) -> Result<(), Mistake> {
    let usable = |name: &str| {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        plain && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    };
    if name.is_none_or(usable) {
        return Ok(());
    }
    let message = format!("`{table}`: `key_env` is not the name of an environment variable");
    Err(invalid(message, "store the key in an environment variable and set `key_env` to its name"))
}

fn listed(what: &str, known: &[&str]) -> String {
    if known.is_empty() { format!(" {what}; none is defined") } else { format!(" {what}; defined: {}", known.join(", ")) }
}

fn invalid(message: String, hint: &str) -> Mistake {
    Mistake::usage(ErrorCode::ConfigInvalid, message, hint)
}

fn invalid_table(error: TableError) -> Mistake {
    Mistake::usage(error.code(), error.to_string(), error.hint())
}

/// Returns the namespaces in which flows, and the models and agents of the settings, run.
pub fn namespaces_of(config: &Config) -> Result<Vec<Namespace>, Mistake> {
    Ok(config.parsed("server.namespaces", namespaces)?.unwrap_or_default())
}

fn namespaces(text: &str) -> Result<Vec<Namespace>, String> {
    text.split(',').map(|name| Namespace::new(name.trim()).map_err(|error| error.to_string())).collect()
}

/// The built-in workers of a server.
#[derive(Default)]
pub struct BuiltinWorkers {
    started: Arc<Mutex<Vec<Onward>>>,
    starting: Vec<JoinHandle<()>>,
}

impl BuiltinWorkers {
    /// Starts the workers. Agents with MCP servers start later, when these answer.
    pub async fn start(builtin: BuiltinAgents, runtime: &Runtime, trace: &Trace) -> Result<BuiltinWorkers> {
        let (builtin, mut workers) = (Arc::new(builtin), BuiltinWorkers::default());
        for namespace in &builtin.namespaces {
            let within = || Onward::within(runtime.clone()).namespace(namespace.as_str());
            let worker = builtin.equip_plain(within()).start().await?;
            lock(&workers.started).push(worker);
            for name in builtin.agents.iter().filter(|(_, settings)| !settings.mcp.is_empty()).map(|(name, _)| name.clone()) {
                let start = start_agent_worker(
                    builtin.clone(),
                    name,
                    runtime.clone(),
                    namespace.clone(),
                    trace.clone(),
                    workers.started.clone(),
                );
                workers.starting.push(tokio::spawn(start));
            }
        }
        Ok(workers)
    }

    /// Shuts the workers down and releases their runs.
    pub async fn stop(self) {
        for starting in self.starting {
            starting.abort();
            drop(starting.await);
        }
        let started = std::mem::take(&mut *lock(&self.started));
        for worker in started {
            worker.shutdown().await;
        }
    }
}

/// Starts the worker of an agent as soon as its MCP servers answer.
async fn start_agent_worker(
    builtin: Arc<BuiltinAgents>,
    name: String,
    runtime: Runtime,
    namespace: Namespace,
    trace: Trace,
    started: Arc<Mutex<Vec<Onward>>>,
) {
    let settings = &builtin.agents[&name];
    let (mut has_warned, mut connected) = (false, BTreeMap::new());
    loop {
        let begun = async {
            // A failed server is retried; the others stay connected.
            builtin.connect_all(settings, &mut connected).await?;
            let agent = agent(&name, settings).tools(&builtin.tools_of(settings, &connected)?);
            let builder = Onward::within(runtime.clone()).namespace(namespace.as_str()).register(agent);
            anyhow::Ok(builder.start().await?)
        };
        match begun.await {
            Ok(worker) => {
                trace.log(Level::Info, "agent has its tools", &[("agent", &name), ("namespace", &namespace)]);
                return lock(&started).push(worker);
            }
            Err(error) => {
                let level = if has_warned { Level::Debug } else { Level::Warn };
                trace.log(level, "agent waits for its tools", &[("agent", &name), ("why", &format!("{error:#}"))]);
                has_warned = true;
            }
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

fn lock(started: &Mutex<Vec<Onward>>) -> std::sync::MutexGuard<'_, Vec<Onward>> {
    started.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
