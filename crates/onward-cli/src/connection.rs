//! The endpoint of a command: a server or a local directory, behind one client API, so that every command behaves the same.
//!
//! With equal precedence the server wins: `ONWARD_URL` beats `ONWARD_DATA`, and `--data` beats both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use onward::HttpClient;
use onward_core::{ErrorCode, Failure, Namespace, Payload, RunId, RunKey};
use onward_runtime::{CallRef, Changes, Client, RuntimeError};

use crate::args::Global;
use crate::directory::{self, POLL_INTERVAL};
use crate::error::Mistake;

#[derive(Debug, Clone)]
pub enum Endpoint {
    Server { url: String, key: Option<String> },
    Directory(PathBuf),
}

impl Endpoint {
    pub fn of(global: &Global) -> Result<Endpoint> {
        let directory = || Ok(Endpoint::Directory(global.directory()));
        let Some(url) = global.config.get("url") else { return directory() };
        if global.config.get("data").is_some_and(|data| data.origin.beats(&url.origin)) {
            return directory();
        }
        Ok(Endpoint::Server { url: url.text, key: key(global)? })
    }

    /// Returns the namespace of commands: the one that is set, otherwise that of a key for one namespace, otherwise `default`.
    pub async fn namespace(&self, global: &Global) -> Result<Namespace> {
        match (self, global.named_namespace()?) {
            (_, Some(namespace)) => Ok(namespace),
            (Endpoint::Server { url, key: Some(key) }, None) => {
                Ok(onward::connect_http(url, None, Some(key.as_str()))?.namespace().await?)
            }
            (Endpoint::Server { .. } | Endpoint::Directory(_), None) => Ok(Namespace::default()),
        }
    }

    /// Connects to the HTTP API of the server. Without a server, fails with `why`.
    pub fn http(global: &Global, why: &str) -> Result<HttpClient> {
        match Endpoint::of(global)? {
            Endpoint::Server { url, key } => Ok(onward::connect_http(&url, global.named_namespace()?.as_ref(), key.as_deref())?),
            Endpoint::Directory(_) => Err(Mistake::usage(ErrorCode::Usage, why, "set `--server URL` or ONWARD_URL").into()),
        }
    }
}

/// Returns the API key. A key file wins only if its setting has a higher precedence than the key itself.
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

/// A connection to a server or directory, with the namespace.
#[derive(Clone)]
pub struct Connection {
    client: Arc<dyn Client>,
    pub namespace: Namespace,
    pub is_directory: bool,
}

impl Connection {
    /// Opens the endpoint for reading; another process may use the directory.
    pub async fn to_read(global: &Global) -> Result<Connection> {
        Connection::open(global, directory::open_to_read).await
    }

    /// Opens the endpoint for writing; fails if another process uses the directory.
    pub async fn to_write(global: &Global) -> Result<Connection> {
        Connection::open(global, directory::open_to_write).await
    }

    /// Wraps an opened store.
    pub fn of(runtime: onward_runtime::Runtime, global: &Global) -> Result<Connection> {
        Ok(Connection { client: Arc::new(runtime), namespace: global.namespace()?, is_directory: false })
    }

    async fn open(global: &Global, open: impl Fn(&Path) -> Result<onward_runtime::Runtime>) -> Result<Connection> {
        let endpoint = Endpoint::of(global)?;
        let namespace = endpoint.namespace(global).await?;
        let (client, is_directory): (Arc<dyn Client>, bool) = match endpoint {
            Endpoint::Directory(path) => (Arc::new(open(&path)?), true),
            Endpoint::Server { url, key } => (onward::connect_client(&url, &namespace, key.as_deref())?, false),
        };
        Ok(Connection { client, namespace, is_directory })
    }

    pub fn key(&self, id: &str) -> Result<RunKey, RuntimeError> {
        Ok(RunKey::new(self.namespace.clone(), RunId::new(id)?))
    }

    pub fn call(&self, id: &str) -> Result<CallRef, RuntimeError> {
        CallRef::parse(&self.namespace, id)
    }

    /// Waits until the run has ended. Also waits for a server that becomes unreachable after its first response.
    pub async fn outcome(&self, key: &RunKey) -> Result<Result<Payload, Failure>, RuntimeError> {
        while self.is_directory && !self.has_outcome(key).await? {
            tokio::time::sleep(POLL_INTERVAL).await; // writes of another process do not notify this one
        }
        self.client.wait_for_outcome(key.clone()).await
    }

    /// Returns whether the outcome can be read without waiting: the run is closed, or external and never has an outcome.
    async fn has_outcome(&self, key: &RunKey) -> Result<bool, RuntimeError> {
        let head = self.client.read_head(key.clone()).await?;
        Ok(head.status.is_closed() || head.external.is_some())
    }

    /// Subscribes to changes of a run's log. On a directory the watch polls.
    pub async fn watch(&self, key: &RunKey) -> Result<Watch, RuntimeError> {
        if self.is_directory {
            return Ok(Watch(None));
        }
        Ok(Watch(Some(self.client.watch_run(key.clone()).await?)))
    }
}

impl std::ops::Deref for Connection {
    type Target = dyn Client;

    fn deref(&self) -> &(dyn Client + 'static) {
        &*self.client
    }
}

pub struct Watch(Option<Box<dyn Changes>>);

impl Watch {
    /// Waits until the log may have grown.
    pub async fn changed(&mut self) -> Result<(), RuntimeError> {
        match &mut self.0 {
            Some(changes) => changes.changed().await,
            None => {
                tokio::time::sleep(POLL_INTERVAL).await;
                Ok(())
            }
        }
    }
}
