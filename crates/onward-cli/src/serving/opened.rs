//! The store of a server: a directory, a PostgreSQL database, or memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onward_server::Probe;
use onward_store::{Clock, MemoryStore, Shard, Store, StoreError, SystemClock};
use onward_store_embedded::{EmbeddedStore, WorkersInside};
use onward_store_postgres::PostgresStore;
use onward_store_postgres::sharded::{Database, Pace, ShardedStore};

use crate::directory::shell_path;
use crate::new_id::random_u64;
use crate::serving::databases::Databases;

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
    /// Opens the store. Creates a missing directory and missing tables of a database.
    pub async fn open(location: StoreLocation) -> Result<Opened> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let path = match location {
            StoreLocation::Directory(path) => path,
            StoreLocation::Memory => return Ok(Opened { store: Arc::new(MemoryStore::new(clock.clone())), clock, probe: None }),
            StoreLocation::Databases(urls) => return connect(&urls, true).await,
        };
        // Opening blocks while SQLite recovers after a crash.
        let workers_inside = WorkersInside::Named(onward::WITHIN); // connected workers may still be alive
        let options = onward_store_embedded::Options { clock: clock.clone(), workers_inside, ..Default::default() };
        let open = tokio::task::spawn_blocking(move || EmbeddedStore::open(&path, options));
        let store = Arc::new(open.await.context("cannot open the store")??);
        Ok(Opened { store: store.clone(), clock, probe: Some(store) })
    }

    /// Opens databases for reading. Creates no tables and assigns no shards.
    pub async fn open_to_read(urls: &[String]) -> Result<Opened> {
        connect(urls, false).await
    }

    /// Closes the store when all other owners have released it, at the latest after `patience`.
    pub async fn close(self, patience: Duration) {
        let Opened { store, probe, .. } = self;
        drop(probe);
        let deadline = tokio::time::Instant::now() + patience;
        while Arc::strong_count(&store) > 1 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // Waits for the store's own threads.
        drop(tokio::task::spawn_blocking(move || drop(store)).await);
    }
}

/// Connects to one database or to all shards. Writes nothing unless `makes` is set.
async fn connect(urls: &[String], makes: bool) -> Result<Opened> {
    let cluster = format!("{:016x}{:016x}", random_u64(), random_u64());
    let options = move || onward_store_postgres::Options { make_tables: makes, ..Default::default() };
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
    // A database that is down affects only its own runs, also at startup. All are dialed concurrently, so that timeouts do not
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
    let clock = all.iter().find(|(_, store)| store.is_entered()).map_or_else(system_clock, |(_, store)| store.clock());
    let probe = Databases::new(all, Some(spread.clone()));
    Ok(Opened { store: spread, clock, probe: Some(Arc::new(probe)) })
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
