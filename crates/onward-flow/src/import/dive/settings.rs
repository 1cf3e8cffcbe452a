//! Turns agents, models and MCP servers into tables of the settings file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::fields::{DiveField, DiveFields, Notes};
use super::{slug, unique};
use crate::import::writer::{quoted, toml_key, toml_list, toml_text};

/// The settings of a document, and what flows need of them.
pub(super) struct DiveSettings {
    pub text: Option<String>,
    /// Agents by their names in the document.
    pub agents: Vec<(String, String)>,
    pub default_model: Option<String>,
}

/// An MCP server, with the tools that agents may name.
struct Server {
    name: String,
    tools: Option<Vec<String>>,
}

/// A model: its provider, and the most tokens of an answer.
type Models = BTreeMap<String, (String, Option<u64>)>;

pub(super) fn read(document: &mut DiveFields<'_>, notes: &mut Notes<'_>) -> DiveSettings {
    let defaults = config(document, notes);
    let mut out = String::new();
    let servers = servers(document, &mut out, notes);
    let mut models = Models::new();
    let mut agents = Vec::new();
    let mut tables = String::new();
    let mut taken = BTreeSet::new();
    let provider = defaults.provider.clone().unwrap_or_else(|| "openai".to_owned());
    for mut agent in document.maps("Agents", notes) {
        let original = agent.text("Name", notes).unwrap_or_else(|| "agent".to_owned());
        let name = unique(&slug(&original), &mut taken);
        self::agent(&mut agent, &name, &defaults, &servers, &mut models, &mut tables, notes);
        agent.finish(notes);
        agents.push((original, name));
    }
    if let Some(model) = &defaults.model {
        models.entry(model.clone()).or_insert((provider, None));
    }
    let mut text = String::new();
    for (model, (provider, max_tokens)) in &models {
        let _ = write!(text, "[models.{}]\nprovider = {}\n", toml_key(model), quoted(provider));
        if let Some(max_tokens) = max_tokens {
            let _ = writeln!(text, "max_tokens = {max_tokens}");
        }
        text.push('\n');
    }
    text.push_str(&out);
    text.push_str(&tables);
    let text = text.trim_end();
    DiveSettings { text: (!text.is_empty()).then(|| format!("{text}\n")), agents, default_model: defaults.model }
}

/// What the document sets for all agents.
#[derive(Default)]
struct Defaults {
    provider: Option<String>,
    model: Option<String>,
}

fn config(document: &mut DiveFields<'_>, notes: &mut Notes<'_>) -> Defaults {
    let mut defaults = Defaults::default();
    let Some(field) = document.take("Config") else { return defaults };
    let Some(mut config) = DiveFields::of(field.node, &field.path, notes) else { return defaults };
    defaults.provider = config.text("DefaultProvider", notes);
    defaults.model = config.text("DefaultModel", notes);
    if let Some(llm) = config.take("LLM")
        && let Some(mut llm) = DiveFields::of(llm.node, &llm.path, notes)
    {
        defaults.provider = defaults.provider.or(llm.text("DefaultProvider", notes));
        defaults.model = defaults.model.or(llm.text("DefaultModel", notes));
        llm.finish(notes);
    }
    for (name, why, hint) in [
        ("DefaultWorkflow", "a run names its flow", "start it with `onward flow run`"),
        ("ConfirmationMode", "approvals are set for each tool", "set `needs_approval` of the MCP server"),
        ("Confirmation", "approvals are set for each tool", "set `needs_approval` of the MCP server"),
        ("LogLevel", "the level of the log is not in a document", "use `--log-level`"),
        ("Logging", "the level of the log is not in a document", "use `--log-level`"),
    ] {
        if let Some(field) = config.take(name) {
            notes.field(&field, why, hint);
        }
    }
    for mut provider in config.maps("Providers", notes) {
        let name = provider.text("Name", notes).unwrap_or_default();
        let hint = "see `[providers]` of the settings; `openai` and `anthropic` need no table";
        notes.add(
            provider.line,
            &provider.path,
            format!("the settings of the provider `{name}`"),
            "they differ here",
            Some(hint),
        );
    }
    config.finish(notes);
    defaults
}

