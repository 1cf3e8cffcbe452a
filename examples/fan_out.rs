//! Fan-out: many tasks on a queue and many steps in this process, in parallel; results in the order of the calls.
//!
//! `cargo run --example fan-out`

use std::time::{Duration, Instant};

use onward::prelude::*;

const REPORT: Workflow<Vec<String>, Vec<String>> = Workflow::new("report");
const COUNT: Task<String, usize> = Task::new("count");

async fn report(ctx: Ctx, cities: Vec<String>) -> Result<Vec<String>> {
    // Tasks: queued in one commit, executed by any worker that registered the kind, retried by the engine.
    let counts = join_all(cities.iter().map(|city| ctx.task(&COUNT, city).retry(3))).await?;

    // Steps: run in this process, in parallel.
    let format = |(city, count)| ctx.step("format", async move || Ok::<_, Failure>(format!("{city}: {count} letters")));
    let lines = join_all(cities.iter().zip(counts).map(format)).await?;

    // Calls that may fail without failing the run: every result is returned.
    let checks = join_all_settled(cities.iter().map(|city| ctx.step("check", async move || check(city).await))).await;
    let bad = checks.iter().filter(|check| check.is_err()).count();
    // Prints belong in steps: code in the workflow itself runs again on every replay.
    ctx.step("print", async || print_summary(bad, cities.len()).await).await?;
    Ok(lines)
}

async fn count(city: String) -> Result<usize> {
    tokio::time::sleep(Duration::from_millis(100)).await; // in sequence, 20 of these would take two seconds
    Ok(city.len())
}

async fn print_summary(bad: usize, all: usize) -> Result<()> {
    println!("{bad} of {all} checks failed");
    Ok(())
}

async fn check(city: &str) -> Result<()> {
    if city.ends_with("13") { Err(Failure::fatal("unlucky")) } else { Ok(()) }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let builder = Onward::embedded(directory.path()).workflow(&REPORT, report).task(&COUNT, count);
    let onward = builder.start().await?;
    let cities: Vec<String> = (1..=20).map(|number| format!("city-{number}")).collect();
    let started = Instant::now();
    let lines = onward.start(&REPORT, &cities).await?.result().await?;
    println!("first: {}, last: {}", lines[0], lines[lines.len() - 1]);
    println!("{} tasks of 100 ms together took less than a second: {}", lines.len(), started.elapsed() < Duration::from_secs(1));
    onward.shutdown().await;
    Ok(())
}
