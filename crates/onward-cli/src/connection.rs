//! What a verb works on: a server, or a directory of this machine. One door to both, so that every verb says and does the same.
//!
//! A server that is named as plainly as a directory comes first: `ONWARD_URL` beats `ONWARD_DATA`, and `--data` beats both.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use onward_core::{Failure, Namespace, Payload, RunId, RunKey};
use onward_runtime::{CallRef, Changes, Client, RuntimeError};

use crate::args::Global;
use crate::directory;

/// How often a run that another process works on is looked at.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub enum Place {
    Server { url: String, key: Option<String> },
    Directory(PathBuf),
}

impl Place {
    pub fn of(global: &Global) -> Result<Place> {
        let directory = || Ok(Place::Directory(global.directory()));
        let Some(url) = global.config.get("url") else { return directory() };
        if global.config.get("data").is_some_and(|data| data.origin.beats(&url.origin)) {
            return directory();
        }
        Ok(Place::Server { url: url.text, key: key(global)? })
    }
}

/// The key for the server: a file that is named more plainly than the key itself comes first.
fn key(global: &Global) -> Result<Option<String>> {
    let (key, file) = (global.config.get("key"), global.config.get("key_file"));
    match (key, file) {
        (Some(key), Some(file)) if !file.origin.beats(&key.origin) => Ok(Some(key.text)),
        (Some(key), None) => Ok(Some(key.text)),
        (_, Some(file)) => {
            let text = std::fs::read_to_string(&file.text).with_context(|| format!("cannot read the key in {}", file.text))?;
            Ok(Some(text.trim().to_owned()))
        }
        (None, None) => Ok(None),
    }
}

/// A door with what is behind it.
#[derive(Clone)]
pub struct Site {
    client: Arc<dyn Client>,
    pub namespace: Namespace,
    pub is_directory: bool,
}

impl Site {
    /// For looking: a directory may be in use by another process.
    pub fn to_read(global: &Global) -> Result<Site> {
        Site::open(global, directory::open_to_read)
    }

    /// For changing something: a directory must be free.
    pub fn to_write(global: &Global) -> Result<Site> {
        Site::open(global, directory::open_to_write)
    }

    /// Over a store that somebody has opened.
    pub fn of(runtime: onward_runtime::Runtime, global: &Global) -> Result<Site> {
        Ok(Site { client: Arc::new(runtime), namespace: global.namespace()?, is_directory: false })
    }

    fn open(global: &Global, open: impl Fn(&std::path::Path) -> Result<onward_runtime::Runtime>) -> Result<Site> {
        let namespace = global.namespace()?;
        let (client, is_directory): (Arc<dyn Client>, bool) = match Place::of(global)? {
            Place::Directory(path) => (Arc::new(open(&path)?), true),
            Place::Server { url, key } => (onward::connect_client(&url, &namespace, key.as_deref())?, false),
        };
        Ok(Site { client, namespace, is_directory })
    }

    pub fn key(&self, id: &str) -> Result<RunKey, RuntimeError> {
        Ok(RunKey::new(self.namespace.clone(), RunId::new(id)?))
    }

    pub fn call(&self, id: &str) -> Result<CallRef, RuntimeError> {
        CallRef::parse(&self.namespace, id)
    }

    /// Waits until the run has ended. A server that is away is waited for, once it has answered.
    pub async fn outcome(&self, key: &RunKey) -> Result<Result<Payload, Failure>, RuntimeError> {
        while self.is_directory && !self.has_said_all(key).await? {
            tokio::time::sleep(LOOK).await; // another process's writes ring no bell here
        }
        self.client.wait_for_outcome(key.clone()).await
    }

    /// Whether the door knows how the run ended, or can say that it never will: a run of an outside engine has no outcome.
    async fn has_said_all(&self, key: &RunKey) -> Result<bool, RuntimeError> {
        let head = self.client.read_head(key.clone()).await?;
        Ok(head.status.is_closed() || head.external.is_some())
    }

    /// Something to await until a run's log has grown.
    pub async fn watch(&self, key: &RunKey) -> Result<Watch, RuntimeError> {
        if self.is_directory {
            return Ok(Watch(None));
        }
        Ok(Watch(Some(self.client.watch_run(key.clone()).await?)))
    }
}

impl std::ops::Deref for Site {
    type Target = dyn Client;

    fn deref(&self) -> &(dyn Client + 'static) {
        &*self.client
    }
}

pub struct Watch(Option<Box<dyn Changes>>);

impl Watch {
    /// Returns when there may be something to read.
    pub async fn changed(&mut self) -> Result<(), RuntimeError> {
        match &mut self.0 {
            Some(changes) => changes.changed().await,
            None => {
                tokio::time::sleep(LOOK).await;
                Ok(())
            }
        }
    }
}
