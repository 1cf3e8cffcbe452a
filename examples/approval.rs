//! An approval with a deadline: decided exactly once, or expired.
//!
//! `cargo run --example approval`

use std::time::Duration;

use onward::prelude::*;
use onward::{Decide, RunHandle};

const REFUND: Workflow<u64, String> = Workflow::new("refund");

async fn refund(ctx: Ctx, cents: u64) -> Result<String> {
    let approval = ctx.approval("refund", format!("Refund {cents} cents?")).show(&cents).deciders(["ada", "grace"]);
    let decision = approval.within(secs(2)).await?;
    Ok(match (decision.approved, decision.decided_by) {
        (true, by) => ctx.step("pay", async || pay(cents).await).await? + " by " + &by.unwrap_or_default(),
        (false, Some(by)) => format!("refused by {by}: {}", decision.feedback.unwrap_or_default()),
        (false, None) => "nobody decided in time".to_owned(),
    })
}

async fn pay(cents: u64) -> Result<String> {
    Ok(format!("paid {cents} cents"))
}

/// Waits until the run has requested its approval and returns the id.
async fn question(run: &RunHandle<String>) -> anyhow::Result<String> {
    loop {
        if let Some(awaited) = run.view().await?.awaiting.first() {
            return Ok(awaited.id.clone());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn decide(by: &str, approved: bool, feedback: &str) -> Decide {
    let (decided_by, decision_id) = (Some(by.to_owned()), format!("click of {by}"));
    Decide { approved, feedback: Some(feedback.to_owned()), decided_by, answer: None, decision_id }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let onward = Onward::embedded(directory.path()).workflow(&REFUND, refund).start().await?;

    let run = onward.start(&REFUND, &500u64).id("refund-1").await?;
    let id = question(&run).await?;
    println!("asked: {id}");
    onward.decide_approval(&id, decide("ada", true, "fine")).await?;
    println!("{}", run.result().await?);
    match onward.decide_approval(&id, decide("grace", false, "too much")).await {
        Ok(_) => println!("two people decided"),
        Err(error) => println!("grace came too late: error[{}]: {error}", error.code()),
    }

    let run = onward.start(&REFUND, &900u64).id("refund-2").await?;
    match onward.decide_approval(&question(&run).await?, decide("mallory", true, "")).await {
        Ok(_) => println!("anybody may decide"),
        Err(error) => println!("mallory may not: error[{}]: {error}", error.code()),
    }
    println!("{}", run.result().await?);
    onward.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use onward::testing::Script;

    #[test]
    fn refusal_and_silence_pay_nothing() {
        let refused = Script::new(super::refund, &5u64).reject("refund", "no");
        assert!(refused.run().steps_run().is_empty());
        assert_eq!(Script::new(super::refund, &5u64).run().output::<String>(), "nobody decided in time");
    }
}