fn agent(
    agent: &mut DiveFields<'_>,
    name: &str,
    defaults: &Defaults,
    servers: &[Server],
    models: &mut Models,
    out: &mut String,
    notes: &mut Notes<'_>,
) {
    let provider = variable_free(agent.text("Provider", notes), "Provider", agent, notes).or_else(|| defaults.provider.clone());
    let provider = provider.unwrap_or_else(|| "openai".to_owned());
    let model = variable_free(agent.text("Model", notes), "Model", agent, notes).or_else(|| defaults.model.clone());
    let model = model.unwrap_or_else(|| {
        let hint = "name the model in `[models.default]`";
        notes.add(
            agent.line,
            &agent.path,
            format!("the model of the agent `{name}`"),
            "the document does not name it",
            Some(hint),
        );
        "default".to_owned()
    });
    let entry = models.entry(model.clone()).or_insert((provider.clone(), None));
    if entry.0 != provider {
        let why = format!("the model is used with the providers `{}` and `{provider}`", entry.0);
        notes.add(agent.line, &agent.path, format!("the provider of `{model}`"), why, Some("add a second table with `name`"));
    }
    let max_tokens = model_settings(agent, notes);
    entry.1 = entry.1.max(max_tokens);
    let goal = agent.plain_text("Goal", notes).map(|goal| format!("Your goal: {}", goal.trim()));
    let parts = [agent.plain_text("SystemPrompt", notes), goal, agent.plain_text("Instructions", notes)];
    let system: Vec<String> = parts.into_iter().flatten().map(|part| part.trim().to_owned()).collect();
    let _ = write!(out, "[agents.{}]\nmodel = {}\n", toml_key(name), quoted(&model));
    if !system.is_empty() {
        let _ = writeln!(out, "system = {}", toml_text(&system.join("\n\n")));
    }
    if let Some(limit) = agent.take("ToolIterationLimit") {
        match limit.node.to_value().as_u64() {
            Some(limit) => drop(writeln!(out, "max_turns = {limit}")),
            None => notes.field(&limit, "a number is expected", "set `max_turns`"),
        }
    }
    let mcp = tools(agent, servers, notes);
    if !mcp.is_empty() {
        let _ = writeln!(out, "mcp = {}", toml_list(&mcp));
    }
    out.push('\n');
    for (field, why, hint) in [
        (
            "IsSupervisor",
            "agents of the settings do not start each other",
            "let the flow run the agents, or write the agent in code",
        ),
        (
            "Subordinates",
            "agents of the settings do not start each other",
            "let the flow run the agents, or write the agent in code",
        ),
        ("ResponseTimeout", "the time limit is set where the agent is used", "set `timeout` of the steps"),
        ("ToolConfig", "tools are configured by their MCP server", "see `[mcp]` of the settings"),
        ("DateAwareness", "an agent does not know the date", "read it with `action: now`, and name it in the prompt"),
        ("Context", "an agent has one system prompt", "add the text to `system`"),
    ] {
        if let Some(field) = agent.take(field) {
            notes.field(&field, why, hint);
        }
    }
}

/// Drops a value with a variable of the environment.
fn variable_free(text: Option<String>, field: &str, agent: &DiveFields<'_>, notes: &mut Notes<'_>) -> Option<String> {
    let text = text?;
    if !text.contains("${") {
        return Some(text);
    }
    let why = "settings do not read such variables";
    notes.add(agent.line, &agent.path, format!("`{field}: {text}`"), why, Some("write the value into the settings"));
    // The part behind `:-` is the value without the variable.
    let default = text.split_once(":-")?.1.strip_suffix('}')?;
    (!default.is_empty()).then(|| default.to_owned())
}

