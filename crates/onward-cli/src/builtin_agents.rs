//! The models and agents that the settings name, and the workers of this process that have them.
//!
//! Owns what is refused before anything starts: a provider, a model, a server of tools that is not there, a variable that is not set. Must
//! never tell a key, and never ask an address that the operator did not name.

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

/// What the tables of the settings come to.
pub struct BuiltinAgents {
    models: Models,
    agents: BTreeMap<String, AgentSettings>,
    mcp: BTreeMap<String, McpSettings>,
    namespaces: Vec<Namespace>,
    attachments: Option<Attachments>,
}

impl BuiltinAgents {
    /// `None` where the settings name neither models nor agents.
    pub fn open(config: &Config) -> Result<Option<BuiltinAgents>, Mistake> {
        let namespaces = config.parsed("server.namespaces", namespaces)?.unwrap_or_default();
        let Some(tables) = config.tables().filter(|tables| !tables.models.is_empty() || !tables.agents.is_empty()) else {
            return Ok(None);
        };
        let mut house = BuiltinAgents::of(tables, &Http::new(), |name| std::env::var(name).ok())?;
        house.namespaces = namespaces;
        house.attachments = config.text("server.attachments").map(Attachments::folder);
        // A path in a file counts from where the file is.
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
                let message = format!("`models.{name}`: there is no provider `{}`", settings.provider);
                let hint = format!("it is `openai`, `anthropic`, or a table of its own{}", listed("[providers.…]", &known));
                return Err(invalid(message, &hint));
            }
        }
        let table = ModelTable { providers, models: tables.models.clone() };
        let models = Models::open(&table, http, env).map_err(told)?;
        for name in models.names() {
            models.find(name).map_err(told)?; // a key that is missing
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

    /// Names of the models.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.names()
    }

    /// Names of the agents.
    pub fn agents(&self) -> impl Iterator<Item = &str> {
        self.agents.keys().map(String::as_str)
    }

    /// Gives everything to one worker, whose servers of tools must answer.
    pub async fn equip(&self, builder: Builder) -> Result<Builder> {
        let mut builder = self.equip_plain(builder);
        for (name, settings) in self.agents.iter().filter(|(_, settings)| !settings.mcp.is_empty()) {
            builder = builder.register_agent(agent(name, settings).tools(&self.tools_of(settings).await?));
        }
        Ok(builder)
    }

    /// Gives a worker the models, and the agents whose tools need nobody else.
    fn equip_plain(&self, builder: Builder) -> Builder {
        let builder = self.attachments.iter().cloned().fold(builder, Builder::attachments);
        let plain = self.agents.iter().filter(|(_, settings)| settings.mcp.is_empty());
        plain.fold(builder.models(&self.models), |builder, (name, settings)| builder.register_agent(agent(name, settings)))
    }

    async fn tools_of(&self, settings: &AgentSettings) -> Result<Tools> {
        let mut tools = Tools::new();
        for name in &settings.mcp {
            let mcp = self.mcp.get(name).expect("agents name tables that are there");
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

/// The two providers that need no table of their own.
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
            let message = format!("`agents.{name}`: there is no model `{}`", settings.model);
            return Err(invalid(message, &format!("models have tables{}", listed("[models.…]", &known))));
        }
        if let Some(mcp) = settings.mcp.iter().find(|mcp| !tables.mcp.contains_key(*mcp)) {
            let known: Vec<&str> = tables.mcp.keys().map(String::as_str).collect();
            let message = format!("`agents.{name}`: there is no server of tools `{mcp}`");
            return Err(invalid(message, &format!("they have tables{}", listed("[mcp.…]", &known))));
        }
        if settings.max_turns == Some(0) {
            return Err(invalid(format!("`agents.{name}`: `max_turns` is 0"), "leave it out for 50"));
        }
        if settings.compact_at == Some(0) {
            return Err(invalid(
                format!("`agents.{name}`: `compact_at` is 0"),
                "leave it out to sum up only what is too long for the model",
            ));
        }
    }
    Ok(())
}

