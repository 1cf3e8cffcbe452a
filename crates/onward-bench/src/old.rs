//! Appends to old runs of a PostgreSQL database, whose rows are on pages that were not touched since the last checkpoint.
//!
//! PostgreSQL writes such a page as a whole into its log with the first change, and reads it first if it is not in its buffers.
//! The cost is measured by the same appends right after a checkpoint, once more to the same pages, and without page images; and
//! all of it with buffers large enough for everything.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use onward_core::{Epoch, Index, RunKey, WorkerId};
use onward_store::Store;
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Database, Settings};

use crate::machine::cpu_of_family;
use crate::postgres::{connect, new_run};
use crate::{Plan, raw};

/// Number of concurrent appends.
const AT_ONCE: usize = 512;

/// A run to append to.
struct Old {
    key: RunKey,
    epoch: Epoch,
    n: u64,
    horizon: Index,
}

pub async fn measure(plan: &Plan) -> Result<()> {
    measure_on(plan, &Cluster::start(Settings::default())?, "old").await?;
    if !plan.quick {
        let more = vec!["shared_buffers = '1GB'".to_owned()];
        measure_on(plan, &Cluster::start(Settings { more, ..Settings::default() })?, "old_in_memory").await?;
    }
    Ok(())
}

async fn measure_on(plan: &Plan, cluster: &Cluster, prefix: &str) -> Result<()> {
    let database = cluster.database(None)?;
    let (count, appends) = if plan.quick { (40_000, 2_000) } else { (400_000, 20_000) };
    let mut runs = fill(&database, count).await?;
    scatter(&mut runs);
    let phases = [
        ("after_checkpoint", true, 0, "on"),
        ("same_pages_again", false, 0, "on"),
        ("later", false, 1, "on"),
        ("without_page_images", true, 2, "off"),
    ];
    for (name, is_checkpoint, position, page_images) in phases {
        database.psql(&format!("ALTER SYSTEM SET full_page_writes = {page_images}"))?;
        database.psql("SELECT pg_reload_conf()")?;
        if is_checkpoint {
            database.psql("CHECKPOINT")?;
        }
        let report = |what: &str, value: f64, unit: &str| plan.report(&format!("postgres.{prefix}.{what}.{name}"), value, unit);
        phase(report, cluster, &database, &mut runs[position * appends..(position + 1) * appends]).await?;
    }
    Ok(())
}

/// Appends one more step to each of the runs.
async fn phase(report: impl Fn(&str, f64, &str), cluster: &Cluster, database: &Database<'_>, runs: &mut [Old]) -> Result<()> {
    let server = cluster.server_pid()?.cast_unsigned();
    let store = connect(database, Options::default()).await?;
    let (before, spent, begun) = (written(database)?, cpu_of_family(server), Instant::now());
    for some in runs.chunks_mut(AT_ONCE) {
        append(&store, some).await?;
    }
    let (took, spent) = (begun.elapsed().as_secs_f64(), cpu_of_family(server) - spent);
    // Sessions publish their statistics when they end.
    drop(store);
    while database.psql(OTHERS)? != "0" {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let (after, count) = (written(database)?, runs.len() as f64);
    report("appends_per_s", count / took, "1/s");
    report("database_cpu_us_per_append", spent.as_secs_f64() * 1e6 / count, "us");
    report("wal_bytes_per_append", (after[0] - before[0]) / count, "B");
    report("page_images_per_append", (after[1] - before[1]) / count, "");
    report("page_reads_per_append", (after[2] - before[2]) / count, "");
    Ok(())
}

const OTHERS: &str = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Returns the bytes of the write-ahead log so far, the number of page images in it, and the number of pages read into the
/// buffers.
fn written(database: &Database<'_>) -> Result<[f64; 3]> {
    let number = |sql: &str| -> Result<f64> { Ok(database.psql(sql)?.parse()?) };
    Ok([
        number("SELECT wal_bytes FROM pg_stat_wal")?,
        number("SELECT wal_fpi FROM pg_stat_wal")?,
        number("SELECT blks_read FROM pg_stat_database WHERE datname = current_database()")?,
    ])
}

/// Starts leased runs without steps.
async fn fill(database: &Database<'_>, count: usize) -> Result<Vec<Old>> {
    let store = connect(database, Options::default()).await?;
    let mut runs = Vec::new();
    while runs.len() < count {
        let numbers = runs.len()..(runs.len() + 2_000).min(count);
        let starts: Vec<_> = numbers.map(|number| store.start_run(new_run(number), WorkerId::new("bench").ok())).collect();
        for start in starts {
            let head = start.await?.claimed.context("a new run is leased")?.head;
            runs.push(Old { key: head.key, epoch: head.epoch, n: 0, horizon: Index(0) });
        }
    }
    Ok(runs)
}

/// Shuffles the runs, the same way each time, so that neighbors are far from each other.
fn scatter(runs: &mut [Old]) {
    let mut seed = 7u64;
    for last in (1..runs.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        runs.swap(last, ((seed >> 33) % (last as u64 + 1)) as usize);
    }
}

async fn append(store: &Arc<PostgresStore>, runs: &mut [Old]) -> Result<()> {
    let commits: Vec<_> =
        runs.iter().map(|run| Ok(store.commit(raw::step(&run.key, run.epoch, run.n, run.horizon)?))).collect::<Result<_>>()?;
    for (run, commit) in runs.iter_mut().zip(commits) {
        run.horizon = commit.await?.index;
        run.n += 1;
    }
    Ok(())
}
