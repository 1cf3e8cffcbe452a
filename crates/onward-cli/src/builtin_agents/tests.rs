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
    let builtin = open(&text, &[("LOCAL_KEY", "sk-secret")]).unwrap_or_else(|mistake| panic!("{mistake:?}"));
    assert_eq!(builtin.agents.keys().collect::<Vec<_>>(), ["support"]);
    assert!(!format!("{:?}{:?}", builtin.models, builtin.mcp).contains("sk-"));
}

#[test]
fn an_unknown_limit_is_refused() {
    for (wrong, why) in
        [("token = 1", "unknown field `token`"), ("cost = 2", "expected a string"), ("tokens = -1", "invalid value")]
    {
        let error = toml::from_str::<Tables>(&GOOD.replace("tokens = 200000, cost = \"2.50\"", wrong)).unwrap_err().to_string();
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
