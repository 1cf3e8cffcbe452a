//! An agent function of one's own, turn by turn, with tools that are typed functions.
//!
//! `cargo run --example agent-tools`

mod model;

use onward::agent::{AgentCtx, Role, Tool, Tools, Turn};
use onward::join_all;
use onward::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;

/// The arguments of the tool `weather`. The model receives these comments.
#[derive(Deserialize, JsonSchema)]
struct Where {
    /// A city, without its country.
    city: String,
}

async fn weather(Where { city }: Where) -> Result<String> {
    println!("  (looking out of a window in {city})");
    Ok(format!("18 degrees and sunny in {city}"))
}

async fn assistant(ctx: AgentCtx, question: String) -> Result<String> {
    ctx.append(Role::User, &question).await?;
    let tools = ctx.dep::<Tools>();
    // Every turn ends in a checkpoint. After a crash the function starts again, is replayed, and continues in the open turn.
    ctx.turns((), async |()| {
        let reply = ctx.llm(ctx.dep::<Name>().0).tools(&tools).await?;
        ctx.append(Role::Assistant, &reply).await?;
        if reply.wants_tools() {
            for outcome in join_all(reply.calls().map(|call| ctx.tool(call))).await? {
                ctx.append(Role::Tool, &outcome).await?;
            }
            return Ok(Turn::Next(()));
        }
        Ok(Turn::Done(reply.text()))
    })
    .await
}

/// The name of the model.
struct Name(&'static str);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = model::talker().await?;
    let directory = tempfile::tempdir()?;
    let tools = Tools::new().with(Tool::new("weather", "Tells the weather in a city", weather).pure());
    let onward = Onward::embedded(directory.path())
        .model(model.name, &model.provider)
        .tools(tools)
        .dep(Name(model.name))
        .agent("assistant", assistant)
        .start()
        .await?;
    let run = onward.start::<String, _>("assistant", r#"What does the tool weather say of {"city": "Ulm"}?"#).await?;
    println!("{}", run.result().await?);
    onward.shutdown().await;
    Ok(())
}
