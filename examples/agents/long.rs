//! A long conversation: old entries are summarized before they exceed the model's context, and nothing is lost.
//!
//! `cargo run --example agent-long`

mod model;

use onward::agent::Agent;
use onward::prelude::*;
use onward_llm_scripted::{Rule, ScriptedReply};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = model::talker().await?;
    if let Some(scripted) = &model.scripted {
        scripted.rule(Rule::when_user_says(
            "Summarize the conversation",
            ScriptedReply::text("The user counts, and is at ten or so."),
        ));
    }
    let directory = tempfile::tempdir()?;
    let agent = Agent::new("listener").model(model.name).converse().compact_at(150);
    let builder = Onward::embedded(directory.path()).model(model.name, &model.provider).register(agent);
    let onward = builder.start().await?;
    let run = onward.start::<(), _>("listener", "I am counting: 1").id("long").await?;
    for number in 2..=16 {
        // The agent answers and waits for the next message: a moment here, perhaps weeks elsewhere.
        run.until(|view| view.head.generation == number && !view.awaiting.is_empty()).await?;
        run.message(&format!("I am counting: {number}")).await?;
    }
    run.until(|view| view.head.generation == 17 && !view.awaiting.is_empty()).await?;
    let entries = run.entries().await?.entries;
    let count_by = |role: &str| entries.iter().filter(|entry| entry.role.as_str() == role).count();
    println!("said: {} by the user, {} by the model", count_by("user"), count_by("assistant"));
    println!("summaries: {}", if count_by("summary") > 0 { "yes" } else { "no" });
    if let Some(request) = model.scripted.as_ref().and_then(|scripted| scripted.requests().pop()) {
        let sent = request.body["messages"].as_array().map_or(0, Vec::len);
        println!("sent with the last call: {}", if sent < 31 { "a part of it" } else { "everything" });
    }
    run.cancel("enough").await?;
    onward.shutdown().await;
    Ok(())
}
