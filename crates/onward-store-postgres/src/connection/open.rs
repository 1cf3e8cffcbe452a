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
use crate::error::{OpError, Outcome, describe, refusal};
use crate::restore_guard::RestoreGuard;
use crate::schema;
use crate::store::Options;

/// Pause after an attempt to connect that timed out. Requests for a connection in between fail with its error.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const UNANSWERED: &str = "it accepts connections but does not respond";

pub(crate) struct Connector {
    /// Detects a restored or replaced database.
    pub restore_guard: RestoreGuard,
    config: Config,
    connect_timeout: Duration,
    pub silence_timeout: Duration,
    make_tables: bool,
    tls: Tls,
    is_prepared: AtomicBool,
    open: Arc<AtomicU64>,
    /// The error of the last attempt to connect, if it failed.
    last_error: Mutex<Option<String>>,
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

impl Connector {
    /// Parses an address. Its limits (`connect_timeout`, `tcp_user_timeout`) override `options`.
    pub fn to(url: &str, options: &Options) -> Result<Connector, StoreError> {
        let (rest, tls_settings) = address::split_tls_settings(url);
        let mut config: Config = rest.parse().map_err(|error: Error| StoreError::DatabaseUnusable {
            why: format!("its address is invalid: {}", describe(&error)),
        })?;
        let (mode, tls) = tls_settings.configure()?;
        if config.get_hosts().is_empty() {
            return Err(StoreError::DatabaseUnusable { why: "its address has no host".to_owned() });
        }
        // PostgreSQL has no TLS on Unix sockets, which do not leave the machine.
        let is_near = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        config.ssl_mode(if is_near { SslMode::Disable } else { mode });
        // The loss of a machine must be detected in bounded time.
        let connect_timeout = config.get_connect_timeout().copied().unwrap_or(options.connect_timeout);
        config.connect_timeout(connect_timeout);
        let silence_timeout = config.get_tcp_user_timeout().copied().unwrap_or(options.silence_timeout);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(silence_timeout).keepalives_idle(silence_timeout);
        }
        Ok(Connector {
            restore_guard: RestoreGuard::default(),
            // Several hosts are tried one after the other.
            connect_timeout: connect_timeout * config.get_hosts().len() as u32,
            silence_timeout,
            make_tables: options.make_tables,
            config,
            tls,
            is_prepared: AtomicBool::new(false),
            open: Arc::default(),
            last_error: Mutex::default(),
            unanswered: Mutex::default(),
        })
    }

    /// Connects within the limit, which includes TLS and authentication: a server that accepts connections but does not respond
    /// counts as down.
    pub async fn connect(&self) -> Outcome<(Client, Connection<Socket, Stream>, Counted)> {
        if lock(&self.unanswered).is_some_and(|at| at.elapsed() < RECONNECT_PAUSE) {
            return Err(unanswered());
        }
        let connected = tokio::time::timeout(self.connect_timeout, self.config.connect(self.tls.clone())).await;
        *lock(&self.unanswered) = connected.is_err().then(Instant::now);
        let Ok(connected) = connected else {
            *lock(&self.last_error) = Some(UNANSWERED.to_owned());
            return Err(unanswered());
        };
        *lock(&self.last_error) = connected.as_ref().err().map(describe);
        let (client, connection) = connected?;
        self.open.fetch_add(1, Ordering::Relaxed);
        Ok((client, connection, Counted(self.open.clone())))
    }

    /// Returns a connection to a database that has our tables.
    pub async fn open(&self, clock: &StoreClock) -> Outcome<Db> {
        let db = Db::connect(self).await?;
        if !self.is_prepared.load(Ordering::Acquire) {
            self.prepare(&db, clock).await?;
        }
        Ok(db)
    }

    /// Prepares the database for the first time. Fails as unusable if the server responds and refuses, since retrying does not
    /// help.
    pub async fn try_open(&self, clock: &StoreClock) -> Result<(), StoreError> {
        let db = Db::connect(self).await.map_err(|error| match error {
            OpError::Sql(error) => refusal(&error),
            other => other.into_error(),
        })?;
        self.prepare(&db, clock).await
    }

    async fn prepare(&self, db: &Db, clock: &StoreClock) -> Result<(), StoreError> {
        schema::migrate(db, self.make_tables).await?;
        clock.now(self.restore_guard.open(db).await.map_err(OpError::into_error)?);
        self.is_prepared.store(true, Ordering::Release);
        Ok(())
    }

    pub fn is_prepared(&self) -> bool {
        self.is_prepared.load(Ordering::Acquire)
    }

    pub fn connections(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    pub fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }
}

/// Returns an error that is not retried, since a retry would take as long again.
fn unanswered() -> OpError {
    OpError::Refused(StoreError::Unavailable { why: UNANSWERED.to_owned() })
}
