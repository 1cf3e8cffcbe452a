//! The store of a server: a directory, a PostgreSQL database, or memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onward_server::Probe;
use onward_store::{Clock, MemoryStore, Store, SystemClock};
use onward_store_embedded::EmbeddedStore;
use onward_store_postgres::PostgresStore;

use crate::directory::shell_path;

/// Where runs are kept.
#[derive(Debug, Clone)]
pub enum Place {
    Directory(PathBuf),
    /// A PostgreSQL database, which other servers may use too; its address may hold a password.
    Database(String),
    /// Gone with the process.
    Memory,
}

impl Place {
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Place::Directory(path) => Some(path),
            Place::Database(_) | Place::Memory => None,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Directory(path) => f.write_str(&shell_path(path)),
            Place::Database(url) => f.write_str(&without_password(url)),
            Place::Memory => f.write_str("in memory, gone when this ends"),
        }
    }
}

pub struct Opened {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub probe: Option<Arc<dyn Probe>>,
}

impl Opened {
    /// Opens the store; a directory is made if it is not there, and so are the tables of a database.
    pub async fn open(place: Place) -> Result<Opened> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let path = match place {
            Place::Directory(path) => path,
            Place::Memory => return Ok(Opened { store: Arc::new(MemoryStore::new(clock.clone())), clock, probe: None }),
            Place::Database(url) => {
                let store = Arc::new(PostgresStore::connect(&url, onward_store_postgres::Options::default()).await?);
                let clock = store.clock();
                return Ok(Opened { store, clock, probe: None });
            }
        };
        // Blocks while SQLite recovers what a crash left.
        let options = onward_store_embedded::Options { clock: clock.clone(), ..Default::default() };
        let open = tokio::task::spawn_blocking(move || EmbeddedStore::open(&path, options));
        let store = Arc::new(open.await.context("the store could not be opened")??);
        Ok(Opened { store: store.clone(), clock, probe: Some(store) })
    }

    /// Closes the store as soon as everything that was told to stop has let it go.
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

/// An address of a database as it may be shown: whatever stands before the host goes with the password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return "a PostgreSQL database".to_owned() };
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let place = place.split('?').next().unwrap_or(place);
    format!("{scheme}://{place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_shown_without_its_password() {
        let shown = |url: &str| Place::Database(url.to_owned()).to_string();
        assert_eq!(shown("postgres://me:se@cret@host:5432/runs?password=x"), "postgres://host:5432/runs");
        assert_eq!(shown("postgres://host/runs"), "postgres://host/runs");
        assert_eq!(shown("host=h password=secret"), "a PostgreSQL database");
    }
}
