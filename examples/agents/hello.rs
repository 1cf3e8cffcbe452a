//! The smallest agent: a model, a system prompt, and a durable answer.
//!
//! `cargo run --example agent-hello`, with `OPENAI_API_KEY` for a real model

mod model;

use onward::agent::{Agent, AgentOutcome};
use onward::prelude::*;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = model::talker().await?;
    let directory = tempfile::tempdir()?; // a real program keeps its directory
    let agent = Agent::new("hello").model(model.name).system("You are brief and kind.");
    let builder = Onward::embedded(directory.path()).model(model.name, &model.provider).register(agent);
    let onward = builder.start().await?;

    let run = onward.start::<AgentOutcome, _>("hello", "Good morning!").id("morning").await?;
    let outcome = run.result().await?;
    println!("{:?} after {} turn: {}", outcome.stop, outcome.turns, outcome.text);

    // The same id is the same run: the model is not called again.
    let again = onward.start::<AgentOutcome, _>("hello", "Good morning!").id("morning").await?;
    println!("once more: {}", again.result().await?.text);
    onward.shutdown().await;
    Ok(())
}
