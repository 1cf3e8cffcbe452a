//! The limit of a PostgreSQL database: the smallest statement that could keep a log.
//!
//! One connection appends to 512 logs at a time, each with a compare-and-set of its counter, in one statement and one commit. No
//! heads, no leases, no starts and ends, no index but the two primary keys: the difference to this figure is the engine's own
//! work.

use std::time::{Duration, Instant};

use anyhow::Result;
use onward_testkit::{Cluster, Database};
use tokio_postgres::NoTls;

use crate::Plan;
use crate::machine::{cpu, cpu_of_family};

/// Number of concurrent logs.
const LOGS: i64 = 512;

const TABLES: &str = "CREATE TABLE raw_runs (rk bigint PRIMARY KEY, next bigint NOT NULL) WITH (fillfactor = 30);
  CREATE TABLE raw_events (rk bigint, idx bigint, body bytea NOT NULL, PRIMARY KEY (rk, idx));
  INSERT INTO raw_runs SELECT rk, 0 FROM generate_series(0, 511) AS rk";

const APPEND: &str = "WITH wanted AS (SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS w(rk, idx, body)),
  taken AS (UPDATE raw_runs r SET next = r.next + 1 FROM wanted w WHERE r.rk = w.rk AND r.next = w.idx RETURNING r.rk)
  INSERT INTO raw_events SELECT w.rk, w.idx, w.body FROM wanted w JOIN taken t ON t.rk = w.rk";

pub async fn measure(plan: &Plan, cluster: &Cluster, database: &Database<'_>) -> Result<()> {
    database.psql(TABLES)?;
    let (client, connection) = tokio_postgres::connect(&database.socket_url(), NoTls).await?;
    let connection = tokio::spawn(connection);
    let append = client.prepare(APPEND).await?;
    let (runs, bodies): (Vec<i64>, Vec<Vec<u8>>) = (0..LOGS).map(|rk| (rk, vec![b'x'; 230])).unzip();
    let server = cluster.server_pid()?.cast_unsigned();
    let spent = || cpu() + cpu_of_family(server);
    let span = Duration::from_secs(if plan.quick { 3 } else { 8 });
    let (begun, before) = (Instant::now(), spent());
    let mut index = 0i64;
    while begun.elapsed() < span {
        let indexes = vec![index; runs.len()];
        let appended = client.execute(&append, &[&runs, &indexes, &bodies]).await?;
        anyhow::ensure!(appended == runs.len() as u64, "an append was refused");
        index += 1;
    }
    let appends = (index * LOGS) as f64;
    plan.report("raw.postgres_appends_per_s", appends / begun.elapsed().as_secs_f64(), "1/s");
    plan.report("raw.postgres_cpu_us_per_append", (spent() - before).as_secs_f64() * 1e6 / appends, "us");
    drop(client);
    connection.await??;
    Ok(())
}
