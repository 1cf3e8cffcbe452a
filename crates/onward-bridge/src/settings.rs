//! The settings of a bridge: the store, the kinds of code and tasks, and the options of the worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use onward::agent::{Agent, EffectClass, Http, JsonText, ModelTable, Models, Tool, Tools};
use onward::budget::Budget;
use onward::{Builder, Defaults, Onward, TaskCtx};
use onward_core::ErrorCode;
use onward_store::sync::lock;
use onward_store_postgres::PostgresStore;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::error::BridgeError;
use crate::host::{Host, KindShell};
use crate::kit::KitKind;
use crate::middleware::ShellMiddleware;
use crate::verbs::retry;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub store: String,
    pub key: Option<String>,
    pub namespace: Option<String>,
    pub root_certificate: Option<String>,
    #[serde(default)]
    kinds: Vec<KindSettings>,
    #[serde(default)]
    tasks: Vec<TaskSettings>,
    #[serde(default)]
    tools: Vec<ToolSettings>,
    #[serde(default)]
    agents: Vec<AgentSettings>,
    models: Option<ModelTable>,
    /// Values for the environment variables that the table of models names.
    #[serde(default)]
    model_keys: BTreeMap<String, String>,
    #[serde(default)]
    queues: Vec<String>,
    #[serde(default)]
    on_demand: bool,
    threads: Option<usize>,
    tasks_max: Option<usize>,
    runs_max: Option<usize>,
    cached_runs_max: Option<usize>,
    lease_ms: Option<u64>,
    retention_ms: Option<u64>,
    shutdown_timeout_ms: Option<u64>,
    #[serde(default)]
    check_replay: CheckReplay,
    /// The shell has middlewares.
    #[serde(default)]
    middleware: bool,
}

