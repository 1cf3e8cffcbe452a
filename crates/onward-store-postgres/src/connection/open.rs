//! Opening of connections, and the preparation of the database before its first use.
//!
//! Owns the address with its password, which it never displays. The database is prepared when its tables have this program's
//! version: when the store is opened, or with the first connection that succeeds later. Must never return a connection to an
//! unprepared database.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use onward_store::StoreError;
use onward_store::sync::lock;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::clock::StoreClock;
use crate::connection::address;
use crate::connection::sql::Db;
use crate::connection::tls::{Stream, Tls};
use crate::error::{Outcome, Trouble, describe, refusal};
use crate::restore_guard::RestoreGuard;
use crate::schema;
use crate::store::Options;

/// Pause after an attempt to connect that timed out. Requests for a connection in between fail with its error.
const DIAL_PACE: Duration = Duration::from_secs(1);
const UNANSWERED: &str = "it accepts connections but does not respond";

pub(crate) struct Entrance {
    /// Detects a restored or replaced database.
    pub restore_guard: RestoreGuard,
    config: Config,
    dial_max: Duration,
    pub silence_max: Duration,
    make_tables: bool,
    tls: Tls,
    is_entered: AtomicBool,
    open: Arc<AtomicU64>,
    /// The error of the last attempt to connect, if it failed.
    trouble: Mutex<Option<String>>,
    /// When the last attempt to connect timed out, if none has succeeded since.
    unanswered: Mutex<Option<Instant>>,
}

/// Guard that counts an open connection.
pub(crate) struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entrance {
    /// Parses an address. Its limits (`connect_timeout`, `tcp_user_timeout`) override `options`.
    pub fn to(url: &str, options: &Options) -> Result<Entrance, StoreError> {
        let (rest, wish) = address::take_apart(url);
        let mut config: Config = rest.parse().map_err(|error: Error| StoreError::DatabaseUnusable {
            why: format!("its address is invalid: {}", describe(&error)),
        })?;
        let (mode, tls) = wish.grant()?;
        if config.get_hosts().is_empty() {
            return Err(StoreError::DatabaseUnusable { why: "its address has no host".to_owned() });
        }
        // PostgreSQL has no TLS on Unix sockets, which do not leave the machine.
        let is_near = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(if is_near { SslMode::Disable } else { mode });
        // The loss of a machine must be detected in bounded time.
        let dial_max = config.get_connect_timeout().copied().unwrap_or(options.dial_max);
        config.connect_timeout(dial_max);
        let silence_max = config.get_tcp_user_timeout().copied().unwrap_or(options.silence_max);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(silence_max).keepalives_idle(silence_max);
        }
        Ok(Entrance {
            restore_guard: RestoreGuard::default(),
            // Several hosts are tried one after the other.
            dial_max: dial_max * config.get_hosts().len() as u32,
            silence_max,
            make_tables: options.make_tables,
            config,
            tls,
            is_entered: AtomicBool::new(false),
            open: Arc::default(),
            trouble: Mutex::default(),
            unanswered: Mutex::default(),
        })
    }

    /// Connects within the limit, which includes TLS and authentication: a server that accepts connections but does not respond
    /// counts as down.
    pub async fn dial(&self) -> Outcome<(Client, Connection<Socket, Stream>, Counted)> {
        if lock(&self.unanswered).is_some_and(|at| at.elapsed() < DIAL_PACE) {
            return Err(unanswered());
        }
        let dialed = tokio::time::timeout(self.dial_max, self.config.connect(self.tls.clone())).await;
        *lock(&self.unanswered) = dialed.is_err().then(Instant::now);
        let Ok(dialed) = dialed else {
            *lock(&self.trouble) = Some(UNANSWERED.to_owned());
            return Err(unanswered());
        };
        *lock(&self.trouble) = dialed.as_ref().err().map(describe);
        let (client, connection) = dialed?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok((client, connection, Counted(self.open.clone())))
    }

    /// Returns a connection to a database that has our tables.
    pub async fn enter(&self, clock: &StoreClock) -> Outcome<Db> {
        let db = Db::connect(self).await?;
        if !self.is_entered.load(Ordering::Acquire) {
            self.prepare(&db, clock).await?;
        }
        Ok(db)
    }

    /// Prepares the database for the first time. Fails as unusable if the server responds and refuses, since retrying does not
    /// help.
    pub async fn try_enter(&self, clock: &StoreClock) -> Result<(), StoreError> {
        let db = Db::connect(self).await.map_err(|trouble| match trouble {
            Trouble::Sql(error) => refusal(&error),
            other => other.into_error(),
        })?;
        self.prepare(&db, clock).await
    }

    async fn prepare(&self, db: &Db, clock: &StoreClock) -> Result<(), StoreError> {
        schema::migrate(db, self.make_tables).await?;
        clock.now(self.restore_guard.open(db).await.map_err(Trouble::into_error)?);
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
        lock(&self.trouble).clone()
    }
}

/// Returns an error that is not retried, since a retry would take as long again.
fn unanswered() -> Trouble {
    Trouble::Refused(StoreError::Unavailable { why: UNANSWERED.to_owned() })
}
