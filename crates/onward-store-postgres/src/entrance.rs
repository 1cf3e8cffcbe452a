//! How to get to the database, and what is done before anything is asked of it.
//!
//! Owns the address with its password, which it never shows. A database is entered when its tables have this program's version: at once
//! where it answers, and with the first connection that gets through where it did not. Must never let a connection out that has not seen
//! to that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onward_store::StoreError;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::address;
use crate::error::{Outcome, Trouble, describe, refusal};
use crate::judge::Judge;
use crate::lineage::Lineage;
use crate::schema;
use crate::sql::Db;
use crate::tls::{Stream, Tls};

/// For how long a machine that does not answer at all is waited for, unless the address says otherwise.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// After which silence of the other side a connection counts as lost, unless the address says otherwise.
const SILENCE_MAX: Duration = Duration::from_secs(15);

pub(crate) struct Entrance {
    /// Whether what is behind it is still what it was.
    pub lineage: Lineage,
    config: Config,
    tls: Tls,
    is_entered: AtomicBool,
    open: Arc<AtomicU64>,
    /// Why the last attempt to connect failed, if it did.
    trouble: Mutex<Option<String>>,
}

/// A connection that counts for as long as it is there.
pub(crate) struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entrance {
    /// Reads an address.
    pub fn to(url: &str) -> Result<Entrance, StoreError> {
        let (rest, wish) = address::take_apart(url);
        let mut config: Config = rest.parse().map_err(|error: Error| StoreError::DatabaseUnusable {
            why: format!("its address cannot be read: {}", describe(&error)),
        })?;
        let (mode, tls) = wish.grant()?;
        if config.get_hosts().is_empty() {
            return Err(StoreError::DatabaseUnusable { why: "its address names no host".to_owned() });
        }
        // Nothing leaves the machine through a socket of its own, and PostgreSQL speaks no TLS there.
        let is_near = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(if is_near { SslMode::Disable } else { mode });
        // Who waits for a machine that is gone must hear of it in bounded time.
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_MAX);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENCE_MAX).keepalives_idle(SILENCE_MAX);
        }
        Ok(Entrance {
            lineage: Lineage::default(),
            config,
            tls,
            is_entered: AtomicBool::new(false),
            open: Arc::default(),
            trouble: Mutex::default(),
        })
    }

    pub async fn dial(&self) -> Result<(Client, Connection<Socket, Stream>, Counted), Error> {
        let dialed = self.config.connect(self.tls.clone()).await;
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = dialed.as_ref().err().map(describe);
        let (client, connection) = dialed?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok((client, connection, Counted(self.open.clone())))
    }

    /// A connection to a database that has our tables.
    pub async fn enter(&self, judge: &Judge) -> Outcome<Db> {
        let db = Db::connect(self).await?;
        if !self.is_entered.load(Ordering::Acquire) {
            self.prepare(&db, judge).await?;
        }
        Ok(db)
    }

    /// Enters for the first time. Where the server answers and does not want us, asking again changes nothing.
    pub async fn try_enter(&self, judge: &Judge) -> Result<(), StoreError> {
        let db = Db::connect(self).await.map_err(|error| refusal(&error))?;
        self.prepare(&db, judge).await
    }

    async fn prepare(&self, db: &Db, judge: &Judge) -> Result<(), StoreError> {
        schema::migrate(db).await?;
        judge.now(self.lineage.open(db).await.map_err(Trouble::into_error)?);
        self.is_entered.store(true, Ordering::Release);
        Ok(())
    }

    pub fn is_entered(&self) -> bool {
        self.is_entered.load(Ordering::Acquire)
    }

    pub fn connections(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
