//! The store of a server: a directory, or memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onward_server::Probe;
use onward_store::{Clock, MemoryStore, Store, SystemClock};
use onward_store_embedded::EmbeddedStore;

use crate::directory::shell_path;

/// Where runs are kept.
#[derive(Debug, Clone)]
pub enum Place {
    Directory(PathBuf),
    /// Gone with the process.
    Memory,
}

impl Place {
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Place::Directory(path) => Some(path),
            Place::Memory => None,
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Directory(path) => f.write_str(&shell_path(path)),
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
    /// Opens the store; a directory is made if it is not there.
    pub async fn open(place: Place) -> Result<Opened> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let Place::Directory(path) = place else {
            return Ok(Opened { store: Arc::new(MemoryStore::new(clock.clone())), clock, probe: None });
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
