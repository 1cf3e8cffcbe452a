//! The built-in workers: models and agents of the settings, run by this process.
//!
//! Validates the tables before anything starts: unknown providers, models and MCP servers, and unset variables. Must never print
//! a key, and never connect to an address that is not in the settings.

mod tools;
mod workers;

use std::collections::BTreeMap;

use anyhow::Result;
use onward::Builder;
use onward::agent::{Agent, ApiFormat, Attachments, Http, ModelTable, Models, ProviderSettings, TableError, Tools};
use onward_core::Namespace;

use crate::config::{AgentSettings, Config, McpSettings, Tables};
use crate::error::{Mistake, USAGE};
pub use workers::Workers;

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
        let namespaces = config.parsed("server.namespaces", namespaces)?.unwrap_or_default();
        let Some(tables) = config.tables().filter(|tables| !tables.models.is_empty() || !tables.agents.is_empty()) else {
            return Ok(None);
        };
        let mut house = BuiltinAgents::of(tables, &Http::new(), |name| std::env::var(name).ok())?;
        house.namespaces = namespaces;
        house.attachments = config.text("server.attachments").map(Attachments::folder);
        // Paths are relative to the file.
        if let Some(near) = config.file().and_then(|path| path.parent()).filter(|near| !near.as_os_str().is_empty()) {
            let folders = house.mcp.values_mut().filter_map(|mcp| mcp.folder.as_mut());
            folders.for_each(|folder| *folder = near.join(&*folder));
        }
        Ok(Some(house))
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
        let models = Models::open(&table, http, env).map_err(told)?;
        for name in models.names() {
            models.find(name).map_err(told)?; // fails if the key is missing
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

    /// Registers all models and agents with one worker. Fails if an MCP server does not answer.
    pub async fn equip(&self, builder: Builder) -> Result<Builder> {
        let mut builder = self.equip_plain(builder);
        for (name, settings) in self.agents.iter().filter(|(_, settings)| !settings.mcp.is_empty()) {
            builder = builder.register(agent(name, settings).tools(&self.tools_of(settings).await?));
        }
        Ok(builder)
    }

    /// Registers the models, and the agents without MCP servers.
    fn equip_plain(&self, builder: Builder) -> Builder {
        let builder = self.attachments.iter().cloned().fold(builder, Builder::attachments);
        let plain = self.agents.iter().filter(|(_, settings)| settings.mcp.is_empty());
        plain.fold(builder.models(&self.models), |builder, (name, settings)| builder.register(agent(name, settings)))
    }

    async fn tools_of(&self, settings: &AgentSettings) -> Result<Tools> {
        let mut tools = Tools::new();
        for name in &settings.mcp {
            let mcp = self.mcp.get(name).expect("the tables of agents were checked");
            tools = tools::add(tools, name, mcp).await?;
        }
        Ok(tools)
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
    Mistake::usage("config_invalid", message, hint)
}

fn told(error: TableError) -> Mistake {
    Mistake { code: error.code(), message: error.to_string(), hint: Some(error.hint().to_owned()), exit: USAGE }
}

fn namespaces(text: &str) -> Result<Vec<Namespace>, String> {
    text.split(',').map(|name| Namespace::new(name.trim()).map_err(|error| error.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        [providers.local]
        api_format = "openai"
        base_url = "http://127.0.0.1:9/v1"
        key_env = "LOCAL_KEY"

        [models.small]
        provider = "local"

        [mcp.files]
        command = "files-server"
        key_env = "LOCAL_KEY"

        [agents.support]
        model = "small"
        system = "Be brief."
        max_turns = 3
        max_tool_calls = 40
        converse = true
        budget = { tokens = 200000, cost = "2.50" }
        stop_at_budget = true
        mcp = ["files"]
    "#;

    fn open(text: &str, set: &[(&str, &str)]) -> Result<BuiltinAgents, Mistake> {
        let tables: Tables = toml::from_str(text).unwrap();
        let set: BTreeMap<&str, &str> = set.iter().copied().collect();
        BuiltinAgents::of(&tables, &Http::trusting([]), |name| set.get(name).map(|&value| value.to_owned()))
    }

    #[track_caller]
    fn refused(from: &str, to: &str, message: &str, hint: &str) {
        let text = GOOD.replace("key_env = \"LOCAL_KEY\"\n\n        [agents", "\n        [agents").replace(from, to);
        let mistake = open(&text, &[("LOCAL_KEY", "sk-secret")]).err().expect("it is refused");
        assert_eq!((mistake.message.as_str(), mistake.hint.as_deref().unwrap()), (message, hint));
        assert!(!format!("{mistake:?}").contains("sk-"), "{mistake:?}");
    }

    #[test]
    fn tables_that_fit_together_are_a_house() {
        let text = GOOD.replace("key_env = \"LOCAL_KEY\"\n\n        [agents", "\n        [agents");
        let house = open(&text, &[("LOCAL_KEY", "sk-secret")]).unwrap_or_else(|mistake| panic!("{mistake:?}"));
        assert_eq!(house.agents.keys().collect::<Vec<_>>(), ["support"]);
        assert!(!format!("{:?}{:?}", house.models, house.mcp).contains("sk-"));
    }

    #[test]
    fn a_limit_that_nobody_knows_is_refused() {
        for (wrong, why) in
            [("token = 1", "unknown field `token`"), ("cost = 2", "expected a string"), ("tokens = -1", "invalid value")]
        {
            let error =
                toml::from_str::<Tables>(&GOOD.replace("tokens = 200000, cost = \"2.50\"", wrong)).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_provider_nobody_knows() {
        let hint = "use `openai`, `anthropic` or a table [providers.…]; defined: local";
        refused("provider = \"local\"", "provider = \"lokal\"", "`models.small`: unknown provider `lokal`", hint);
    }

    #[test]
    fn a_variable_that_is_not_set() {
        let message = "the model `small` needs a key, and the environment variable OTHER_KEY is not set";
        refused("LOCAL_KEY", "OTHER_KEY", message, "set it for the process that calls models, and start that process again");
    }

    #[test]
    fn a_usual_provider_wants_its_usual_variable() {
        let message = "the model `small` needs a key, and the environment variable ANTHROPIC_API_KEY is not set";
        let hint = "set it for the process that calls models, and start that process again";
        refused("provider = \"local\"", "provider = \"anthropic\"", message, hint);
    }

    #[test]
    fn a_key_where_its_variable_belongs() {
        let hint = "store the key in an environment variable and set `key_env` to its name";
        let message = "`providers.local`: `key_env` is not the name of an environment variable";
        refused("LOCAL_KEY", "sk-secret", message, hint);
    }

    #[test]
    fn an_address_that_is_none() {
        let message = "the model table is invalid: provider `local`: base_url must be http(s)://HOST[:PORT][/PATH], without user name, password or query";
        refused("http://127.0.0.1:9/v1", "http://me:sk-1@x/v1", message, "see docs/guide/models.md for an example");
    }

    #[test]
    fn a_model_or_a_server_of_tools_that_is_not_there() {
        let hint = "use a model with a table [models.…]; defined: small";
        refused("model = \"small\"", "model = \"large\"", "`agents.support`: unknown model `large`", hint);
        let hint = "use an MCP server with a table [mcp.…]; defined: files";
        refused("[\"files\"]", "[\"fils\"]", "`agents.support`: unknown MCP server `fils`", hint);
    }

    #[test]
    fn numbers_that_make_no_sense() {
        refused("max_turns = 3", "max_turns = 0", "`agents.support`: `max_turns` is 0", "omit it for the default of 50");
        let hint = "omit it to summarize only when the context is too long";
        refused("max_turns = 3", "compact_at = 0", "`agents.support`: `compact_at` is 0", hint);
    }

    #[test]
    fn a_server_of_tools_is_one_thing() {
        let hint = "set `command`, `arguments`, `environment`, `inherits` and `folder`, or `url`, `headers` and `key_env`";
        let message = "`mcp.files` must have either `command` or `url`";
        refused("command = \"files-server\"", "url = \"http://x\"\ncommand = \"y\"", message, hint);
        refused("command = \"files-server\"", "", message, hint);
        let message = "`mcp.files`: `key_env` needs `url`; a program gets the variables of `inherits`";
        let mistake = open(GOOD, &[("LOCAL_KEY", "x")]).err().unwrap();
        assert_eq!((mistake.message.as_str(), mistake.hint.as_deref()), (message, Some(hint)));
        let message = "`mcp.files`: the variable GONE of `inherits` is not set";
        let hint = "set it for the process that starts the program, or remove it from `inherits`";
        refused("command = \"files-server\"", "command = \"files-server\"\ninherits = [\"LOCAL_KEY\", \"GONE\"]", message, hint);
        let message = "`mcp.files`: the environment variable TOOLS_KEY with its key is not set";
        let hint = "set it for the process that calls the tools and restart that process";
        refused("command = \"files-server\"", "url = \"http://x\"\nkey_env = \"TOOLS_KEY\"", message, hint);
    }

    #[test]
    fn namespaces_are_apart_by_commas() {
        assert_eq!(namespaces("default, acme").unwrap().len(), 2);
        assert!(namespaces("a,,b").is_err());
    }
}
