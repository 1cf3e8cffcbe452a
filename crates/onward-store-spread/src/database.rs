//! One of the databases: whether it answers, and whether it is the one it is taken for.
//!
//! Owns what is known of its health. A database that did not answer is not asked again before a small question has got through to it, for
//! whose answer nobody waits: it is looked at whenever somebody comes by (SD3). So a store that is put here must make progress with what
//! it was asked whether or not anybody waits, and must answer or fail in a bounded time.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use onward_core::Timestamp;
use onward_store::{Clock, Share, Store, StoreError, StoreFuture};

/// How long after a question that failed the next one is asked of a database that is down.
const PROBE_PACE: Duration = Duration::from_secs(1);

/// How a database was when it was last asked for something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub name: String,
    /// Since when it has not answered, and what it said instead.
    pub down: Option<(Timestamp, String)>,
}

pub struct Place {
    /// For people: `database 2 of 3 (name)`.
    title: String,
    name: String,
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// What it must say of itself before it is used; none if nobody wants to know.
    share: Option<Share>,
    is_checked: AtomicBool,
    is_up: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    down: Option<(Timestamp, String)>,
    probe: Option<StoreFuture<'static, ()>>,
    probe_at: Timestamp,
}

impl Place {
    pub fn new(name: String, position: usize, count: usize, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> Place {
        Place {
            title: format!("database {} of {count} ({name})", position + 1),
            name,
            store,
            clock,
            share: None,
            is_checked: AtomicBool::new(true),
            is_up: AtomicBool::new(true),
            state: Mutex::default(),
        }
    }

    /// One that could not be asked yet who it is.
    pub fn unchecked(self, share: Share, error: StoreError) -> Place {
        let place = Place { share: Some(share), is_checked: AtomicBool::new(false), ..self };
        drop(place.noted::<()>(Err(error)));
        place
    }

    pub fn title(&self) -> &str {
        &self.title
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn health(&self) -> Health {
        Health { name: self.name.clone(), down: self.lock().down.clone() }
    }

    /// Asks it, and waits for what it says.
    pub async fn ask<T>(&self, question: impl for<'a> FnOnce(&'a dyn Store) -> StoreFuture<'a, T>) -> Result<T, StoreError> {
        if !self.is_checked.load(Ordering::Acquire) {
            let answer = check(&*self.store, self.share.as_ref()).await;
            self.noted(answer)?; // SD5
            self.is_checked.store(true, Ordering::Release);
        }
        let answer = question(&*self.store).await;
        self.noted(answer)
    }

    /// Whether a question may be handed over at once.
    pub fn is_checked(&self) -> bool {
        self.is_checked.load(Ordering::Acquire)
    }

    /// Takes note of how it answers. That one database has stopped or is damaged stops nobody else's work: for its callers it cannot be
    /// reached.
    pub fn noted<T>(&self, answer: Result<T, StoreError>) -> Result<T, StoreError> {
        let why = match answer {
            Err(StoreError::Unavailable { why }) => why,
            Err(error) if is_unusable(&error) => error.to_string(),
            answer => {
                if !self.is_up.swap(true, Ordering::AcqRel) {
                    self.lock().down = None;
                }
                return answer;
            }
        };
        self.fell(why.clone());
        Err(self.unavailable(&why))
    }

    /// It did not answer.
    pub fn fell(&self, why: String) {
        let mut state = self.lock();
        let since = state.down.take().map_or_else(|| self.clock.now(), |(since, _)| since);
        state.down = Some((since, why));
        state.probe_at = self.clock.now().after(PROBE_PACE);
        self.is_up.store(false, Ordering::Release);
    }

    /// Why it is not asked: it is known to be down, and the small question has not got through yet.
    pub async fn refusal(&self) -> Option<StoreError> {
        poll_fn(|cx| Poll::Ready(self.look(cx))).await
    }

    fn look(&self, cx: &mut Context<'_>) -> Option<StoreError> {
        if self.is_up.load(Ordering::Acquire) {
            return None;
        }
        let now = self.clock.now();
        let mut state = self.lock();
        if state.probe.is_none() && now >= state.probe_at {
            state.probe = Some(probe(self.store.clone(), self.share.clone()));
        }
        match state.probe.as_mut().map(|probe| probe.as_mut().poll(cx)) {
            Some(Poll::Ready(answer)) => {
                state.probe = None;
                drop(state);
                if let Err(error) = self.noted(answer) {
                    return Some(error);
                }
                self.is_checked.store(true, Ordering::Release);
                None
            }
            Some(Poll::Pending) | None => {
                let why = state.down.as_ref().map_or_else(String::new, |(_, why)| why.clone());
                Some(self.unavailable(&why))
            }
        }
    }

    fn unavailable(&self, why: &str) -> StoreError {
        StoreError::Unavailable { why: format!("{}: {why}", self.title) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether nothing can be asked of a database that says this. One that came up late may turn out to be a newer program's, or another one.
fn is_unusable(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Stopped { .. }
            | StoreError::Corrupt { .. }
            | StoreError::DatabasesDiffer { .. }
            | StoreError::DatabaseNewer { .. }
            | StoreError::DatabaseUnusable { .. }
            | StoreError::DatabaseUntrusted { .. }
    )
}

/// The small question: who it is, and something that every database has to look up.
fn probe(store: Arc<dyn Store>, share: Option<Share>) -> StoreFuture<'static, ()> {
    Box::pin(async move {
        check(&*store, share.as_ref()).await?;
        store.deliveries(1).await.map(drop)
    })
}

async fn check(store: &dyn Store, share: Option<&Share>) -> Result<(), StoreError> {
    match share {
        Some(expected) => crate::open::check_share(expected, store.read_share().await?.as_ref()),
        None => Ok(()),
    }
}