fn model_settings(agent: &mut DiveFields<'_>, notes: &mut Notes<'_>) -> Option<u64> {
    let field = agent.take("ModelSettings")?;
    let mut settings = DiveFields::of(field.node, &field.path, notes)?;
    let max_tokens = settings.take("MaxTokens").and_then(|field| field.node.to_value().as_u64());
    for (_, field) in settings.rest() {
        notes.field(&field, "it is a field of the provider's request", "set it in `extras` of the model");
    }
    max_tokens
}

/// Returns the MCP servers of the tools of an agent.
fn tools(agent: &mut DiveFields<'_>, servers: &[Server], notes: &mut Notes<'_>) -> Vec<String> {
    let (line, path) = (agent.line, agent.path.clone());
    let mut found = BTreeSet::new();
    for tool in agent.texts("Tools", notes).unwrap_or_default() {
        let has = |server: &&Server| server.tools.as_ref().is_some_and(|tools| tools.contains(&tool));
        let open = || servers.iter().find(|server| server.tools.is_none());
        if let Some(server) = servers.iter().find(has) {
            found.insert(server.name.clone());
            continue;
        }
        match open() {
            Some(server) => {
                let why = format!("it may be one of the MCP server `{}`, which names no tools", server.name);
                notes.add(line, &path, format!("the tool `{tool}`"), why, Some("check `mcp` of the agent"));
                found.insert(server.name.clone());
            }
            None => {
                let hint = "add an MCP server with such a tool to the settings, or write the agent in code";
                let why = "agents of the settings have tools of MCP servers only";
                notes.add(line, &path, format!("the tool `{tool}`"), why, Some(hint));
            }
        }
    }
    found.into_iter().collect()
}

fn servers(document: &mut DiveFields<'_>, out: &mut String, notes: &mut Notes<'_>) -> Vec<Server> {
    let mut taken = BTreeSet::new();
    let mut servers = Vec::new();
    for mut server in document.maps("MCPServers", notes) {
        let name = unique(&slug(&server.text("Name", notes).unwrap_or_else(|| "mcp".to_owned())), &mut taken);
        let _ = server.text("Type", notes);
        let _ = writeln!(out, "[mcp.{}]", toml_key(&name));
        if let Some(command) = server.text("Command", notes) {
            let _ = writeln!(out, "command = {}", quoted(&command));
        }
        let arguments = server.texts("Args", notes).unwrap_or_default();
        if !arguments.is_empty() {
            let _ = writeln!(out, "arguments = {}", toml_list(&arguments));
        }
        if arguments.iter().any(|argument| argument.contains("${")) {
            let why = "arguments do not read variables of the environment";
            let hint = "pass the variable on with `inherits`";
            notes.add(server.line, &server.path, format!("the arguments of `{name}`"), why, Some(hint));
        }
        environment(&mut server, &name, out, notes);
        if let Some(url) = server.text("URL", notes) {
            let _ = writeln!(out, "url = {}", quoted(&url));
        }
        headers(&mut server, &name, out, notes);
        let tools = tool_configuration(&mut server, out, notes);
        if let Some(oauth) = server.take("OAuth") {
            notes.field(&oauth, "MCP servers have a key", "set `key_env`");
        }
        out.push('\n');
        server.finish(notes);
        servers.push(Server { name, tools });
    }
    servers
}

fn environment(server: &mut DiveFields<'_>, name: &str, out: &mut String, notes: &mut Notes<'_>) {
    let (mut values, mut inherits) = (Vec::new(), Vec::new());
    for (key, value) in server.text_map("Env", notes) {
        match variable(&value) {
            Some(variable) if variable == key => inherits.push(key),
            None if !value.contains("${") && !is_secret(&key) => values.push(format!("{} = {}", toml_key(&key), quoted(&value))),
            _ => {
                let why = "a key or a variable is not written into the settings";
                let hint = "set the variable where the server starts; it is in `inherits`";
                notes.add(server.line, &server.path, format!("the variable `{key}` of `{name}`"), why, Some(hint));
                inherits.push(key);
            }
        }
    }
    if !values.is_empty() {
        let _ = writeln!(out, "environment = {{ {} }}", values.join(", "));
    }
    if !inherits.is_empty() {
        let _ = writeln!(out, "inherits = {}", toml_list(&inherits));
    }
}

