//! Waiting runs: their memory and disk space.

use std::ops::Range;
use std::time::Duration;

use anyhow::{Result, ensure};
use onward::prelude::*;
use onward::{RunQuery, Status};

use crate::Plan;
use crate::machine::{disk_bytes, resident};

const WAIT: Workflow<u64, u64> = Workflow::new("wait");

async fn wait(ctx: Ctx, number: u64) -> onward::Result<u64> {
    let more: u64 = ctx.signal("go").recv().await?;
    Ok(number + more)
}

pub async fn measure(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let onward = Onward::embedded(directory.path()).workflow(&WAIT, wait).start().await?;
    let count: u64 = if plan.quick { 30_000 } else { 100_000 };
    // The caches of store and worker fill with the first runs; only what each further one adds is counted.
    let warm_up = 10_000;
    start(&onward, 0..warm_up).await?;
    settle(&onward).await?;
    let (memory, disk) = (resident(), disk_bytes(directory.path())?);
    start(&onward, warm_up..count).await?;
    settle(&onward).await?;
    let added = (count - warm_up) as f64;
    plan.report("suspended.rss_bytes", (resident().saturating_sub(memory)) as f64 / added, "B");
    plan.report("suspended.disk_bytes", (disk_bytes(directory.path())?.saturating_sub(disk)) as f64 / added, "B");
    onward.shutdown().await;
    Ok(())
}

async fn start(onward: &Onward, numbers: Range<u64>) -> Result<()> {
    start_all(numbers, |number| {
        let onward = onward.clone();
        async move { Ok(onward.start(&WAIT, &number).id(format!("wait-{number}")).await.map(drop)?) }
    })
    .await
}

/// Calls `start` with each number, 512 at a time.
pub async fn start_all<F>(numbers: Range<u64>, start: impl Fn(u64) -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    for first in numbers.clone().step_by(512) {
        let batch = first..(first + 512).min(numbers.end);
        for started in batch.map(|number| tokio::spawn(start(number))).collect::<Vec<_>>() {
            started.await??;
        }
    }
    Ok(())
}

/// Waits until every run is waiting and only the cached ones are in memory.
async fn settle(onward: &Onward) -> Result<()> {
    for _ in 0..600 {
        let query = RunQuery { statuses: vec![Status::Pending, Status::Running], limit: 1, ..RunQuery::default() };
        if onward.list_runs(query).await?.runs.is_empty() && onward.hot_runs() <= 1_000 {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    ensure!(false, "the runs did not become idle");
    Ok(())
}
