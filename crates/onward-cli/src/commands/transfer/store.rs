//! Direct access to the databases of a server, without a running server.

use anyhow::Result;
use clap::Args;
use onward_runtime::{Options, Runtime};

use crate::args::Global;
use crate::commands::server::parse_store;
use crate::error::Mistake;
use crate::serving::{Opened, StoreLocation};

#[derive(Debug, Args)]
pub struct StoreArgs {
    /// Use the databases directly: `--store=postgres://…`, or `--store` alone for ONWARD_SERVER__STORE, which hides the password
    #[arg(long, value_name = "URL", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["server", "data"])]
    store: Option<String>,
}

impl StoreArgs {
    /// Opens the named databases; `None` without `--store`. Starts no background jobs.
    pub async fn open(&self, global: &Global) -> Result<Option<Runtime>> {
        match self.urls(global)? {
            Some(urls) => Ok(Some(runtime(Opened::open(StoreLocation::Databases(urls)).await?))),
            None => Ok(None),
        }
    }

    /// Opens the databases for reading. Creates no tables.
    pub async fn open_to_read(&self, global: &Global) -> Result<Option<Runtime>> {
        match self.urls(global)? {
            Some(urls) => Ok(Some(runtime(Opened::open_to_read(&urls).await?))),
            None => Ok(None),
        }
    }

    fn urls(&self, global: &Global) -> Result<Option<Vec<String>>> {
        let Some(named) = &self.store else { return Ok(None) };
        let setting = || global.config.text("server.store").unwrap_or_default();
        let url = if named.is_empty() { setting() } else { named.clone() };
        if url.is_empty() {
            let hint = "set `--store=postgres://…` or ONWARD_SERVER__STORE";
            return Err(Mistake::usage("usage", "no store is set", hint).into());
        }
        match parse_store(&url)? {
            StoreLocation::Databases(urls) => Ok(Some(urls)),
            StoreLocation::Directory(_) | StoreLocation::Memory => {
                let message = "`--store` takes only PostgreSQL URLs";
                Err(Mistake::usage("store_unsupported", message, "name a directory with `--data DIR`").into())
            }
        }
    }
}

fn runtime(opened: Opened) -> Runtime {
    Runtime::new(opened.store, opened.clock, Options::default())
}
