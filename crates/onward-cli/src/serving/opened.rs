//! The store of a server: a directory, PostgreSQL databases with their readiness and metrics, or memory.
//!
//! Must never show a password, and never query the databases more often because of more readiness requests.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onward_server::{DatabaseState, Figure, Probe, Sample};
use onward_store::{Clock, MemoryStore, Shard, Store, StoreError, SystemClock};
use onward_store_embedded::{EmbeddedStore, WorkersInside};
use onward_store_postgres::sharded::{Database, Pace, ShardedStore};
use onward_store_postgres::{COMMIT_BOUNDS, PostgresStore, Stats};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::directory::shell_path;
use crate::new_id::random_u64;

/// Response time after which a database counts as down.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Lifetime of cached states.
const PAUSE: Duration = Duration::from_millis(500);

/// Location of the store.
#[derive(Debug, Clone)]
pub enum StoreLocation {
    Directory(PathBuf),
    /// PostgreSQL databases, the shards of one store, which other servers may share. Their URLs may contain passwords.
    Databases(Vec<String>),
    /// Lost on exit.
    Memory,
}

impl StoreLocation {
    pub fn directory(&self) -> Option<&Path> {
        match self {
            StoreLocation::Directory(path) => Some(path),
            StoreLocation::Databases(_) | StoreLocation::Memory => None,
        }
    }
}

impl std::fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreLocation::Directory(path) => f.write_str(&shell_path(path)),
            StoreLocation::Databases(urls) => {
                let shown: Vec<String> = urls.iter().map(|url| without_password(url)).collect();
                f.write_str(&shown.join(", "))
            }
            StoreLocation::Memory => f.write_str("in memory, lost on exit"),
        }
    }
}

pub struct Opened {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub probe: Option<Arc<dyn Probe>>,
}

impl Opened {
    /// Opens the store. Creates a missing directory and missing tables of a database. Runs are paused after so many lost workers in
    /// a row.
    pub async fn open(location: StoreLocation, pause_after_lost_workers: u32) -> Result<Opened> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let path = match location {
            StoreLocation::Directory(path) => path,
            StoreLocation::Memory => {
                let store = MemoryStore::new(clock.clone()).with_pause_after_lost_workers(pause_after_lost_workers);
                return Ok(Opened { store: Arc::new(store), clock, probe: None });
            }
            StoreLocation::Databases(urls) => return connect(&urls, true, pause_after_lost_workers).await,
        };
        // Opening blocks while SQLite recovers after a crash.
        let workers_inside = WorkersInside::Named(onward::WITHIN); // connected workers may still be alive
        let options = onward_store_embedded::Options {
            clock: clock.clone(),
            workers_inside,
            pause_after_lost_workers,
            ..Default::default()
        };
        let open = tokio::task::spawn_blocking(move || EmbeddedStore::open(&path, options));
        let store = Arc::new(open.await.context("cannot open the store")??);
        Ok(Opened { store: store.clone(), clock, probe: Some(store) })
    }

    /// Opens databases for reading. Creates no tables and assigns no shards.
    pub async fn open_to_read(urls: &[String]) -> Result<Opened> {
        connect(urls, false, 0).await
    }

    /// Closes the store when all other owners have released it, at the latest after `timeout`.
    pub async fn close(self, timeout: Duration) {
        let Opened { store, probe, .. } = self;
        drop(probe);
        let deadline = Instant::now() + timeout;
        while Arc::strong_count(&store) > 1 && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Waits for the store's own threads.
        drop(tokio::task::spawn_blocking(move || drop(store)).await);
    }
}

/// Connects to one database or to all shards. Writes nothing unless `makes` is set.
async fn connect(urls: &[String], makes: bool, pause_after_lost_workers: u32) -> Result<Opened> {
    let cluster = format!("{:016x}{:016x}", random_u64(), random_u64());
    let options = move || onward_store_postgres::Options { make_tables: makes, pause_after_lost_workers, ..Default::default() };
    if let [url] = urls {
        let name = without_password(url);
        let store = PostgresStore::connect(url, options()).await.with_context(|| name.clone())?;
        // A single database also records that it has all runs, so that it cannot become one of several later.
        let share = if makes { Some(store.record_shard(Shard::all(cluster)).await?) } else { store.read_shard().await? };
        if let Some(count) = share.map(|share| share.count).filter(|count| *count != 1) {
            let why = format!("{name} is one of {count} databases of a sharded store");
            return Err(StoreError::DatabasesDiffer { why }.into());
        }
        let store = Arc::new(store);
        let probe = Databases::new(vec![(name, store.clone())], None);
        return Ok(Opened { clock: store.clock(), store, probe: Some(Arc::new(probe)) });
    }
    // A database that is down affects only its own runs, also at startup. All are connected concurrently, so that timeouts do not
    // add up.
    let dial = |url: &String| {
        let url = url.clone();
        tokio::spawn(async move { PostgresStore::connect_when_up(&url, options()).await })
    };
    let dialed: Vec<_> = urls.iter().map(|url| (without_password(url), dial(url))).collect();
    let mut all = Vec::new();
    for (name, dialed) in dialed {
        let store = dialed.await?.with_context(|| name.clone())?;
        all.push((name, Arc::new(store)));
    }
    let database = |(name, store): &(String, Arc<PostgresStore>)| Database { name: name.clone(), store: store.clone() };
    let spread =
        ShardedStore::open(all.iter().map(database).collect(), makes.then_some(cluster), Arc::new(SystemClock), Pace::default());
    let spread = Arc::new(spread.await?);
    // This clock only estimates when something is due; each database decides by its own clock.
    let clock = all.iter().find(|(_, store)| store.is_prepared()).map_or_else(system_clock, |(_, store)| store.clock());
    let probe = Databases::new(all, Some(spread.clone()));
    Ok(Opened { store: spread, clock, probe: Some(Arc::new(probe)) })
}

