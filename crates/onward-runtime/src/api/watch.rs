//! Waiting for changes of one run.
//!
//! A watch registers a watcher for its run. The store's listener notifies it, and the owner of the watch then reads the run. If
//! a notification is lost, the owner notices late: it polls with growing pauses, because many watches may wait for months.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::view::outcome;
use onward_core::{Event, Failure, Index, Payload, Record, RunHead, RunKey};
use onward_store::Started;
use onward_store::sync::lock;
use tokio::sync::Notify;

use crate::by_run::ByRun;
use crate::{Runtime, RuntimeError, StartRequest};

/// Maximum factor by which the poll interval grows over the fallback.
const BACKOFF_FACTOR_MAX: u32 = 16;

/// The end of a log: its generation and the next index.
type Position = (u32, Index);

#[derive(Default)]
pub(crate) struct Watches {
    watchers: ByRun<Vec<Arc<Watcher>>>,
    /// Number of watchers that are notified of every append, not only of the last one.
    every_append_count: AtomicUsize,
}

struct Watcher {
    wants_every_append: bool,
    state: Mutex<WatchState>,
    changed: Notify,
}

#[derive(Default)]
struct WatchState {
    position: Option<Position>,
    outcome: Option<Result<Payload, Failure>>,
    /// The run changed in a way that is not known here: the owner has to read it.
    must_read: bool,
}

impl Watches {
    pub fn appended(&self, head: &RunHead, record: &Record) {
        // A retried run ends again: watches of the outcome must notice the retry.
        let ends = record.ends_log() || reopens(record);
        if !ends && self.every_append_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.watchers.update(&head.key, |watchers| {
            let position = (head.generation, record.next_index());
            watchers
                .iter()
                .filter(|watcher| ends || watcher.wants_every_append)
                .for_each(|watcher| watcher.notify(position, record));
        });
    }

    /// Notifies watchers after an append of another process: their owners read the run. Watchers of the outcome are notified
    /// only if the append `ends` the run.
    pub fn notify_remote_append(&self, key: &RunKey, ends: bool) {
        self.watchers.update(key, |watchers| {
            watchers.iter().filter(|watcher| ends || watcher.wants_every_append).for_each(|watcher| watcher.request_read())
        });
    }

    pub fn notify_all(&self) {
        self.watchers.each(|_, watchers| watchers.iter().for_each(|watcher| watcher.request_read()));
    }

    /// Discards a known outcome because the run was retried. The retry itself calls this, because the store replies before it
    /// notifies its listeners.
    pub fn reopened(&self, key: &RunKey) {
        self.watchers.update(key, |watchers| watchers.iter().for_each(|watcher| lock(&watcher.state).outcome = None));
    }

    fn register(&self, key: &RunKey, wants_every_append: bool) -> Arc<Watcher> {
        let watcher = Arc::new(Watcher { wants_every_append, state: Mutex::default(), changed: Notify::new() });
        self.every_append_count.fetch_add(usize::from(wants_every_append), Ordering::SeqCst);
        self.watchers.edit(key, |watchers| watchers.get_or_insert_default().push(watcher.clone()));
        watcher
    }

    fn unregister(&self, key: &RunKey, watcher: &Arc<Watcher>) {
        self.every_append_count.fetch_sub(usize::from(watcher.wants_every_append), Ordering::SeqCst);
        self.watchers.edit(key, |watchers| {
            if let Some(list) = watchers {
                list.retain(|other| !Arc::ptr_eq(other, watcher));
                watchers.take_if(|list| list.is_empty());
            }
        });
    }
}

impl Watcher {
    fn request_read(&self) {
        lock(&self.state).must_read = true;
        self.changed.notify_waiters();
    }

    fn notify(&self, position: Position, record: &Record) {
        let mut state = lock(&self.state);
        state.position = state.position.max(Some(position));
        if reopens(record) {
            state.outcome = None;
        } else if state.outcome.is_none() {
            state.outcome = outcome(record);
        }
        drop(state);
        self.changed.notify_waiters();
    }
}

fn reopens(record: &Record) -> bool {
    matches!(record.events.last(), Some(Event::RetryRequested(_)))
}

/// A registered watcher, unregistered on drop.
struct WatchRegistration {
    runtime: Runtime,
    key: RunKey,
    watcher: Arc<Watcher>,
}

