//! Costs of a run apart from its steps: waking, resuming, replaying, starting.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use onward::prelude::*;
use onward::testing::{Replay, Script};
use tokio::sync::mpsc;

use crate::Plan;
use crate::machine::median;

const LISTEN: Workflow<u64, u64> = Workflow::new("listen");

/// Channel on which a run reports that it has continued.
type ProgressChannel = Arc<Mutex<Option<mpsc::UnboundedSender<Instant>>>>;

/// Runs `steps` steps, then one step for every signal until it receives the signal to end.
async fn listen(ctx: Ctx, steps: u64) -> onward::Result<u64> {
    for _ in 0..steps {
        ctx.step("warm-up", async || Ok::<_, Failure>("x".repeat(198))).await?;
    }
    let progress = ctx.dep::<ProgressChannel>();
    let print_figures = || {
        if let Ok(sender) = progress.lock()
            && let Some(sender) = &*sender
        {
            let _gone = sender.send(Instant::now());
        }
    };
    ctx.step("ready", async || {
        print_figures();
        Ok::<_, Failure>(())
    })
    .await?;
    let mut count = 0;
    loop {
        let more: bool = ctx.signal("poke").recv().await?;
        if !more {
            return Ok(count);
        }
        count += 1;
        ctx.step("answer", async || {
            print_figures();
            Ok::<_, Failure>(())
        })
        .await?;
    }
}

/// Returns the milliseconds from a signal until the code continues, one at a time, in a run of `steps` steps.
async fn signal_ms(plan: &Plan, steps: u64, rounds: usize) -> Result<f64> {
    let directory = plan.fresh()?;
    pokes(Onward::embedded(directory.path()), steps, rounds).await
}

/// Measures the same on any store.
pub async fn pokes(builder: onward::Builder, steps: u64, rounds: usize) -> Result<f64> {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let progress: ProgressChannel = Arc::new(Mutex::new(Some(sender)));
    let onward = builder.dep(progress).workflow(&LISTEN, listen).start().await?;
    let run = onward.start(&LISTEN, &steps).await?;
    receiver.recv().await.context("the run did not become ready")?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        run.signal("poke", &true).await?;
        let at = receiver.recv().await.context("the run did not continue")?;
        times.push((at - start).as_secs_f64() * 1_000.0);
    }
    run.signal("poke", &false).await?;
    run.result().await?;
    onward.shutdown().await;
    Ok(median(times))
}

pub async fn signal(plan: &Plan) -> Result<()> {
    let rounds = if plan.quick { 200 } else { 1_000 };
    plan.report("embedded.signal_ms.p50", signal_ms(plan, 0, rounds).await?, "ms");
    Ok(())
}

pub async fn wake(plan: &Plan) -> Result<()> {
    let rounds = if plan.quick { 200 } else { 1_000 };
    plan.report("wake_ms.at_10", signal_ms(plan, 10, rounds).await?, "ms");
    plan.report("wake_ms.at_10000", signal_ms(plan, 10_000, rounds).await?, "ms");
    Ok(())
}

/// Measures the time from opening the directory to the end of a run with 10,000 steps and one signal to receive.
pub async fn resume(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let progress: ProgressChannel = Arc::new(Mutex::new(Some(sender)));
    let build = || Onward::embedded(directory.path()).dep(progress.clone()).workflow(&LISTEN, listen);
    let onward = build().start().await?;
    onward.start(&LISTEN, &10_000).id("long").await?;
    receiver.recv().await.context("the run did not become ready")?;
    onward.shutdown().await;

    let mut times = Vec::new();
    for _ in 0..if plan.quick { 3 } else { 9 } {
        let start = Instant::now();
        let onward = build().start().await?;
        let run = onward.run::<u64>("long")?;
        run.signal("poke", &true).await?;
        let at = receiver.recv().await.context("the run did not continue")?;
        times.push((at - start).as_secs_f64() * 1_000.0);
        onward.shutdown().await;
    }
    plan.report("resume.10k_steps_ms", median(times), "ms");
    Ok(())
}

async fn many_steps(ctx: Ctx, count: u64) -> onward::Result<u64> {
    for _ in 0..count {
        ctx.step("step", async || Ok::<_, Failure>("x".repeat(198))).await?;
    }
    Ok(count)
}

/// Measures how fast code catches up with its log, from memory.
pub fn replay(plan: &Plan) -> Result<()> {
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

/// Runs a whole process: opens an empty directory, runs one workflow, ends.
pub fn cold(directory: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        const HELLO: Workflow<String, String> = Workflow::new("hello");
        async fn hello(ctx: Ctx, name: String) -> onward::Result<String> {
            ctx.step("greet", async || Ok::<_, Failure>(format!("hello {name}"))).await
        }
        let onward = Onward::embedded(directory).workflow(&HELLO, hello).start().await?;
        let greeting = onward.start(&HELLO, &"Ada".to_owned()).await?.result().await?;
        ensure!(greeting == "hello Ada");
        Ok(())
    })
}

pub fn cold_start(plan: &Plan) -> Result<()> {
    let own = std::env::current_exe()?;
    let mut times = Vec::new();
    for _ in 0..if plan.quick { 5 } else { 15 } {
        let directory = plan.fresh()?;
        let start = Instant::now();
        let status = Command::new(&own).arg("--cold").arg(directory.path()).status()?;
        ensure!(status.success(), "the cold start failed");
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    plan.report("cold_start_ms", median(times), "ms");
    let binary = own.with_file_name("onward");
    match std::fs::metadata(&binary) {
        Ok(file) => plan.report("binary_mb", file.len() as f64 / 1e6, "MB"),
        Err(_) => eprintln!("binary_mb: build it first with `cargo build --release`"),
    }
    Ok(())
}
