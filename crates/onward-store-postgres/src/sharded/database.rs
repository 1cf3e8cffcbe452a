//! One of the databases: its health, and the verification of its shard.
//!
//! Owns the health. A database that failed is probed in the background until a probe succeeds; meanwhile it gets no other
//! requests, and callers get an error at once (SD3). A database that is slow to respond is probed, too: if the probe gets no
//! response either, and no other response arrived meanwhile, it counts as down, and callers stop waiting. So a store below must
//! make progress whether or not the caller waits, and must complete or fail in bounded time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use onward_core::Timestamp;
use onward_store::sync::lock;
use onward_store::{Clock, Expired, Shard, Store, StoreError, StoreFuture};
use tokio::sync::Notify;

use crate::sharded::time::{Pace, Time};

/// Health of a database at the last request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub name: String,
    /// Since when it has not responded, and the error.
    pub down: Option<(Timestamp, String)>,
}

/// State that all databases of a store share.
#[derive(Clone)]
pub struct Common {
    pub clock: Arc<dyn Clock>,
    pub time: Arc<Time>,
    pub pace: Pace,
}

pub struct ShardDatabase {
    /// For messages: `database 2 of 3 (name)`.
    pub title: String,
    pub name: String,
    pub store: Arc<dyn Store>,
    common: Common,
    /// Shard to verify before the first use; none if it is verified already, or shards are not recorded.
    share: Option<Shard>,
    is_up: AtomicBool,
    down: Mutex<Option<(Timestamp, String)>>,
    /// Wakes waiting callers when it goes down.
    fallen: Notify,
    /// Whether a probe is running.
    is_questioned: AtomicBool,
    /// Time of the last response, in milliseconds since `born`.
    last_seen_at: AtomicU64,
    born: Instant,
    /// A query for due work that took too long to wait for.
    expiring: Mutex<Option<StoreFuture<'static, Expired>>>,
}

impl ShardDatabase {
    pub fn new(name: String, position: usize, count: usize, store: Arc<dyn Store>, common: Common) -> ShardDatabase {
        ShardDatabase {
            title: format!("database {} of {count} ({name})", position + 1),
            name,
            store,
            common,
            share: None,
            is_up: AtomicBool::new(true),
            down: Mutex::default(),
            fallen: Notify::new(),
            is_questioned: AtomicBool::default(),
            last_seen_at: AtomicU64::default(),
            born: Instant::now(),
            expiring: Mutex::default(),
        }
    }

    /// Converts to a database that is used only after its shard was verified (SD5).
    pub fn unchecked(self, share: Shard, error: &StoreError) -> Arc<ShardDatabase> {
        let database = Arc::new(ShardDatabase { share: Some(share), ..self });
        database.mark_down(reason(error));
        database
    }

    pub fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    pub fn health(&self) -> Health {
        Health { name: self.name.clone(), down: lock(&self.down).clone() }
    }

    /// Sends a request and waits for the result, unless the database is down (SD3).
    pub async fn request<T>(
        self: &Arc<ShardDatabase>,
        question: impl for<'a> FnOnce(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> Result<T, StoreError> {
        match self.refusal() {
            Some(error) => Err(error),
            None => self.wait_for(question(&*self.store)).await,
        }
    }