impl WatchRegistration {
    fn new(runtime: &Runtime, key: &RunKey, wants_every_append: bool) -> WatchRegistration {
        let watcher = runtime.hub().watches.register(key, wants_every_append);
        WatchRegistration { runtime: runtime.clone(), key: key.clone(), watcher }
    }

    /// Returns the first result of `read`, or `None` when it is time to read the run without a notification.
    async fn wait_for<T>(&self, backoff_factor: &mut u32, mut read: impl FnMut(&WatchState) -> Option<T>) -> Option<T> {
        let until = tokio::time::Instant::now() + self.runtime.options().fallback * *backoff_factor;
        loop {
            let mut changed = pin!(self.watcher.changed.notified());
            // Enable the notification before checking the state, so that no notification is lost in between.
            changed.as_mut().enable();
            let (found, must_read) = {
                let mut known = lock(&self.watcher.state);
                (read(&known), std::mem::take(&mut known.must_read))
            };
            if found.is_some() || must_read {
                *backoff_factor = 1;
                return found;
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                *backoff_factor = (*backoff_factor * 2).min(BACKOFF_FACTOR_MAX);
                return None;
            }
        }
    }
}

impl Drop for WatchRegistration {
    fn drop(&mut self) {
        self.runtime.hub().watches.unregister(&self.key, &self.watcher);
    }
}

/// A watch of every append to one run.
pub struct RunWatch {
    registration: WatchRegistration,
    seen: Position,
    backoff_factor: u32,
}

impl RunWatch {
    /// Returns after an append since the watch was created or since the last call returned. Several appends may count as one
    /// change.
    ///
    /// Fails with `run_not_found` if the run is deleted. Cancel-safe: no change is missed.
    pub async fn changed(&mut self) -> Result<(), RuntimeError> {
        loop {
            let seen = self.seen;
            let newer = |state: &WatchState| state.position.filter(|position| *position > seen);
            if let Some(position) = self.registration.wait_for(&mut self.backoff_factor, newer).await {
                self.seen = position;
                return Ok(());
            }
            let head = self.registration.runtime.read_head(&self.registration.key).await?;
            let position = (head.generation, head.next_index);
            if std::mem::replace(&mut self.seen, position) != position {
                return Ok(());
            }
        }
    }

    /// Returns the generation that was seen last.
    pub fn generation(&self) -> u32 {
        self.seen.0
    }
}

/// A watch of the end of one run. Keeps the outcome for repeated calls.
pub struct OutcomeWatch {
    registration: WatchRegistration,
    /// The watch is older than the run, so its end is notified: the first read of the store can be skipped.
    older: bool,
}

impl OutcomeWatch {
    /// Waits until the run is closed, through all its generations, and returns its result.
    pub async fn outcome(&self) -> Result<Result<Payload, Failure>, RuntimeError> {
        let ended = |state: &WatchState| state.outcome.clone();
        let (mut must_read, mut backoff_factor) = (!self.older, 1);
        loop {
            if must_read && let Some(outcome) = self.registration.runtime.read_outcome(&self.registration.key).await? {
                return Ok(outcome);
            }
            if let Some(outcome) = self.registration.wait_for(&mut backoff_factor, ended).await {
                return Ok(outcome);
            }
            must_read = true;
        }
    }
}

impl Runtime {
    /// Watches a run from now on.
    pub async fn watch_run(&self, key: &RunKey) -> Result<RunWatch, RuntimeError> {
        let registration = WatchRegistration::new(self, key, true);
        let head = self.read_head(key).await?;
        Ok(RunWatch { registration, seen: (head.generation, head.next_index), backoff_factor: 1 })
    }

    /// Registers a watch, then starts the run, so the first read of the store can be skipped.
    pub async fn start_and_watch(&self, start: StartRequest) -> Result<(Started, OutcomeWatch), RuntimeError> {
        let registration = WatchRegistration::new(self, &start.run, false);
        let started = self.start_run(start).await?;
        let older = started.created;
        Ok((started, OutcomeWatch { registration, older }))
    }

    /// Watches the end of a run that is about to be started.
    pub(crate) fn watch_outcome(&self, key: &RunKey) -> OutcomeWatch {
        OutcomeWatch { registration: WatchRegistration::new(self, key, false), older: false }
    }

    /// Waits until the run is closed and returns its result, without reading its log.
    pub async fn wait_for_outcome(&self, key: &RunKey) -> Result<Result<Payload, Failure>, RuntimeError> {
        self.watch_outcome(key).outcome().await
    }
}
