//! Live views of runs over a server: what ten readers cost, and how soon a reader sees that a step has begun.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::Result;
use onward::live::LiveContent;
use onward::prelude::*;
use onward_core::Index;

use crate::machine::median;
use crate::server::ServerProcess;
use crate::{Plan, steps};

const READERS: usize = 10;

/// Runs ten steps per run, 512 at a time, in turn without and with readers.
pub async fn readers(plan: &Plan) -> Result<()> {
    let (mut alone, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..if plan.quick { 1 } else { 5 } {
        alone.push(round(plan, 0).await?);
        watched.push(round(plan, READERS).await?);
    }
    plan.report("server.steps_per_s.c512_unwatched", median(alone), "1/s");
    plan.report("server.steps_per_s.c512_watched", median(watched), "1/s");
    Ok(())
}

/// Returns the throughput of a new server while each reader follows one run after the other from its start to its end.
async fn round(plan: &Plan, readers: usize) -> Result<f64> {
    let directory = plan.fresh()?;
    let server = ServerProcess::start(directory.path())?;
    let onward = steps::with_ten_steps(Onward::connect(server.url())).start().await?;
    let readers: Vec<_> = (0..readers).map(|_| tokio::spawn(read_runs(onward.clone()))).collect();
    let measured = steps::load(plan, &onward, 512, None).await?;
    readers.iter().for_each(|reader| reader.abort());
    onward.shutdown().await;
    Ok(measured.steps_per_s)
}

async fn read_runs(onward: Onward) -> Result<()> {
    loop {
        let mut live = steps::start_ten(&onward).await?.watch(Index(0)).await?;
        while live.next().await?.is_some() {}
    }
}

/// Times at which the steps began.
type Began = Arc<Mutex<Vec<Instant>>>;

const SLOW: Workflow<u64, u64> = Workflow::new("slow-steps");

async fn slow_steps(ctx: Ctx, count: u64) -> onward::Result<u64> {
    let began = ctx.dep::<Began>();
    for _ in 0..count {
        ctx.step("step", async || {
            if let Ok(mut began) = began.lock() {
                began.push(Instant::now());
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            Ok::<_, Failure>(())
        })
        .await?;
    }
    Ok(count)
}

/// Measures the time from the start of a step in the worker to its frame at a reader of the server.
pub async fn visible(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let server = ServerProcess::start(directory.path())?;
    let began = Began::default();
    let onward = Onward::connect(server.url()).dep(began.clone()).workflow(&SLOW, slow_steps).start().await?;
    let count = if plan.quick { 50 } else { 300 };
    let mut live = onward.start(&SLOW, &count).await?.watch(Index(0)).await?;
    let mut seen = Vec::new();
    while let Some(frame) = live.next().await? {
        match frame.content {
            LiveContent::StepStarted(_) => seen.push(Instant::now()),
            LiveContent::Snapshot(snapshot) => seen.extend(snapshot.active.iter().map(|_| Instant::now())),
            _ => {}
        }
    }
    // A step that ended before the reader's snapshot was not announced: the last ones are compared.
    let began = began.lock().map(|began| began.clone()).unwrap_or_default();
    let late = began.iter().rev().zip(seen.iter().rev());
    let late = late.map(|(began, seen)| seen.saturating_duration_since(*began).as_secs_f64() * 1_000.0).collect();
    plan.report("live.step_visible_ms.p50", median(late), "ms");
    onward.shutdown().await;
    Ok(())
}
