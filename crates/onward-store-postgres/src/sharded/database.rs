//! One of the databases: whether it answers, and whether it is the one it is taken for.
//!
//! Owns what is known of its health. A database that did not answer is asked a small question in the background, again and again, until it
//! has answered; until then it is asked for nothing else, and whoever wants something of it is told so at once (SD3). One that keeps
//! somebody waiting is asked the small question too: if it does not answer that either, and nothing else was heard of it meanwhile, it
//! counts as down, and nobody waits any longer. So a store that is put here must make progress with what it was asked whether or not
//! anybody waits, and must answer or fail in a bounded time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::{Duration, Instant};

use onward_core::Timestamp;
use onward_store::{Clock, Expired, Share, Store, StoreError, StoreFuture};
use tokio::sync::Notify;

use crate::sharded::time::{Pace, Time};

/// How a database was when it was last asked for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub name: String,
    /// Since when it has not answered, and what it said instead.
    pub down: Option<(Timestamp, String)>,
}

/// What all databases of a store have in common.
#[derive(Clone)]
pub struct Common {
    pub clock: Arc<dyn Clock>,
    pub time: Arc<Time>,
    pub pace: Pace,
}

pub struct Place {
    /// For people: `database 2 of 3 (name)`.
    title: String,
    name: String,
    store: Arc<dyn Store>,
    common: Common,
    /// What it must say of itself before it is used; none if it has said so already, or nobody wants to know.
    share: Option<Share>,
    is_up: AtomicBool,
    down: Mutex<Option<(Timestamp, String)>>,
    /// Tells those who wait that it has fallen.
    fallen: Notify,
    /// Whether the small question is being asked.
    is_questioned: AtomicBool,
    /// When it last answered anything, in milliseconds since `born`.
    heard_at: AtomicU64,
    born: Instant,
    /// A look for what is due that took too long to be waited for.
    expiring: Mutex<Option<StoreFuture<'static, Expired>>>,
}

impl Place {
    pub fn new(name: String, position: usize, count: usize, store: Arc<dyn Store>, common: Common) -> Place {
        Place {
            title: format!("database {} of {count} ({name})", position + 1),
            name,
            store,
            common,
            share: None,
            is_up: AtomicBool::new(true),
            down: Mutex::default(),
            fallen: Notify::new(),
            is_questioned: AtomicBool::default(),
            heard_at: AtomicU64::default(),
            born: Instant::now(),
            expiring: Mutex::default(),
        }
    }