fn headers(server: &mut DiveFields<'_>, name: &str, out: &mut String, notes: &mut Notes<'_>) {
    let mut headers = Vec::new();
    let mut key = server.text("AuthorizationToken", notes);
    for (header, value) in server.text_map("Headers", notes) {
        if header.eq_ignore_ascii_case("authorization") {
            key = Some(value.strip_prefix("Bearer ").unwrap_or(&value).to_owned());
        } else if value.contains("${") || is_secret(&header) {
            let why = "a key or a variable is not written into the settings";
            notes.add(server.line, &server.path, format!("the header `{header}` of `{name}`"), why, Some("use `key_env`"));
        } else {
            headers.push(format!("{} = {}", toml_key(&header), quoted(&value)));
        }
    }
    if !headers.is_empty() {
        let _ = writeln!(out, "headers = {{ {} }}", headers.join(", "));
    }
    match key.as_deref().map(|key| (key, variable(key))) {
        None => {}
        Some((_, Some(variable))) => drop(writeln!(out, "key_env = {}", quoted(variable))),
        Some(_) => {
            let variable = format!("{}_KEY", name.to_ascii_uppercase().replace('-', "_"));
            let _ = writeln!(out, "key_env = {}", quoted(&variable));
            let why = "a key is not written into the settings";
            let hint = format!("set the variable `{variable}`");
            notes.add(server.line, &server.path, format!("the key of `{name}`"), why, Some(&hint));
        }
    }
}

fn tool_configuration(server: &mut DiveFields<'_>, out: &mut String, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let field = server.take("ToolConfiguration")?;
    let mut tools = DiveFields::of(field.node, &field.path, notes)?;
    if tools.flag("Enabled") == Some(false) {
        notes.field(&field, "the tools are disabled there", "remove the server from `mcp` of the agents");
    }
    let allowed = tools.texts("AllowedTools", notes).filter(|tools| !tools.is_empty());
    if let Some(allowed) = &allowed {
        let _ = writeln!(out, "tools = {}", toml_list(allowed));
    }
    let filter = tools.take("ApprovalFilter");
    let mode = tools.text("ApprovalMode", notes).map(|mode| mode.to_ascii_lowercase());
    let always = filter.as_ref().and_then(|filter| approval_filter(filter, mode.is_some(), notes));
    match (always, mode.as_deref()) {
        (Some(always), _) if !always.is_empty() => drop(writeln!(out, "needs_approval = {}", toml_list(&always))),
        (_, Some("always")) => out.push_str("needs_approval = true\n"),
        (_, None | Some("never")) => {}
        (_, Some(other)) => {
            let hint = "set `needs_approval` to true, false or a list of tools";
            notes.add(field.line, &field.path, format!("the approval mode `{other}`"), "it has no equivalent", Some(hint));
        }
    }
    tools.finish(notes);
    allowed
}

fn approval_filter(filter: &DiveField<'_>, has_mode: bool, notes: &mut Notes<'_>) -> Option<Vec<String>> {
    let mut fields = DiveFields::of(filter.node, &filter.path, notes)?;
    let always = fields.texts("Always", notes);
    if let Some(never) = fields.take("Never").filter(|_| has_mode) {
        notes.field(&never, "approvals are set by the tools that need one", "list the others in `needs_approval`");
    }
    fields.finish(notes);
    always
}

/// Returns the name of a variable of a value that is exactly `${NAME}`.
fn variable(value: &str) -> Option<&str> {
    let name = value.trim().strip_prefix("${")?.strip_suffix('}')?;
    let is_name = !name.is_empty() && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    is_name.then_some(name)
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["key", "token", "secret", "password", "auth", "cookie"].iter().any(|part| name.contains(part))
}
