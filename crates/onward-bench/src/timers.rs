//! Timers that became due while no engine was running: how fast they drain, and the latency of requests meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use onward::prelude::*;
use onward::{RunQuery, Status};
use onward_core::Timestamp;
use onward_store_postgres::Options;
use onward_testkit::{Cluster, Settings};

use crate::machine::percentile;
use crate::server::ServerProcess;
use crate::suspended::start_all;
use crate::{Plan, postgres};

const SLEEPER: Workflow<u64, ()> = Workflow::new("sleeper");
const QUICK: Workflow<u64, u64> = Workflow::new("quick");

/// Pause between two requests of one client.
const PAUSE: Duration = Duration::from_millis(10);

/// Number of runs whose timer has fired.
type FiredCount = Arc<AtomicU64>;

async fn sleeper(ctx: Ctx, due_at: u64) -> onward::Result<()> {
    ctx.sleep_until(Timestamp(due_at)).await?;
    ctx.dep::<FiredCount>().fetch_add(1, Ordering::Relaxed);
    Ok(())
}

async fn quick(_ctx: Ctx, number: u64) -> onward::Result<u64> {
    Ok(number)
}

fn with_sleepers(builder: onward::Builder, fired: &FiredCount) -> onward::Builder {
    builder.dep(fired.clone()).workflow(&SLEEPER, sleeper).workflow(&QUICK, quick)
}

pub async fn embedded(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    measure(plan, "embedded", || async { Ok((Onward::embedded(directory.path()), None)) }).await
}

pub async fn on_postgres(plan: &Plan) -> Result<()> {
    let cluster = Cluster::start(Settings::default())?;
    let database = cluster.database(None)?;
    measure(plan, "postgres", || async {
        let store = postgres::connect(&database, Options::default()).await?;
        Ok((Onward::with_store(store.clone(), store.clock()), None))
    })
    .await?;
    // The same with server and worker in processes of their own.
    let database = cluster.database(None)?;
    measure(plan, "postgres.server", || async {
        let server = ServerProcess::on_store(&database.url())?;
        Ok((Onward::connect(server.url()), Some(server)))
    })
    .await
}

async fn measure<F: Future<Output = Result<(onward::Builder, Option<ServerProcess>)>>>(
    plan: &Plan,
    store: &str,
    open: impl Fn() -> F,
) -> Result<()> {
    let count: u64 = if plan.quick { 2_000 } else { 10_000 };
    let fired = FiredCount::default();
    let (builder, server) = open().await?;
    let onward = with_sleepers(builder, &fired).start().await?;
    let due_at = now_ms() + if plan.quick { 10_000 } else { 40_000 };
    start_sleepers(&onward, count, due_at).await?;
    plan.report(
        &format!("{store}.timers.idle_start_ms.p99"),
        percentile(&requests(&onward, Duration::from_secs(3)).await?, 0.99),
        "ms",
    );
    onward.shutdown().await;
    drop(server);
    ensure!(fired.load(Ordering::Relaxed) == 0, "timers fired before the engine was stopped; the machine is too slow");
    tokio::time::sleep(Duration::from_millis(due_at.saturating_sub(now_ms()) + 100)).await;
    let (builder, _server) = open().await?;
    let onward = with_sleepers(builder, &fired).start().await?;
    let begun = Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let measurement = tokio::spawn(measure_requests(onward.clone(), over.clone()));
    let mut drained = None;
    while drained.is_none() && begun.elapsed() < Duration::from_secs(300) {
        tokio::time::sleep(Duration::from_millis(20)).await;
        drained = (fired.load(Ordering::Relaxed) >= count).then(|| begun.elapsed());
    }
    over.store(true, Ordering::Relaxed);
    let (starts, reads) = measurement.await??;
    let drained = drained.unwrap_or_else(|| begun.elapsed()).as_secs_f64();
    plan.report(&format!("{store}.timers.drained"), fired.load(Ordering::Relaxed) as f64, "");
    plan.report(&format!("{store}.timers.drain_s"), drained, "s");
    plan.report(&format!("{store}.timers.drain_per_s"), count as f64 / drained, "1/s");
    for (name, times) in [("start", &starts), ("read", &reads)] {
        plan.report(&format!("{store}.timers.{name}_ms.p50"), percentile(times, 0.5), "ms");
        plan.report(&format!("{store}.timers.{name}_ms.p99"), percentile(times, 0.99), "ms");
        plan.report(&format!("{store}.timers.{name}s"), times.len() as f64, "");
    }
    onward.shutdown().await;
    Ok(())
}

async fn start_sleepers(onward: &Onward, count: u64, due_at: u64) -> Result<()> {
    start_all(0..count, |number| {
        let onward = onward.clone();
        async move { Ok(onward.start(&SLEEPER, &due_at).id(format!("sleeper-{number}")).await.map(drop)?) }
    })
    .await?;
    loop {
        let query = RunQuery { statuses: vec![Status::Pending, Status::Running], limit: 1, ..RunQuery::default() };
        if onward.list_runs(query).await?.runs.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Starts runs and reads them until the drain is over; returns the duration of each request in milliseconds.
async fn measure_requests(onward: Onward, over: Arc<AtomicBool>) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut starts, mut reads) = (Vec::new(), Vec::new());
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let run = onward.start(&QUICK, &1).await?;
        starts.push(begun.elapsed().as_secs_f64() * 1_000.0);
        let begun = Instant::now();
        run.view().await?;
        reads.push(begun.elapsed().as_secs_f64() * 1_000.0);
        tokio::time::sleep(PAUSE).await;
    }
    Ok((starts, reads))
}

async fn requests(onward: &Onward, span: Duration) -> Result<Vec<f64>> {
    let over = Arc::new(AtomicBool::new(false));
    let measurement = tokio::spawn(measure_requests(onward.clone(), over.clone()));
    tokio::time::sleep(span).await;
    over.store(true, Ordering::Relaxed);
    Ok(measurement.await??.0)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
