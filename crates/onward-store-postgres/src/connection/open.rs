//! How to get to the database, and what is done before anything is asked of it.
//!
//! Owns the address with its password, which it never shows. A database is entered when its tables have this program's version: at once
//! where it answers, and with the first connection that gets through where it did not. Must never let a connection out that has not seen
//! to that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use onward_store::StoreError;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::connection::address;
use crate::connection::sql::Db;
use crate::connection::tls::{Stream, Tls};
use crate::error::{Outcome, Trouble, describe, refusal};
use crate::judge::Judge;
use crate::restore_guard::Lineage;
use crate::schema;
use crate::store::Options;

/// How long after a call that nobody answered the next one is made. Whoever wants a connection in between is told what came of that one.
const DIAL_PACE: Duration = Duration::from_secs(1);
const UNANSWERED: &str = "it takes connections and does not answer";

pub(crate) struct Entrance {
    /// Whether what is behind it is still what it was.
    pub lineage: Lineage,
    config: Config,
    dial_max: Duration,
    silence_max: Duration,
    make_tables: bool,
    tls: Tls,
    is_entered: AtomicBool,
    open: Arc<AtomicU64>,
    /// Why the last attempt to connect failed, if it did.
    trouble: Mutex<Option<String>>,
    /// When a call was last given up that nobody answered, if none has got through since.
    unanswered: Mutex<Option<Instant>>,
}

/// A connection that counts for as long as it is there.
pub(crate) struct Counted(Arc<AtomicU64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Entrance {
    /// Reads an address. What it says of the limits (`connect_timeout`, `tcp_user_timeout`) counts more than `options`.
    pub fn to(url: &str, options: &Options) -> Result<Entrance, StoreError> {
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
        let dial_max = config.get_connect_timeout().copied().unwrap_or(options.dial_max);
        config.connect_timeout(dial_max);
        let silence_max = config.get_tcp_user_timeout().copied().unwrap_or(options.silence_max);
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(silence_max).keepalives_idle(silence_max);
        }
        Ok(Entrance {
            lineage: Lineage::default(),
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

    /// Connects, which has to be done in bounded time, with all that is said before the first question: whatever takes connections and
    /// does not answer is as good as down.
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
        let db = Db::connect(self).await.map_err(|trouble| match trouble {
            Trouble::Sql(error) => refusal(&error),
            other => other.into_error(),
        })?;
        self.prepare(&db, judge).await
    }

    async fn prepare(&self, db: &Db, judge: &Judge) -> Result<(), StoreError> {
        schema::migrate(db, self.make_tables).await?;
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
        lock(&self.trouble).clone()
    }

    pub fn silence_max(&self) -> Duration {
        self.silence_max
    }
}

/// Asking again at once would only take as long again: so nothing is tried again after this.
fn unanswered() -> Trouble {
    Trouble::Refused(StoreError::Unavailable { why: UNANSWERED.to_owned() })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
