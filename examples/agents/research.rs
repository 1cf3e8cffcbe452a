//! Several agents: an editor, and researchers that work in parallel, all within one budget.
//!
//! `cargo run --example agent-research`

mod model;

use onward::agent::{Agent, AgentCtx, AgentOutcome, Role, Tool, Turn};
use onward::prelude::*;
use onward::{Budget, join_all_settled};
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

/// Starts a researcher for each topic and writes a report of their results. A failed researcher is a gap in the report.
async fn editor(ctx: AgentCtx, topics: Vec<String>) -> Result<String> {
    ctx.turns((), async |()| {
        let question = |topic: &String| format!(r#"Ask the library {{"topic": "{topic}"}}"#);
        // An equal share for each researcher and for the report; unspent tokens return.
        let share = ctx.budget_left().tokens.map(|left| left / (topics.len() as u64 + 1));
        let slice = Budget { tokens: share, ..Budget::default() };
        let researchers = topics.iter().map(|topic| ctx.child::<AgentOutcome>("researcher", &question(topic)).budget(slice));
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
        .register(Agent::new("researcher").model(model.name).tool(library).max_turns(5))
        .agent("editor", editor)
        .start()
        .await?;
    let topics = ["rivers", "bridges", "ferries"];
    let budget = Budget::default().tokens(20_000).seconds(600);
    let run = onward.start::<String, _>("editor", &topics).id("report").budget(budget).await?;
    println!("{}", run.result().await?);
    let head = run.view().await?.head;
    println!("the editor's own calls: {}", head.spend.as_ref().map_or(0, |spend| spend.attempts));
    let left = head.budget.map_or(budget, |budget| budget.left(head.spend.as_deref(), head.updated_at));
    println!("of {budget} there are left: {left}");
    onward.shutdown().await;
    Ok(())
}