/// The databases of one store, by their names without passwords.
struct Databases {
    all: Vec<(String, Arc<PostgresStore>)>,
    /// Set for several databases; knows whether each is the expected shard.
    spread: Option<Arc<ShardedStore>>,
    seen: Mutex<Option<(Instant, Vec<DatabaseState>)>>,
}

impl Databases {
    fn new(all: Vec<(String, Arc<PostgresStore>)>, spread: Option<Arc<ShardedStore>>) -> Databases {
        Databases { all, spread, seen: Mutex::default() }
    }

    /// Returns the cached states, or checks all databases. Concurrent callers share one check.
    async fn states(&self) -> Vec<DatabaseState> {
        let mut seen = self.seen.lock().await;
        if let Some((at, states)) = &*seen
            && at.elapsed() < PAUSE
        {
            return states.clone();
        }
        let requests = self.all.iter().map(|(_, store)| tokio::spawn(check_database(store.clone()))).collect::<Vec<_>>();
        let mut answers = Vec::new();
        for requests in requests {
            answers.push(requests.await.unwrap_or_else(|error| Some(error.to_string())));
        }
        // A database that answers but is not used, because it is not the expected shard, counts as down.
        let unused = self.spread.as_ref().map(|spread| spread.health()).unwrap_or_default();
        let unused = unused.into_iter().map(|health| health.down.map(|(_, why)| why)).chain(std::iter::repeat(None));
        let states = self.all.iter().zip(answers).zip(unused);
        let states = states.map(|(((name, _), answer), unused)| DatabaseState { name: name.clone(), down: answer.or(unused) });
        let states: Vec<DatabaseState> = states.collect();
        *seen = Some((Instant::now(), states.clone()));
        states
    }

    /// Builds a metric with samples of each database.
    fn each(
        &self,
        name: &'static str,
        help: &'static str,
        kind: &'static str,
        of: impl Fn(&Stats) -> Vec<(&'static str, Option<String>, f64)>,
    ) -> Figure {
        let samples = self.all.iter().flat_map(|(database, store)| {
            of(&store.stats()).into_iter().map(|(suffix, le, value)| {
                let labels = std::iter::once(("database", database.clone())).chain(le.map(|le| ("le", le))).collect();
                Sample { suffix, labels, value }
            })
        });
        Figure { name, help, kind, samples: samples.collect() }
    }
}

/// Checks a database and returns why it is down, if it is.
async fn check_database(store: Arc<PostgresStore>) -> Option<String> {
    match timeout(ANSWER_MAX, store.check()).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(store.last_error().unwrap_or_else(|| "no response".to_owned())),
    }
}

impl Probe for Databases {
    fn databases(&self) -> Pin<Box<dyn Future<Output = Vec<DatabaseState>> + Send + '_>> {
        Box::pin(self.states())
    }

    fn figures(&self) -> Vec<Figure> {
        let one = |value: u64| vec![("", None, value as f64)];
        vec![
            self.each("onward_store_connections", "Open connections to the database", "gauge", |stats| one(stats.connections)),
            self.each("onward_store_batches_total", "Transactions with appends", "counter", |stats| one(stats.batches)),
            self.each("onward_store_operations_total", "Operations in these transactions", "counter", |stats| {
                one(stats.operations)
            }),
            self.each("onward_store_retries_total", "Retried transactions", "counter", |stats| one(stats.retries)),
            self.each(
                "onward_store_unknown_total",
                "Operations with unknown outcome after a lost connection",
                "counter",
                |stats| one(stats.unknown),
            ),
            self.each("onward_store_moves_total", "Times that all leases were revoked", "counter", |stats| one(stats.moves)),
            self.each("onward_store_commit_seconds", "Duration of transactions with appends", "histogram", histogram),
        ]
    }
}

/// Builds the cumulative buckets of a Prometheus histogram.
fn histogram(stats: &Stats) -> Vec<(&'static str, Option<String>, f64)> {
    let mut sum = 0;
    let bounds = COMMIT_BOUNDS.iter().map(|bound| (*bound as f64 / 1_000.0).to_string()).chain(["+Inf".to_owned()]);
    let mut samples: Vec<_> = bounds
        .zip(stats.commits)
        .map(|(bound, count)| {
            sum += count;
            ("_bucket", Some(bound), sum as f64)
        })
        .collect();
    samples.extend([("_sum", None, stats.commit_time.as_secs_f64()), ("_count", None, sum as f64)]);
    samples
}

fn system_clock() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}

/// Returns a database URL without user, password and query.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "a PostgreSQL database".to_owned() };
    let location = rest.rsplit_once('@').map_or(rest, |(_, location)| location);
    let location = location.split('?').next().unwrap_or(location);
    format!("{scheme}://{location}")
}

#[cfg(test)]
mod tests;
