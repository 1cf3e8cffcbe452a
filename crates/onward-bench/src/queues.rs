//! Queues and schedules: the cost of limits, a claim beside many waiting keys, the share of a small tenant beside a flood, and many
//! schedules that are due in one second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use onward::prelude::*;
use onward_core::api::PutQueueRequest;
use onward_core::event::{RunStarted, StandaloneTask};
use onward_core::queue::settings::settings_row;
use onward_core::queue::{KeyWeight, QueueSettings};
use onward_core::run::NewRun;
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{Name, Namespace, Payload, RunId, RunKey, Timestamp, WorkerId};
use onward_store::{ClaimTasks, Store};
use onward_store_embedded::{EmbeddedStore, Options};
use onward_testkit::{Cluster, Settings};
use serde_json::{Value, json};

use crate::machine::{median, percentile};
use crate::suspended::start_all;
use crate::{Plan, postgres};

const CONCURRENCY: usize = 512;
/// The number of keys of the limited queue.
const KEYS: u64 = 64;
/// The number of limits of each key that are never reached together, so that the ratio shows the cost of counting alone.
const KEY_LIMIT: u32 = 64;
const LIMITED: &str = "limited";
const PLAIN: &str = "plain";
const SHARED: &str = "shared";

pub async fn measure(plan: &Plan) -> Result<()> {
    if plan.wants("queues.limited_ratio") {
        limited_ratio(plan).await?;
    }
    if plan.wants("queues.claim_100k_keys_ms") {
        claims(plan).await?;
    }
    if plan.wants("queues.fair_p99_ratio") {
        fairness(plan).await?;
    }
    if plan.wants("schedules.due_10k_s") {
        schedules(plan).await?;
    }
    Ok(())
}

async fn ten_tasks(ctx: Ctx, (queue, key): (String, Option<String>)) -> onward::Result<()> {
    for step in 0..10u64 {
        let input = json!({"step": step, "text": "x".repeat(180)});
        let task = ctx.task("echo", &input).queue(&queue);
        let _: Value = match &key {
            Some(key) => task.key(key).await?,
            None => task.await?,
        };
    }
    Ok(())
}

async fn echo(input: Value) -> onward::Result<Value> {
    Ok(input)
}

