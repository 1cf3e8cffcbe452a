//! A workflow as a document: it plans with a model, searches in parallel, lets an agent write, and waits for a person.
//!
//! `cargo run --example flow-research`

use onward::agent::{Agent, Provider};
use onward::prelude::*;
use onward::{AwaitedKind, RunView};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

/// The task `web-search` of the flow. A real one would search.
async fn web_search(input: Value) -> Result<String> {
    println!("  (searching for {})", input["query"]);
    Ok(format!("something about {}", input["query"]))
}

/// A scripted model, so that the example needs no key.
async fn scripted() -> std::io::Result<ScriptedModel> {
    let model = ScriptedModel::start().await?;
    model.rule(Rule::when_user_says("questions about", ScriptedReply::text(r#"["Where does tea grow?", "Who drinks it?"]"#)));
    model.rule(Rule::when_user_says("Write a page", ScriptedReply::text("Tea grows on hills, and all drink it.")));
    Ok(model)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = scripted().await?;
    let directory = tempfile::tempdir()?;
    let onward = Onward::embedded(directory.path())
        .flow_text(include_str!("research.yaml"))
        .model("small", &Provider::openai(&format!("{}/v1", model.url()), None)?)
        .register(Agent::new("writer").model("small"))
        .task("web-search", web_search)
        .start()
        .await?;
    let run = onward.start::<Value, _>("research", &json!({"topic": "tea"})).id("tea").await?;
    let question = |view: &RunView| view.awaiting.iter().find(|awaited| awaited.kind == AwaitedKind::Approval).cloned();
    let view = run.until(|view| question(view).is_some()).await?;
    if let Some(approval) = question(&view) {
        println!("a person decides: {}", approval.name.map(|name| name.to_string()).unwrap_or_default());
        onward.approve(&approval.id).await?;
    }
    println!("published: {}", run.result().await?["page"]);
    onward.shutdown().await;
    Ok(())
}
