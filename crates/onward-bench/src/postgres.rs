//! The engine on PostgreSQL: a temporary cluster with default durability, on the same machine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use onward::prelude::*;
use onward_core::event::RunStarted;
use onward_core::run::NewRun;
use onward_core::{Name, Namespace, Payload, RunId, RunKey, WorkerId};
use onward_store::{ClaimRuns, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Database, Settings};

use crate::{Plan, old, raw_postgres, steps, timers};

/// Time for which an idle engine is observed.
const IDLE: Duration = Duration::from_secs(10);
/// Number of appending connections when every operation has its own transaction.
const UNBATCHED: usize = 16;
/// Number of concurrent starts while a database is filled.
const STARTS: usize = 2_000;

pub async fn measure(plan: &Plan) -> Result<()> {
    if plan.wants("postgres.timers") {
        timers::on_postgres(plan).await?;
    }
    if plan.wants_only("postgres.timers") {
        return Ok(());
    }
    let cluster = Cluster::start(Settings::default())?;
    raw_postgres::measure(plan, &cluster, &cluster.database(None)?).await?;
    for concurrency in [64, 512] {
        let name = format!("postgres.steps_per_s.c{concurrency}");
        throughput(plan, &cluster, &cluster.database(None)?, concurrency, &name).await?;
    }
    if plan.wants("postgres.unbatched_steps_per_s.c512") {
        unbatched(plan, &cluster.database(None)?).await?;
    }
    if plan.wants("postgres.idle_queries_per_s") {
        idle(plan).await?;
    }
    if plan.wants("postgres.old") {
        old::measure(plan).await?;
    }
    if plan.wants("postgres.claim_us") {
        claims(plan, &cluster).await?;
    }
    Ok(())
}

/// Measures the cost of a claim on a large database, and whether steps are slower there.
async fn claims(plan: &Plan, cluster: &Cluster) -> Result<()> {
    let database = cluster.database(None)?;
    let store = connect(&database, Options::default()).await?;
    let (many, label) = if plan.quick { (100_000, "100k") } else { (1_000_000, "1m") };
    fill(&store, 0, 1_000).await?;
    plan.report("postgres.claim_us.at_1k", claim(&store).await?, "us");
    fill(&store, 1_000, many).await?;
    plan.report(&format!("postgres.claim_us.at_{label}"), claim(&store).await?, "us");
    drop(store);
    let name = format!("postgres.steps_per_s.c512.at_{label}");
    throughput(plan, cluster, &database, 512, &name).await
}

pub async fn connect(database: &Database<'_>, options: Options) -> Result<Arc<PostgresStore>> {
    Ok(Arc::new(PostgresStore::connect(&database.socket_url(), options).await?))
}

async fn throughput(plan: &Plan, cluster: &Cluster, database: &Database<'_>, concurrency: usize, name: &str) -> Result<()> {
    if !plan.wants(name) {
        return Ok(());
    }
    let store = connect(database, Options::default()).await?;
    let onward = steps::with_ten_steps(Onward::with_store(store.clone(), store.clock())).start().await?;
    let before = Wal::read(database)?;
    let measured = steps::load(plan, &onward, concurrency, Some(cluster.server_pid()?.cast_unsigned())).await?;
    plan.report(name, measured.steps_per_s, "1/s");
    let what = name.rsplit_once("steps_per_s.").map_or(name, |(_, what)| what);
    plan.report(&format!("postgres.cpu_us_per_step.{what}"), measured.cpu_us_per_step, "us");
    plan.report(&format!("postgres.database_cpu_us_per_step.{what}"), measured.other_cpu_us_per_step, "us");
    let wal = Wal::read(database)?;
    let steps = wal.events - before.events;
    plan.report(&format!("postgres.wal_bytes_per_event.{what}"), (wal.bytes - before.bytes) / steps, "B");
    plan.report(&format!("postgres.page_images_per_event.{what}"), (wal.images - before.images) / steps, "");
    onward.shutdown().await;
    Ok(())
}

/// Statistics of the write-ahead log, with the number of events.
struct Wal {
    bytes: f64,
    images: f64,
    events: f64,
}

