//! A dangerous tool waits for a person, who sees the exact arguments of the call.
//!
//! `cargo run --example agent-approval`

mod model;

use onward::agent::{Agent, AgentOutcome, Tool};
use onward::prelude::*;
use onward::{AwaitedKind, Payload, RunView};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct Refund {
    order: String,
    cents: u64,
}

async fn refund(Refund { order, cents }: Refund) -> Result<String> {
    println!("  (paying {cents} cents back for {order})");
    Ok(format!("refunded {cents} cents"))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = model::talker().await?;
    let directory = tempfile::tempdir()?;
    // If the worker dies during a payment, its outcome is unknown, and it is not tried again.
    let refund = Tool::new("refund", "Pays money back", refund).at_most_once().needs_approval();
    let agent = Agent::new("cashier").model(model.name).tool(refund);
    let builder = Onward::embedded(directory.path()).model(model.name, &model.provider).register(agent);
    let onward = builder.start().await?;
    for (id, decision) in [("first", true), ("second", false)] {
        let request = r#"Please use refund {"order": "A-17", "cents": 1900}"#;
        let run = onward.start::<AgentOutcome, _>("cashier", request).id(id).await?;
        let is_requested = |view: &RunView| view.awaiting.iter().any(|awaited| awaited.kind == AwaitedKind::Approval);
        let approval_id = run.until(is_requested).await?.awaiting.remove(0).id;
        let question = onward.list_approvals().await?.remove(0);
        println!("{id}: {} {}", question.title, String::from_utf8_lossy(question.show.unwrap_or_else(Payload::null).data()));
        match decision {
            true => onward.approve(&approval_id).await?,
            false => onward.disapprove(&approval_id, "over the limit").await?,
        };
        println!("{id}: {}", run.result().await?.text);
    }
    onward.shutdown().await;
    Ok(())
}
