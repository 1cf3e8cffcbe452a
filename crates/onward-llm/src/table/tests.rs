//! Tests of the parent module.

use super::*;

const TABLE: &str = r#"
        [providers.openai]
        api_format = "openai"
        base_url = "https://api.openai.com/v1"
        key_env = "OPENAI_API_KEY"

        [providers.local]
        api_format = "openai"
        base_url = "http://localhost:11434/v1/"
        idle_timeout_seconds = 600
        retries = { outage_max = 5, wait_max_seconds = 90 }

        [models.fast]
        provider = "openai"
        name = "gpt-4o-mini"
        price = { input = "0.15", cached_read = "0.075", output = "0.60" }
        extras = { seed = "7", store = "false" }

        [models."llama3.2"]
        provider = "local"
        max_tokens = 500
    "#;

fn open(table: &str, env: &[(&str, &str)]) -> Result<Models, TableError> {
    let env: BTreeMap<&str, &str> = env.iter().copied().collect();
    let table: ModelTable = toml::from_str(table).map_err(|error| TableError::Invalid { why: error.to_string() })?;
    Models::open(&table, &Http::trusting([]), |name| env.get(name).map(|&value| value.to_owned()))
}

#[test]
fn a_table_names_models_and_what_they_cost() {
    let models = open(TABLE, &[("OPENAI_API_KEY", "sk-1")]).unwrap();
    assert_eq!(models.names().collect::<Vec<_>>(), ["fast", "llama3.2"]);
    let fast = models.find("fast").unwrap();
    assert_eq!(fast.provider.name(), "openai");
    let request =
        ModelRequest { extras: [("seed".into(), JsonText::parse("8").unwrap())].into(), ..ModelRequest::new("fast", vec![]) };
    let prepared = fast.prepare(&request);
    assert_eq!(
        (prepared.model.as_str(), prepared.extras["seed"].as_str(), prepared.extras["store"].as_str()),
        ("gpt-4o-mini", "8", "false")
    );
    assert_eq!(models.find("llama3.2").unwrap().prepare(&request).max_tokens, Some(500));
    assert!(!format!("{models:?}").contains("sk-1")); // LP2
    let expected = ModelRetries { outage_max: 5, wait_max: Duration::from_secs(90), ..ModelRetries::default() };
    assert_eq!(models.find("llama3.2").unwrap().provider.retries(), &expected);
    assert_eq!(fast.provider.retries(), &ModelRetries::default());
}

#[test]
fn a_missing_key_is_an_error_of_the_models_that_need_it() {
    let models = open(TABLE, &[("OPENAI_API_KEY", "")]).unwrap();
    assert!(models.find("llama3.2").is_ok());
    let codes = ["fast", "gpt-9"].map(|name| models.find(name).unwrap_err().code());
    assert_eq!(codes, ["model_key_missing", "unknown_model"]);
}

#[test]
fn mistakes_are_reported_with_their_place() {
    let changed = |from: &str, to: &str| open(&TABLE.replace(from, to), &[]).map(|_| ()).unwrap_err().to_string();
    assert!(changed("provider = \"local\"", "provider = \"lokal\"").contains("unknown provider `lokal`"));
    assert!(changed("http://localhost:11434/v1/", "localhost:11434/v1").contains("provider `local`: base_url"));
    assert!(changed("http://localhost:11434/v1/", "http://me:pw@localhost/v1").contains("without user name, password"));
    assert!(changed("\"0.60\"", "0.60").contains("invalid type: floating point"));
    assert!(changed("outage_max", "outages_max").contains("unknown field"));
    assert!(changed("idle_timeout_seconds", "idle_timeout").contains("unknown field"));
    assert!(changed("\"false\"", "\"no\"").contains("extras"));
}