impl Wal {
    fn read(database: &Database<'_>) -> Result<Wal> {
        let number = |sql: &str| -> Result<f64> { Ok(database.psql(sql)?.parse()?) };
        Ok(Wal {
            bytes: number("SELECT wal_bytes FROM pg_stat_wal")?,
            images: number("SELECT wal_fpi FROM pg_stat_wal")?,
            events: number("SELECT count(*) FROM onward.events")?,
        })
    }
}

/// Measures one transaction per operation. Since that is slow, counts the records in the logs rather than whole runs: a step is
/// one record.
async fn unbatched(plan: &Plan, database: &Database<'_>) -> Result<()> {
    let store = connect(database, Options { batch_max: 1, appenders: UNBATCHED, ..Options::default() }).await?;
    let onward = steps::with_ten_steps(Onward::with_store(store.clone(), store.clock())).start().await?;
    let count = || -> Result<f64> { Ok(database.psql("SELECT count(*) FROM onward.events WHERE idx > 0")?.parse()?) };
    let watch = async {
        tokio::time::sleep(Duration::from_millis(1_000)).await;
        let (before, begun) = (count()?, Instant::now());
        tokio::time::sleep(Duration::from_secs(3)).await;
        anyhow::Ok((count()? - before) / begun.elapsed().as_secs_f64())
    };
    let quick = Plan { quick: true, ..plan.clone() };
    let (steps_per_s, load) = tokio::join!(watch, steps::load(&quick, &onward, 512, None));
    load?;
    plan.report("postgres.unbatched_steps_per_s.c512", steps_per_s?, "1/s");
    onward.shutdown().await;
    Ok(())
}

/// Counts statements in the log of a server that logs every one of them.
async fn idle(plan: &Plan) -> Result<()> {
    let cluster = Cluster::start(Settings { more: vec!["log_statement = 'all'".to_owned()], ..Settings::default() })?;
    let database = cluster.database(None)?;
    let store = connect(&database, Options::default()).await?;
    let onward = steps::with_ten_steps(Onward::with_store(store.clone(), store.clock())).start().await?;
    let count = || -> Result<usize> {
        Ok(cluster.log()?.lines().filter(|line| line.contains("LOG:  execute") || line.contains("LOG:  statement")).count())
    };
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (before, begun) = (count()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let queries = (count()? - before) as f64 / begun.elapsed().as_secs_f64();
    plan.report("postgres.idle_queries_per_s", queries, "1/s");
    onward.shutdown().await;
    Ok(())
}

/// Starts runs of a kind that no worker has.
async fn fill(store: &Arc<PostgresStore>, from: usize, until: usize) -> Result<()> {
    let mut number = from;
    while number < until {
        let end = (number + STARTS).min(until);
        let starts: Vec<_> = (number..end).map(|number| store.start_run(new_run(number), None)).collect();
        for start in starts {
            start.await?;
        }
        number = end;
    }
    Ok(())
}

pub fn new_run(number: usize) -> NewRun {
    let kind = Name::new("waiting").expect("a good name");
    let id = RunId::new(format!("waiting-{number}")).expect("a good id");
    let started = RunStarted::new(kind, Payload::from_json_text("1".to_owned()), number as u64);
    NewRun { key: RunKey::new(Namespace::default(), id), started, signal: None }
}

/// Measures the cost of one claimed run, ten at a time; they are released.
async fn claim(store: &Arc<PostgresStore>) -> Result<f64> {
    let worker = WorkerId::new("bench")?;
    let knows = Arc::new(BTreeMap::from([(Name::new("waiting")?, vec![None])]));
    let (mut spent, mut count) = (Duration::ZERO, 0usize);
    for _ in 0..100 {
        let request = ClaimRuns { worker: worker.clone(), namespace: Namespace::default(), knows: knows.clone(), limit: 10 };
        let begun = Instant::now();
        let claimed = store.claim_runs(request).await?;
        spent += begun.elapsed();
        count += claimed.len();
        for run in claimed {
            store.release_run(run.head.key, run.head.epoch).await?;
        }
    }
    Ok(spent.as_secs_f64() * 1e6 / count as f64)
}
