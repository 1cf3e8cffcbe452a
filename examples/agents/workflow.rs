//! An agent inside a workflow, and a workflow as an agent's tool.
//!
//! `cargo run --example agent-workflow`

mod model;

use onward::agent::{Agent, AgentOutcome, Tool};
use onward::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize, JsonSchema)]
struct Order {
    item: String,
}

/// Charges an order once, whatever the agent does: a workflow is replayed strictly.
async fn order(ctx: Ctx, order: Order) -> Result<String> {
    let receipt = ctx.step("charge", async || charge(&order.item).await).await?;
    Ok(format!("ordered {}: {receipt}", order.item))
}

async fn charge(item: &str) -> Result<String> {
    println!("  (charging for {item})");
    Ok("paid 12.50".to_owned())
}

/// Runs an agent as a child and files its result.
async fn wish(ctx: Ctx, wish: String) -> Result<String> {
    let outcome: AgentOutcome = ctx.child("shopper", &wish).await?;
    ctx.step("file", async || file(&outcome).await).await
}

async fn file(outcome: &AgentOutcome) -> Result<String> {
    Ok(format!("filed as {:?}: {}", outcome.stop, outcome.text))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = model::talker().await?;
    let directory = tempfile::tempdir()?;
    // Each call starts a child run, which may take as long as it needs.
    let buy = Tool::workflow::<Order>("place_order", "Orders something", "order");
    let onward = Onward::embedded(directory.path())
        .model(model.name, &model.provider)
        .workflow("order", order)
        .register(Agent::new("shopper").model(model.name).tool(buy))
        .workflow("wish", wish)
        .start()
        .await?;
    let run = onward.start::<String, _>("wish", r#"Please place_order {"item": "a teapot"}"#).id("wish").await?;
    println!("{}", run.result().await?);
    onward.shutdown().await;
    Ok(())
}
