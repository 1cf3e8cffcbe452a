//! Durable steps: throughput, latency and cost.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use onward::prelude::*;

use crate::Plan;
use crate::machine::{bytes_written, cpu, cpu_of_family, median};

const TEN: Workflow<u64, u64> = Workflow::new("ten-steps");
const MANY: Workflow<u64, u64> = Workflow::new("many-steps");

/// Runs ten steps one after the other, each with a result of 200 bytes.
async fn ten_steps(ctx: Ctx, seed: u64) -> onward::Result<u64> {
    let mut total = seed;
    for step in 0..10u64 {
        let text: String = ctx.step("step", async || Ok::<_, Failure>("x".repeat(198))).await?;
        total += text.len() as u64 + step;
    }
    Ok(total)
}

/// Start time of each step, for the time between two.
type StepTimes = Arc<Mutex<Vec<Instant>>>;

async fn many_steps(ctx: Ctx, count: u64) -> onward::Result<u64> {
    let step_times = ctx.dep::<StepTimes>();
    for _ in 0..count {
        ctx.step("step", async || {
            if let Ok(mut step_times) = step_times.lock() {
                step_times.push(Instant::now());
            }
            Ok::<_, Failure>("x".repeat(198))
        })
        .await?;
    }
    Ok(count)
}

pub async fn measure(plan: &Plan) -> anyhow::Result<()> {
    for concurrency in [1usize, 64, 512] {
        throughput(plan, concurrency).await?;
    }
    latency(plan).await
}

async fn throughput(plan: &Plan, concurrency: usize) -> anyhow::Result<()> {
    let directory = plan.fresh()?;
    let onward = with_ten_steps(Onward::embedded(directory.path())).start().await?;
    let measured = load(plan, &onward, concurrency, None).await?;
    plan.report(&format!("embedded.steps_per_s.c{concurrency}"), measured.steps_per_s, "1/s");
    if concurrency == 512 {
        plan.report("embedded.cpu_us_per_step.c512", measured.cpu_us_per_step, "us");
        plan.report("embedded.bytes_per_step.c512", measured.bytes_per_step, "B");
    }
    onward.shutdown().await;
    Ok(())
}

pub fn with_ten_steps(builder: onward::Builder) -> onward::Builder {
    builder.workflow(&TEN, ten_steps)
}

/// Starts one run of ten steps.
pub async fn start_ten(onward: &Onward) -> Result<onward::RunHandle<u64>, onward::Error> {
    onward.start(&TEN, &0).await
}

/// Figures of a load; processor time and bytes are this process's, except for `other_cpu_us_per_step`.
pub struct Measured {
    pub steps_per_s: f64,
    pub cpu_us_per_step: f64,
    pub other_cpu_us_per_step: f64,
    pub bytes_per_step: f64,
}

/// Consumption up to some time, by this process and the other one.
#[derive(Clone, Copy, Default)]
struct Spent {
    cpu: Duration,
    other_cpu: Duration,
    bytes: u64,
}

impl Spent {
    fn read(other: Option<u32>) -> Spent {
        Spent { cpu: cpu(), other_cpu: other.map(cpu_of_family).unwrap_or_default(), bytes: bytes_written() }
    }
}

/// Keeps `concurrency` runs of ten steps active for a while, and measures the consumption of another process and its children.
pub async fn load(plan: &Plan, onward: &Onward, concurrency: usize, other: Option<u32>) -> anyhow::Result<Measured> {
    let span = Duration::from_secs(if plan.quick { 3 } else { 8 });
    let warm_up = Duration::from_millis(500);
    let begin = Instant::now();
    let window = (begin + warm_up, begin + warm_up + span);
    let measured: Arc<Mutex<Option<Spent>>> = Arc::default();
    let workers: Vec<_> = (0..concurrency)
        .map(|_| {
            let (onward, measured) = (onward.clone(), measured.clone());
            tokio::spawn(async move {
                let mut runs = 0u64;
                for round in 0u64.. {
                    let now = Instant::now();
                    if now >= window.1 {
                        break;
                    }
                    if now >= window.0
                        && let Ok(mut measured) = measured.lock()
                    {
                        measured.get_or_insert_with(|| Spent::read(other));
                    }
                    onward.start(&TEN, &round).await?.result().await?;
                    if now >= window.0 {
                        runs += 1;
                    }
                }
                anyhow::Ok(runs)
            })
        })
        .collect();
    let mut runs = 0;
    for worker in workers {
        runs += worker.await??;
    }
    let elapsed = window.0.elapsed().as_secs_f64();
    let steps = runs as f64 * 10.0;
    let before = measured.lock().ok().and_then(|measured| *measured).unwrap_or_default();
    let after = Spent::read(other);
    let per_step = |span: Duration| span.as_secs_f64() * 1e6 / steps;
    Ok(Measured {
        steps_per_s: steps / elapsed,
        cpu_us_per_step: per_step(after.cpu - before.cpu),
        other_cpu_us_per_step: per_step(after.other_cpu - before.other_cpu),
        bytes_per_step: (after.bytes - before.bytes) as f64 / steps,
    })
}

async fn latency(plan: &Plan) -> anyhow::Result<()> {
    let directory = plan.fresh()?;
    let step_times = StepTimes::default();
    let onward = Onward::embedded(directory.path()).dep(step_times.clone()).workflow(&MANY, many_steps).start().await?;
    let count = if plan.quick { 2_000 } else { 10_000u64 };
    onward.start(&MANY, &count).await?.result().await?;
    let step_times = step_times.lock().map(|step_times| step_times.clone()).unwrap_or_default();
    let gaps = step_times.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1_000.0).collect();
    plan.report("embedded.step_ms.p50", median(gaps), "ms");
    onward.shutdown().await;
    Ok(())
}