    /// Waits for a result, at most until the database counts as down. The operation may take effect nevertheless, as with any
    /// lost response.
    pub async fn wait_for<T>(
        self: &Arc<ShardDatabase>,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut answer = pin!(answer);
        let mut waits = Waits(Some(self));
        if let Some(answer) = self.common.time.limit(self.common.pace.answer_max, answer.as_mut()).await {
            waits.0 = None;
            return self.noted(answer);
        }
        drop(waits);
        let mut fallen = pin!(self.fallen.notified());
        poll_fn(|cx| {
            if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
                return Poll::Ready(self.noted(answer));
            }
            let notified = fallen.as_mut().poll(cx);
            match self.refusal() {
                Some(error) => Poll::Ready(Err(error)),
                None if notified.is_ready() => {
                    // It went down and came back: the earlier request may still complete.
                    fallen.set(self.fallen.notified());
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Handles due work. A call that takes long continues on its own, and a later call fetches its result; returns `None` while
    /// it runs.
    pub async fn expire(self: &Arc<ShardDatabase>, limit: usize) -> Result<Option<Expired>, StoreError> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let before = lock(&self.expiring).take();
        let (mut expiry, wait_max) = match before {
            Some(expiry) => (expiry, Duration::ZERO),
            None => (begin_expire(self.store.clone(), limit), self.common.pace.late),
        };
        match self.common.time.limit(wait_max, expiry.as_mut()).await {
            Some(answer) => self.noted(answer).map(Some),
            None => {
                *lock(&self.expiring) = Some(expiry);
                self.start_probe();
                Ok(None)
            }
        }
    }

    /// Updates the health from a result. A database that has stopped or is damaged must not stop work on the others: its callers
    /// get an error that says it is unreachable.
    pub fn noted<T>(self: &Arc<ShardDatabase>, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        match answer {
            Err(error) if is_down(&error) => {
                let why = reason(&error);
                self.mark_down(why.clone());
                Err(self.unavailable(&why))
            }
            answer => {
                self.answered();
                answer
            }
        }
    }

    fn answered(&self) {
        self.last_seen_at.store(self.age(), Ordering::Release);
        if !self.is_up() {
            *lock(&self.down) = None;
            self.is_up.store(true, Ordering::Release);
        }
    }

    fn age(&self) -> u64 {
        self.born.elapsed().as_millis() as u64
    }

    /// Marks it as down, wakes waiting callers and starts a probe.
    fn mark_down(self: &Arc<ShardDatabase>, why: String) {
        let mut down = lock(&self.down);
        let since = down.take().map_or_else(|| self.common.clock.now(), |(since, _)| since);
        *down = Some((since, why));
        self.is_up.store(false, Ordering::Release);
        drop(down);
        self.fallen.notify_waiters();
        // Results of earlier requests are not awaited after it comes back.
        lock(&self.expiring).take();
        self.start_probe();
    }

    /// Starts a probe, unless one is running.
    pub fn start_probe(self: &Arc<ShardDatabase>) {
        if !self.is_questioned.swap(true, Ordering::AcqRel) {
            self.common.time.spawn(question(Arc::downgrade(self), self.common.pace));
        }
    }

    /// Returns the error for callers if it is known to be down.
    pub fn refusal(&self) -> Option<StoreError> {
        if self.is_up() {
            return None;
        }
        let why = lock(&self.down).as_ref().map(|(_, why)| why.clone());
        why.map(|why| self.unavailable(&why))
    }

    fn unavailable(&self, why: &str) -> StoreError {
        StoreError::Unavailable { why: format!("{}: {why}", self.title) }
    }
}

/// Guard of a waiting caller; dropping it before the result arrives starts a probe.
struct Waits<'a>(Option<&'a Arc<ShardDatabase>>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(database) = self.0 {
            database.start_probe();
        }
    }
}

/// Probes the database until a probe succeeds.
async fn question(database: Weak<ShardDatabase>, pace: Pace) {
    while let Some(its) = database.upgrade() {
        let probed_at = its.age();
        let mut answer = small_question(its.store.clone(), its.share.clone());
        drop(its);
        let answer = loop {
            if let Ok(answer) = tokio::time::timeout(pace.answer_max, answer.as_mut()).await {
                break answer;
            }
            // A database that responds to other requests is busy, not down.
            let Some(its) = database.upgrade() else { return };
            let is_silent = its.last_seen_at.load(Ordering::Acquire)
                <= probed_at.max(its.age().saturating_sub(pace.answer_max.as_millis() as u64));
            if is_silent && its.is_up() {
                its.mark_down("it does not respond".to_owned());
            }
        };
        let Some(its) = database.upgrade() else { return };
        if its.noted(answer).is_ok() {
            its.is_questioned.store(false, Ordering::Release);
            // Another request may have marked it as down in between and relied on this probe.
            if its.is_up() || its.is_questioned.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        drop(its);
        tokio::time::sleep(pace.probe_every).await;
    }
}

fn begin_expire(store: Arc<dyn Store>, limit: usize) -> StoreFuture<'static, Expired> {
    Box::pin(async move { store.expire(limit).await })
}

/// Returns whether the error makes the database unusable. One that comes up late may belong to a newer program, or be another
/// one.
fn is_down(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable { .. }
            | StoreError::Stopped { .. }
            | StoreError::Corrupt { .. }
            | StoreError::DatabasesDiffer { .. }
            | StoreError::DatabaseNewer { .. }
            | StoreError::DatabaseUnusable { .. }
            | StoreError::DatabaseUntrusted { .. }
    )
}

fn reason(error: &StoreError) -> String {
    match error {
        StoreError::Unavailable { why } => why.clone(),
        error => error.to_string(),
    }
}

/// Verifies the shard, and runs a query that needs a lookup in every store.
fn small_question(store: Arc<dyn Store>, share: Option<Shard>) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
    Box::pin(async move {
        let found = store.read_shard().await?;
        if let Some(expected) = share {
            crate::sharded::open::check_share(&expected, found.as_ref())?; // SD5
        }
        store.outbox_messages(1).await.map(drop)
    })
}
