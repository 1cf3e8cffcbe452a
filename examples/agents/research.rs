//! Several agents: one that asks, and others that look things up at the same time.
//!
//! `cargo run --example agent-research`

mod model;

use onward::agent::{Agent, AgentCtx, AgentOutcome, Role, Tool, Turn};
use onward::join_all_settled;
use onward::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Topic {
    topic: String,
}

async fn library(Topic { topic }: Topic) -> Result<String> {
    Ok(format!("three books about {topic}"))
}

struct Name(&'static str);

/// Sends a researcher out for each topic, and writes a report of what they bring. A researcher that fails is a gap in the report.
async fn editor(ctx: AgentCtx, topics: Vec<String>) -> Result<String> {
    ctx.turns((), async |()| {
        let ask = |topic: &String| format!(r#"Ask the library {{"topic": "{topic}"}}"#);
        let researchers = topics.iter().map(|topic| ctx.child::<AgentOutcome>("researcher", &ask(topic)));
        for (topic, found) in topics.iter().zip(join_all_settled(researchers).await) {
            let note = found.map_or_else(|failure| format!("nothing ({})", failure.message), |outcome| outcome.text);
            ctx.append(Role::User, &format!("About {topic}: {note}")).await?;
        }
        let report = ctx.llm(ctx.dep::<Name>().0).system("Write a report of what was found.").await?;
        ctx.append(Role::Assistant, &report).await?;
        Ok(Turn::Done(report.text()))
    })
    .await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = model::talker().await?;
    let directory = tempfile::tempdir()?;
    let library = Tool::new("library", "Finds books about a topic", library).pure();
    let onward = Onward::embedded(directory.path())
        .model(model.name, &model.provider)
        .dep(Name(model.name))
        .register_agent(Agent::new("researcher").model(model.name).tool(library).max_turns(5))
        .agent("editor", editor)
        .start()
        .await?;
    let topics = ["rivers", "bridges", "ferries"];
    let run = onward.start::<String, _>("editor", &topics).id("report").await?;
    println!("{}", run.result().await?);
    println!("the editor's own calls: {}", run.view().await?.head.spend.map_or(0, |spend| spend.attempts));
    onward.shutdown().await;
    Ok(())
}