    /// One that could not be asked yet who it is: it is used when it has said so (SD5).
    pub fn unchecked(self, share: Share, error: &StoreError) -> Arc<Place> {
        let place = Arc::new(Place { share: Some(share), ..self });
        place.fell(reason(error));
        place
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Acquire)
    }

    pub fn health(&self) -> Health {
        Health { name: self.name.clone(), down: lock(&self.down).clone() }
    }

    /// Asks it, and waits for what it says, unless it is down (SD3).
    pub async fn ask<T>(
        self: &Arc<Place>,
        question: impl for<'a> FnOnce(&'a dyn Store) -> StoreFuture<'a, T>,
    ) -> Result<T, StoreError> {
        match self.refusal() {
            Some(error) => Err(error),
            None => self.hear(question(&*self.store)).await,
        }
    }

    /// Waits for an answer, but no longer than until it is known that there will be none soon. What was asked may happen all the same, as
    /// with any answer that was lost.
    pub async fn hear<T>(self: &Arc<Place>, answer: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
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
            let told = fallen.as_mut().poll(cx);
            match self.refusal() {
                Some(error) => Poll::Ready(Err(error)),
                None if told.is_ready() => {
                    // It has fallen and is there again: one that was asked before may still answer.
                    fallen.set(self.fallen.notified());
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await
    }

    /// Looks for what is due. A look that takes long is left to itself, and its answer is fetched by a later one: nothing if it is still
    /// under way.
    pub async fn expire(self: &Arc<Place>, limit: usize) -> Result<Option<Expired>, StoreError> {
        if let Some(error) = self.refusal() {
            return Err(error);
        }
        let before = lock(&self.expiring).take();
        let (mut look, patience) = match before {
            Some(look) => (look, Duration::ZERO),
            None => (begin_expire(self.store.clone(), limit), self.common.pace.late),
        };
        match self.common.time.limit(patience, look.as_mut()).await {
            Some(answer) => self.noted(answer).map(Some),
            None => {
                *lock(&self.expiring) = Some(look);
                self.doubt();
                Ok(None)
            }
        }
    }

    /// Takes note of how it answers. That one database has stopped or is damaged stops nobody else's work: for its callers it cannot be
    /// reached.
    pub fn noted<T>(self: &Arc<Place>, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        match answer {
            Err(error) if is_down(&error) => {
                let why = reason(&error);
                self.fell(why.clone());
                Err(self.unavailable(&why))
            }
            answer => {
                self.answered();
                answer
            }
        }
    }

    fn answered(&self) {
        self.heard_at.store(self.age(), Ordering::Release);
        if !self.is_up() {
            *lock(&self.down) = None;
            self.is_up.store(true, Ordering::Release);
        }
    }

    fn age(&self) -> u64 {
        self.born.elapsed().as_millis() as u64
    }

    /// It did not answer.
    fn fell(self: &Arc<Place>, why: String) {
        let mut down = lock(&self.down);
        let since = down.take().map_or_else(|| self.common.clock.now(), |(since, _)| since);
        *down = Some((since, why));
        self.is_up.store(false, Ordering::Release);
        drop(down);
        self.fallen.notify_waiters();
        // What was asked of it before is not waited for, once it is there again.
        lock(&self.expiring).take();
        self.doubt();
    }

    /// Asks it the small question, if nobody does.
    pub fn doubt(self: &Arc<Place>) {
        if !self.is_questioned.swap(true, Ordering::AcqRel) {
            self.common.time.spawn(question(Arc::downgrade(self), self.common.pace));
        }
    }

    /// Why it is not asked: it is known to be down.
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

/// Somebody who waits. Who gives up before there is an answer raises a doubt.
struct Waits<'a>(Option<&'a Arc<Place>>);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.0 {
            place.doubt();
        }
    }
}

/// Asks the small question until it is answered.
async fn question(place: Weak<Place>, pace: Pace) {
    while let Some(its) = place.upgrade() {
        let asked_at = its.age();
        let mut answer = small_question(its.store.clone(), its.share.clone());
        drop(its);
        let answer = loop {
            if let Ok(answer) = tokio::time::timeout(pace.answer_max, answer.as_mut()).await {
                break answer;
            }
            // A database that has something else to say is busy and not down.
            let Some(its) = place.upgrade() else { return };
            let is_silent = its.heard_at.load(Ordering::Acquire)
                <= asked_at.max(its.age().saturating_sub(pace.answer_max.as_millis() as u64));
            if is_silent && its.is_up() {
                its.fell("it does not answer".to_owned());
            }
        };
        let Some(its) = place.upgrade() else { return };
        if its.noted(answer).is_ok() {
            its.is_questioned.store(false, Ordering::Release);
            // Somebody may have found it down in between, and have left the question to us.
            if its.is_up() || its.is_questioned.swap(true, Ordering::AcqRel) {
                return;
            }
        }
        drop(its);
        tokio::time::sleep(pace.ask_every).await;
    }
}

fn begin_expire(store: Arc<dyn Store>, limit: usize) -> StoreFuture<'static, Expired> {
    Box::pin(async move { store.expire(limit).await })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether nothing can be asked of a database that says this. One that came up late may turn out to be a newer program's, or another one.
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

/// Who it is, and something that every database has to look up.
fn small_question(store: Arc<dyn Store>, share: Option<Share>) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
    Box::pin(async move {
        let found = store.read_share().await?;
        if let Some(expected) = share {
            crate::sharded::open::check_share(&expected, found.as_ref())?; // SD5
        }
        store.deliveries(1).await.map(drop)
    })
}