#[derive(Deserialize, Clone, Copy, Default)]
#[serde(rename_all = "snake_case")]
enum CheckReplay {
    #[default]
    Off,
    Doubling,
    Every,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindSettings {
    kind: String,
    version: Option<String>,
    #[serde(default)]
    agent: bool,
    #[serde(default)]
    record_inputs: bool,
    #[serde(default)]
    internal: bool,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    /// JSON schemas of signals and updates by name.
    #[serde(default)]
    signals: BTreeMap<String, Value>,
    #[serde(default)]
    updates: BTreeMap<String, Value>,
    /// JSON schemas of the answers of updates by name.
    #[serde(default)]
    update_answers: BTreeMap<String, Value>,
    #[serde(default)]
    previous: Vec<String>,
    #[serde(default)]
    defaults: DefaultsSettings,
}

/// Options of the tasks or runs of a kind that a call does not set itself.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct DefaultsSettings {
    queue: Option<String>,
    priority: Option<i32>,
    retry: Option<crate::verbs::Retry>,
    timeout_ms: Option<u64>,
    total_timeout_ms: Option<u64>,
    queued_timeout_ms: Option<u64>,
    heartbeat_ms: Option<u64>,
    deadline_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TaskSettings {
    kind: String,
    #[serde(default)]
    internal: bool,
    input_schema: Option<Value>,
    output_schema: Option<Value>,
    #[serde(default)]
    defaults: DefaultsSettings,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolSettings {
    name: String,
    description: String,
    input: JsonText,
    class: Option<EffectClass>,
    retry: Option<crate::verbs::Retry>,
    timeout_ms: Option<u64>,
    result_bytes_max: Option<usize>,
    #[serde(default)]
    needs_approval: bool,
    #[serde(default)]
    not_by_requester: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentSettings {
    name: String,
    model: String,
    system: Option<String>,
    #[serde(default)]
    tools: Vec<ToolSettings>,
    #[serde(default)]
    agent_tools: Vec<AgentTool>,
    #[serde(default)]
    handoff_to: Vec<String>,
    max_turns: Option<u32>,
    max_tool_calls: Option<u32>,
    max_handoffs: Option<u32>,
    max_depth: Option<u32>,
    #[serde(default)]
    converse: bool,
    compact_at: Option<u64>,
    budget: Option<Budget>,
    #[serde(default)]
    stop_at_budget: bool,
}

/// An agent that another one calls as a tool.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentTool {
    name: String,
    description: String,
    kind: String,
}

impl Settings {
    pub fn read(text: &str) -> Result<Settings, BridgeError> {
        serde_json::from_str(text).map_err(|error| BridgeError::new(ErrorCode::ConfigInvalid, format!("the settings: {error}")))
    }

    /// Starts the worker and client.
    pub async fn start(self, host: &Arc<Host>) -> Result<Onward, BridgeError> {
        if std::env::var_os(onward::check::FOLDER).is_some_and(|folder| !folder.is_empty()) {
            let message = "`onward check` cannot run code of this language yet";
            return Err(BridgeError::new(ErrorCode::ConfigInvalid, message));
        }
        let builder = self.open().await?;
        Ok(self.register(builder, host)?.start().await?)
    }

    /// Opens the store.
    async fn open(&self) -> Result<Builder, BridgeError> {
        let has = |scheme: &str| self.store.starts_with(scheme);
        if has("postgres://") || has("postgresql://") {
            let store = PostgresStore::connect(&self.store, onward_store_postgres::Options::default());
            let store = Arc::new(store.await.map_err(onward::Error::from)?);
            let clock = store.clock();
            return Ok(Onward::with_store(store, clock));
        }
        if self.store == "memory:" {
            return Ok(Onward::in_memory());
        }
        if !has("http://") && !has("https://") {
            return Ok(Onward::embedded(&self.store));
        }
        let builder = Onward::connect(&self.store);
        let builder = self.key.iter().fold(builder, Builder::key);
        Ok(self.root_certificate.iter().fold(builder, |builder, pem| builder.root_certificate(pem)))
    }

    /// Registers the code, and sets the options.
    fn register(self, mut builder: Builder, host: &Arc<Host>) -> Result<Builder, BridgeError> {
        for kind in self.kinds {
            builder = kind.register(builder, host);
        }
        for task in self.tasks {
            builder = task.register(builder, host);
        }
        let tools: Tools = self.tools.into_iter().map(|tool| tool.tool(None, host)).fold(Tools::new(), Tools::with);
        builder = builder.tools(tools);
        for agent in self.agents {
            builder = builder.register(agent.agent(host));
        }
        if let Some(table) = &self.models {
            let env = |name: &str| self.model_keys.get(name).cloned().or_else(|| std::env::var(name).ok());
            let invalid =
                |error: &dyn std::fmt::Display| BridgeError::new(ErrorCode::ConfigInvalid, format!("the models: {error}"));
            builder = builder.models(&Models::open(table, &Http::new(), env).map_err(|error| invalid(&error))?);
        }
        builder = if self.middleware { builder.middleware(ShellMiddleware(host.clone())) } else { builder };
        let ms = Duration::from_millis;
        builder = self.namespace.iter().fold(builder, |builder, namespace| builder.namespace(namespace));
        builder = self.queues.iter().fold(builder, |builder, queue| builder.queue(queue));
        builder = if self.on_demand { builder.on_demand() } else { builder };
        builder = self.threads.into_iter().fold(builder, Builder::threads);
        builder = self.tasks_max.into_iter().fold(builder, Builder::tasks_max);
        builder = self.runs_max.into_iter().fold(builder, Builder::runs_max);
        builder = self.cached_runs_max.into_iter().fold(builder, Builder::cached_runs_max);
        builder = self.lease_ms.into_iter().fold(builder, |builder, lease| builder.lease(ms(lease)));
        builder = self.retention_ms.into_iter().fold(builder, |builder, span| builder.retention(ms(span)));
        builder = self.shutdown_timeout_ms.into_iter().fold(builder, |builder, span| builder.shutdown_timeout(ms(span)));
        Ok(builder.check_replay(match self.check_replay {
            CheckReplay::Off => onward::ReplayCheck::Off,
            CheckReplay::Doubling => onward::ReplayCheck::Doubling,
            CheckReplay::Every => onward::ReplayCheck::Every,
        }))
    }
}

impl DefaultsSettings {
    fn register(self, builder: Builder) -> Builder {
        let ms = Duration::from_millis;
        builder.defaults(|kind| {
            let kind = self.queue.iter().fold(kind, |kind, queue| kind.queue(queue));
            let kind = self.priority.into_iter().fold(kind, Defaults::priority);
            let kind = self.retry.into_iter().fold(kind, |kind, policy| kind.retry(retry(policy)));
            let kind = self.timeout_ms.into_iter().fold(kind, |kind, timeout| kind.timeout(ms(timeout)));
            let kind = self.total_timeout_ms.into_iter().fold(kind, |kind, timeout| kind.total_timeout(ms(timeout)));
            let kind = self.queued_timeout_ms.into_iter().fold(kind, |kind, timeout| kind.queued_timeout(ms(timeout)));
            let kind = self.heartbeat_ms.into_iter().fold(kind, |kind, timeout| kind.heartbeat(ms(timeout)));
            self.deadline_ms.into_iter().fold(kind, |kind, limit| kind.deadline(ms(limit)))
        })
    }
}

impl KindSettings {
    fn register(self, builder: Builder, host: &Arc<Host>) -> Builder {
        let KindSettings { kind, version, agent, record_inputs, internal, input_schema, output_schema, previous, .. } = self;
        let shell =
            |version: Option<&String>| Arc::new(KindShell { host: host.clone(), kind: kind.clone(), version: version.cloned() });
        let current = shell(version.as_ref());
        lock(&host.kinds).insert(kind.clone(), KitKind { shell: current.clone(), is_agent: agent });
        let builder = builder.foreign(&kind, agent, current);
        let builder = version.iter().fold(builder, |builder, version| builder.version(version));
        let builder = if record_inputs { builder.record_inputs() } else { builder };
        let builder = if internal { builder.internal() } else { builder };
        let builder = input_schema.into_iter().fold(builder, Builder::input_schema);
        let builder = output_schema.into_iter().fold(builder, Builder::output_schema);
        let builder = self.signals.into_iter().fold(builder, |builder, (name, schema)| builder.signal_schema(&name, schema));
        let builder = self.updates.into_iter().fold(builder, |builder, (name, schema)| builder.update_schema(&name, schema));
        let answers = self.update_answers.into_iter();
        let builder = answers.fold(builder, |builder, (name, schema)| builder.update_answer_schema(&name, schema));
        let builder = self.defaults.register(builder);
        previous.iter().fold(builder, |builder, version| builder.previous_foreign(version, agent, shell(Some(version))))
    }
}

impl TaskSettings {
    fn register(self, builder: Builder, host: &Arc<Host>) -> Builder {
        let (kind, host) = (self.kind.clone(), host.clone());
        let function = move |ctx: TaskCtx, input: Box<RawValue>| host.clone().run_task(kind.clone(), None, ctx, input);
        let builder = builder.task(self.kind.as_str(), function);
        let builder = if self.internal { builder.internal() } else { builder };
        let builder = self.input_schema.into_iter().fold(builder, Builder::input_schema);
        let builder = self.output_schema.into_iter().fold(builder, Builder::output_schema);
        self.defaults.register(builder)
    }
}

impl ToolSettings {
    /// Returns the tool, of one agent or of all code.
    fn tool(self, agent: Option<&str>, host: &Arc<Host>) -> Tool {
        let ToolSettings { name, description, input, class, timeout_ms, result_bytes_max, .. } = self;
        let (kind, agent, host) = (name.clone(), agent.map(str::to_owned), host.clone());
        let function = move |ctx: TaskCtx, arguments: Box<RawValue>| {
            let agent = Some(agent.clone().unwrap_or_default());
            host.clone().run_task(kind.clone(), agent, ctx, arguments)
        };
        let tool = Tool::with_schema(&name, &description, input, function);
        let tool = class.into_iter().fold(tool, Tool::class);
        let tool = self.retry.into_iter().fold(tool, |tool, policy| tool.retry(retry(policy)));
        let tool = timeout_ms.into_iter().fold(tool, |tool, timeout| tool.timeout(Duration::from_millis(timeout)));
        let tool = result_bytes_max.into_iter().fold(tool, Tool::result_bytes_max);
        let tool = if self.needs_approval { tool.needs_approval() } else { tool };
        if self.not_by_requester { tool.not_by_requester() } else { tool }
    }
}

impl AgentSettings {
    fn agent(self, host: &Arc<Host>) -> Agent {
        let name = self.name;
        let agent = Agent::new(&name).model(&self.model);
        let agent = self.system.into_iter().fold(agent, Agent::system);
        let agent = self.tools.into_iter().fold(agent, |agent, tool| agent.tool(tool.tool(Some(&name), host)));
        let other = |tool: AgentTool| Tool::agent(&tool.name, &tool.description, &tool.kind);
        let agent = self.agent_tools.into_iter().map(other).fold(agent, Agent::tool);
        let agent = self.handoff_to.iter().fold(agent, |agent, kind| agent.handoff_to(kind));
        let agent = self.max_turns.into_iter().fold(agent, Agent::max_turns);
        let agent = self.max_tool_calls.into_iter().fold(agent, Agent::max_tool_calls);
        let agent = self.max_handoffs.into_iter().fold(agent, Agent::max_handoffs);
        let agent = self.max_depth.into_iter().fold(agent, Agent::max_depth);
        let agent = if self.converse { agent.converse() } else { agent };
        let agent = self.compact_at.into_iter().fold(agent, Agent::compact_at);
        let agent = self.budget.into_iter().fold(agent, Agent::budget);
        if self.stop_at_budget { agent.stop_at_budget() } else { agent }
    }
}