/// Compares steps per second of a queue with limits of its keys and of one without settings, in alternating rounds.
async fn limited_ratio(plan: &Plan) -> Result<()> {
    let directory = plan.fresh()?;
    let builder = Onward::embedded(directory.path()).workflow("ten-tasks", ten_tasks).task("echo", echo);
    let onward = builder.queue(LIMITED).queue(PLAIN).tasks_max(1_000).start().await?;
    let settings = QueueSettings { key_concurrency_max: Some(KEY_LIMIT), concurrency_max: Some(1_000), ..Default::default() };
    put(&onward, LIMITED, settings).await?;
    let (mut ratios, mut limited_rates, mut plain_rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..if plan.quick { 1 } else { 3 } {
        let plain = throughput(plan, &onward, PLAIN, false).await?;
        let limited = throughput(plan, &onward, LIMITED, true).await?;
        ratios.push(limited / plain);
        limited_rates.push(limited);
        plain_rates.push(plain);
    }
    onward.shutdown().await;
    plan.report("queues.plain_steps_per_s.c512", median(plain_rates), "1/s");
    plan.report("queues.limited_steps_per_s.c512", median(limited_rates), "1/s");
    plan.report("queues.limited_ratio", median(ratios), "");
    Ok(())
}

async fn put(onward: &Onward, queue: &str, settings: QueueSettings) -> Result<()> {
    let runtime = onward.runtime().context("the engine is embedded")?;
    let request = PutQueueRequest { namespace: onward.namespace().clone(), queue: Some(Name::new(queue)?), settings };
    runtime.put_queue(request).await?;
    Ok(())
}

/// Keeps runs of ten tasks on one queue active for a while; returns tasks per second.
async fn throughput(plan: &Plan, onward: &Onward, queue: &'static str, has_keys: bool) -> Result<f64> {
    let span = Duration::from_secs(if plan.quick { 3 } else { 8 });
    let warm_up = Duration::from_millis(500);
    let begin = Instant::now();
    let drivers: Vec<_> = (0..CONCURRENCY as u64)
        .map(|number| {
            let onward = onward.clone();
            let input = (queue.to_owned(), has_keys.then(|| format!("tenant-{}", number % KEYS)));
            tokio::spawn(async move {
                let mut runs = 0u32;
                loop {
                    let is_measured = begin.elapsed() >= warm_up;
                    if begin.elapsed() >= warm_up + span {
                        return anyhow::Ok(runs);
                    }
                    onward.start::<(), _>("ten-tasks", &input).await?.result().await?;
                    runs += u32::from(is_measured);
                }
            })
        })
        .collect();
    let mut runs = 0;
    for driver in drivers {
        runs += driver.await??;
    }
    Ok(f64::from(runs) * 10.0 / (begin.elapsed() - warm_up).as_secs_f64())
}

/// Measures a claim of one task while 100,000 keys wait, in a directory and on PostgreSQL.
async fn claims(plan: &Plan) -> Result<()> {
    let keys: u64 = if plan.quick { 10_000 } else { 100_000 };
    let label = if plan.quick { "claim_10k_keys_ms" } else { "claim_100k_keys_ms" };
    let directory = plan.fresh()?;
    let embedded = EmbeddedStore::open(directory.path(), Options::default())?;
    let spans = claim_times(&(Arc::new(embedded) as Arc<dyn Store>), keys).await?;
    plan.report(&format!("queues.{label}"), median(spans.clone()), "ms");
    plan.report(&format!("queues.{label}.p99"), percentile(&spans, 0.99), "ms");
    let cluster = Cluster::start(Settings::default())?;
    let database = cluster.database(None)?;
    let store = postgres::connect(&database, onward_store_postgres::Options::default()).await?;
    let spans = claim_times(&(store as Arc<dyn Store>), keys).await?;
    plan.report(&format!("queues.postgres.{label}"), median(spans.clone()), "ms");
    plan.report(&format!("queues.postgres.{label}.p99"), percentile(&spans, 0.99), "ms");
    Ok(())
}

/// Queues a task for each key, and claims 200 of them one by one; returns the time of each claim.
async fn claim_times(store: &Arc<dyn Store>, keys: u64) -> Result<Vec<f64>> {
    let settings = QueueSettings { concurrency_max: Some(1_000), key_concurrency_max: Some(1), ..Default::default() };
    let row = settings_row(Namespace::default(), Some(&Name::new(LIMITED)?), Some(settings))?;
    store.register_kinds(vec![row]).await?;
    start_all(0..keys, |number| {
        let store = store.clone();
        async move { Ok(store.start_run(new_task(number)?, None).await.map(drop)?) }
    })
    .await?;
    let mut spans = Vec::new();
    for _ in 0..200 {
        let request = ClaimTasks {
            worker: WorkerId::new("bench")?,
            namespace: Namespace::default(),
            queues: vec![Some(Name::new(LIMITED)?)],
            kinds: Arc::new(vec![Name::new("echo")?]),
            limit: 1,
            lease: Duration::from_secs(600),
        };
        let begun = Instant::now();
        let claimed = store.claim_tasks(request).await?;
        spans.push(begun.elapsed().as_secs_f64() * 1_000.0);
        ensure!(claimed.len() == 1, "a claim found {} tasks", claimed.len());
        for task in claimed.into_iter().filter(|_| spans.len() % 2 == 0) {
            let done = TaskReport::Completed(Payload::null());
            store.report_task(task.id.clone(), task.claim, done, Duration::from_secs(600)).await?;
        }
    }
    Ok(spans)
}

fn new_task(number: u64) -> Result<NewRun> {
    let kind = Name::new("echo")?;
    let key = Some(Name::new(format!("tenant-{number}"))?);
    let options = TaskOptions { queue: Some(Name::new(LIMITED)?), key, ..TaskOptions::default() };
    let task = Some(StandaloneTask { kind: kind.clone(), options });
    let started = RunStarted { task, ..RunStarted::new(Name::new("task:echo")?, Payload::null(), number) };
    let key = RunKey::new(Namespace::default(), RunId::new(format!("task-{number}"))?);
    Ok(NewRun { key, started, signal: None })
}

/// A workflow of the small tenant: two tasks on the shared queue.
async fn small(ctx: Ctx, key: String) -> onward::Result<()> {
    for step in 0..2u64 {
        let _: u64 = ctx.task("work", &step).queue(SHARED).key(&key).await?;
    }
    Ok(())
}

async fn work(step: u64) -> onward::Result<u64> {
    tokio::time::sleep(Duration::from_millis(5)).await;
    Ok(step)
}

/// Compares the latency of a small tenant's workflows without other work and beside a tenant that has queued 50,000 tasks; with
/// equal weights, and with a weight of 10 for the flood.
async fn fairness(plan: &Plan) -> Result<()> {
    let flood: u64 = if plan.quick { 5_000 } else { 50_000 };
    let directory = plan.fresh()?;
    let builder = Onward::embedded(directory.path()).workflow("small", small).task("work", work);
    let onward = builder.queue(SHARED).tasks_max(16).start().await?;
    put(&onward, SHARED, QueueSettings { concurrency_max: Some(16), ..Default::default() }).await?;
    let quiet = latencies(plan, &onward).await?;
    plan.report("queues.fair_quiet_ms.p99", percentile(&quiet, 0.99), "ms");
    let over = Arc::new(AtomicBool::new(false));
    let started = Arc::new(AtomicU64::new(0));
    let flooding = tokio::spawn(flood_with_tasks(onward.clone(), flood, over.clone(), started.clone()));
    for (weight, name) in [(1, "queues.fair_p99_ratio"), (10, "queues.fair_p99_ratio.w10")] {
        let weights = vec![KeyWeight { key: Name::new("flood")?, weight }];
        put(&onward, SHARED, QueueSettings { concurrency_max: Some(16), weights, ..Default::default() }).await?;
        let beside = latencies(plan, &onward).await?;
        plan.report(&name.replace("ratio", "ms"), percentile(&beside, 0.99), "ms");
        plan.report(name, percentile(&beside, 0.99) / percentile(&quiet, 0.99), "");
    }
    over.store(true, Ordering::Relaxed);
    flooding.await??;
    plan.report("queues.fair_flood_tasks", started.load(Ordering::Relaxed) as f64, "");
    drop(onward);
    Ok(())
}

/// Queues tasks of one key until so many wait or the measurement is over; keeps starting workflows beside them.
async fn flood_with_tasks(onward: Onward, count: u64, over: Arc<AtomicBool>, started: Arc<AtomicU64>) -> Result<()> {
    while !over.load(Ordering::Relaxed) {
        let first = started.load(Ordering::Relaxed);
        if first >= count {
            onward.start::<(), _>("small", "flood").await?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        let tasks = (first..first + 64).map(|number| {
            let onward = onward.clone();
            tokio::spawn(async move { onward.task("work", &number).queue(SHARED).key("flood").await.map(drop) })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await??;
        }
        started.fetch_add(64, Ordering::Relaxed);
    }
    Ok(())
}

/// Runs one workflow of the small tenant after the other; returns their durations in milliseconds.
async fn latencies(plan: &Plan, onward: &Onward) -> Result<Vec<f64>> {
    let (count, pause) = if plan.quick { (20, 100) } else { (150, 200) };
    let mut spans = Vec::new();
    for _ in 0..count {
        let begun = Instant::now();
        onward.start::<(), _>("small", "tenant-b").await?.result().await?;
        spans.push(begun.elapsed().as_secs_f64() * 1_000.0);
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
    Ok(spans)
}

type Begun = Arc<AtomicU64>;

async fn due(ctx: Ctx, (): ()) -> onward::Result<()> {
    ctx.dep::<Begun>().fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Measures how long after their time 10,000 schedules that are due in the same second have started their runs.
async fn schedules(plan: &Plan) -> Result<()> {
    let (count, label): (u64, _) = if plan.quick { (1_000, "due_1k_s") } else { (10_000, "due_10k_s") };
    let directory = plan.fresh()?;
    let begun = Begun::default();
    let onward = Onward::embedded(directory.path()).dep(begun.clone()).workflow("due", due).start().await?;
    let due_at = now_ms() + if plan.quick { 5_000 } else { 30_000 };
    start_all(0..count, |number| {
        let onward = onward.clone();
        let schedule = onward::Schedule::at(Timestamp(due_at + number % 1_000)).of("due");
        async move { Ok(onward.put_schedule(&format!("once-{number}"), schedule).await.map(drop)?) }
    })
    .await?;
    ensure!(now_ms() < due_at, "the machine is too slow: the schedules are due before all are defined");
    tokio::time::sleep(Duration::from_millis(due_at.saturating_sub(now_ms()))).await;
    let from = Instant::now();
    while begun.load(Ordering::Relaxed) < count {
        ensure!(from.elapsed() < Duration::from_secs(300), "{} of {count} runs began", begun.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    plan.report(&format!("schedules.{label}"), from.elapsed().as_secs_f64(), "s");
    onward.shutdown().await;
    Ok(())
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
