//! Replay from memory: how fast code catches up with its log.

use std::time::Instant;

use anyhow::Result;
use onward::prelude::*;
use onward::testing::{Replay, Script};

use crate::Plan;
use crate::machine::median;

async fn many_steps(ctx: Ctx, count: u64) -> onward::Result<u64> {
    for _ in 0..count {
        ctx.step("step", async || Ok::<_, Failure>("x".repeat(198))).await?;
    }
    Ok(count)
}

pub fn measure(plan: &Plan) -> Result<()> {
    let outcome = Script::new(many_steps, &10_000u64).without_shadow_replay().run();
    let (log, events) = (outcome.log(), outcome.log().next_index().0);
    let mut rates = Vec::new();
    for _ in 0..if plan.quick { 5 } else { 15 } {
        let start = Instant::now();
        let replayed = Replay::new("test", log).against(many_steps);
        replayed.map_err(|report| anyhow::anyhow!("the log diverged: {report:?}"))?;
        rates.push(events as f64 / start.elapsed().as_secs_f64());
    }
    plan.report("replay.events_per_s", median(rates), "1/s");
    Ok(())
}