/// Whoever writes a key where its variable belongs must not find it in an error.
fn check_variable(name: Option<&str>, table: &str) -> Result<(), Mistake> {
    let usable = |name: &str| {
        let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        plain && name.bytes().next().is_some_and(|first| !first.is_ascii_digit())
    };
    if name.is_none_or(usable) {
        return Ok(());
    }
    let message = format!("`{table}`: `key_env` is not the name of a variable of the environment");
    Err(invalid(message, "the key itself is not read from here: set a variable, and write its name"))
}

fn listed(what: &str, known: &[&str]) -> String {
    if known.is_empty() { format!(" {what}, and none is there") } else { format!(" {what}; there are: {}", known.join(", ")) }
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
        dialect = "openai"
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
        let hint = "it is `openai`, `anthropic`, or a table of its own [providers.…]; there are: local";
        refused("provider = \"local\"", "provider = \"lokal\"", "`models.small`: there is no provider `lokal`", hint);
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
        let hint = "the key itself is not read from here: set a variable, and write its name";
        let message = "`providers.local`: `key_env` is not the name of a variable of the environment";
        refused("LOCAL_KEY", "sk-secret", message, hint);
    }

    #[test]
    fn an_address_that_is_none() {
        let message = "the model table is invalid: provider `local`: base_url must be http(s)://HOST[:PORT][/PATH], without user name, password or query";
        refused("http://127.0.0.1:9/v1", "http://me:sk-1@x/v1", message, "see docs/guide/models.md for an example");
    }

    #[test]
    fn a_model_or_a_server_of_tools_that_is_not_there() {
        let hint = "models have tables [models.…]; there are: small";
        refused("model = \"small\"", "model = \"large\"", "`agents.support`: there is no model `large`", hint);
        let hint = "they have tables [mcp.…]; there are: files";
        refused("[\"files\"]", "[\"fils\"]", "`agents.support`: there is no server of tools `fils`", hint);
    }

    #[test]
    fn numbers_that_make_no_sense() {
        refused("max_turns = 3", "max_turns = 0", "`agents.support`: `max_turns` is 0", "leave it out for 50");
        let hint = "leave it out to sum up only what is too long for the model";
        refused("max_turns = 3", "compact_at = 0", "`agents.support`: `compact_at` is 0", hint);
    }

    #[test]
    fn a_server_of_tools_is_one_thing() {
        let hint = "a program has `command`, `arguments`, `environment`, `inherits` and `folder`; a server elsewhere `url`, `headers` and `key_env`";
        let message = "`mcp.files` is neither a program nor a URL, or both";
        refused("command = \"files-server\"", "url = \"http://x\"\ncommand = \"y\"", message, hint);
        refused("command = \"files-server\"", "", message, hint);
        let message = "`mcp.files`: `key_env` goes with `url`; a program gets the variables that `inherits` names";
        let mistake = open(GOOD, &[("LOCAL_KEY", "x")]).err().unwrap();
        assert_eq!((mistake.message.as_str(), mistake.hint.as_deref()), (message, Some(hint)));
        let message = "`mcp.files` is to get a variable of this process that is not set: GONE";
        let hint = "set it for the process that starts the program, or leave it out of `inherits`";
        refused("command = \"files-server\"", "command = \"files-server\"\ninherits = [\"LOCAL_KEY\", \"GONE\"]", message, hint);
        let message = "`mcp.files` needs a key, and the environment variable TOOLS_KEY is not set";
        let hint = "set it for the process that calls the tools, and start that process again";
        refused("command = \"files-server\"", "url = \"http://x\"\nkey_env = \"TOOLS_KEY\"", message, hint);
    }

    #[test]
    fn namespaces_are_apart_by_commas() {
        assert_eq!(namespaces("default, acme").unwrap().len(), 2);
        assert!(namespaces("a,,b").is_err());
    }
}
