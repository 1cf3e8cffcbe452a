//! Waiting for changes of one run.
//!
//! A watch registers a bell for its run. The store's listener rings it, and the owner of the watch then reads the run. If a
//! ring is lost, the owner notices late: it polls with growing pauses, because many watches may wait for months.

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
const PATIENCE_MAX: u32 = 16;

/// The end of a log: its generation and the next index.
type Position = (u32, Index);

#[derive(Default)]
pub(crate) struct Watches {
    bells: ByRun<Vec<Arc<Bell>>>,
    /// Number of bells that ring for every append, not only for the last one.
    curious: AtomicUsize,
}

struct Bell {
    curious: bool,
    state: Mutex<WatchState>,
    rung: Notify,
}

#[derive(Default)]
struct WatchState {
    position: Option<Position>,
    outcome: Option<Result<Payload, Failure>>,
    /// The run changed in a way that is not known here: the owner has to read it.
    look: bool,
}

impl Watches {
    pub fn appended(&self, head: &RunHead, record: &Record) {
        // A retried run ends again: watches of the outcome must notice the retry.
        let ends = record.ends_log() || reopens(record);
        if !ends && self.curious.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.bells.update(&head.key, |bells| {
            let position = (head.generation, record.next_index());
            bells.iter().filter(|bell| ends || bell.curious).for_each(|bell| bell.ring(position, record));
        });
    }

    /// Rings after an append of another process: the owners read the run. Watches of the outcome ring only if the append `ends`
    /// the run.
    pub fn look(&self, key: &RunKey, ends: bool) {
        self.bells.update(key, |bells| bells.iter().filter(|bell| ends || bell.curious).for_each(|bell| bell.look()));
    }

    pub fn look_all(&self) {
        self.bells.each(|_, bells| bells.iter().for_each(|bell| bell.look()));
    }

    /// Discards a known outcome because the run was retried. The retry itself calls this, because the store replies before it
    /// notifies its listeners.
    pub fn reopened(&self, key: &RunKey) {
        self.bells.update(key, |bells| bells.iter().for_each(|bell| lock(&bell.state).outcome = None));
    }

    fn hang(&self, key: &RunKey, curious: bool) -> Arc<Bell> {
        let bell = Arc::new(Bell { curious, state: Mutex::default(), rung: Notify::new() });
        self.curious.fetch_add(usize::from(curious), Ordering::SeqCst);
        self.bells.edit(key, |bells| bells.get_or_insert_default().push(bell.clone()));
        bell
    }

    fn take_down(&self, key: &RunKey, bell: &Arc<Bell>) {
        self.curious.fetch_sub(usize::from(bell.curious), Ordering::SeqCst);
        self.bells.edit(key, |bells| {
            if let Some(list) = bells {
                list.retain(|other| !Arc::ptr_eq(other, bell));
                bells.take_if(|list| list.is_empty());
            }
        });
    }
}

impl Bell {
    fn look(&self) {
        lock(&self.state).look = true;
        self.rung.notify_waiters();
    }

    fn ring(&self, position: Position, record: &Record) {
        let mut state = lock(&self.state);
        state.position = state.position.max(Some(position));
        if reopens(record) {
            state.outcome = None;
        } else if state.outcome.is_none() {
            state.outcome = outcome(record);
        }
        drop(state);
        self.rung.notify_waiters();
    }
}

fn reopens(record: &Record) -> bool {
    matches!(record.events.last(), Some(Event::RetryRequested(_)))
}

/// A registered bell, removed on drop.
struct Hung {
    runtime: Runtime,
    key: RunKey,
    bell: Arc<Bell>,
}

impl Hung {
    fn new(runtime: &Runtime, key: &RunKey, curious: bool) -> Hung {
        let bell = runtime.hub().watches.hang(key, curious);
        Hung { runtime: runtime.clone(), key: key.clone(), bell }
    }

    /// Returns the first result of `read`, or `None` when it is time to read the run without a ring.
    async fn wait_for<T>(&self, patience: &mut u32, mut read: impl FnMut(&WatchState) -> Option<T>) -> Option<T> {
        let until = tokio::time::Instant::now() + self.runtime.options().fallback * *patience;
        loop {
            let mut rung = pin!(self.bell.rung.notified());
            // Enable the notification before checking the state, so that no ring is lost in between.
            rung.as_mut().enable();
            let (found, look) = {
                let mut known = lock(&self.bell.state);
                (read(&known), std::mem::take(&mut known.look))
            };
            if found.is_some() || look {
                *patience = 1;
                return found;
            }
            if tokio::time::timeout_at(until, rung).await.is_err() {
                *patience = (*patience * 2).min(PATIENCE_MAX);
                return None;
            }
        }
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.runtime.hub().watches.take_down(&self.key, &self.bell);
    }
}

/// A watch of every append to one run.
pub struct RunWatch {
    hung: Hung,
    seen: Position,
    patience: u32,
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
            if let Some(position) = self.hung.wait_for(&mut self.patience, newer).await {
                self.seen = position;
                return Ok(());
            }
            let head = self.hung.runtime.read_head(&self.hung.key).await?;
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
    hung: Hung,
    /// The watch is older than the run, so the bell rings for its end: the first read of the store can be skipped.
    older: bool,
}

impl OutcomeWatch {
    /// Waits until the run is closed, through all its generations, and returns its result.
    pub async fn outcome(&self) -> Result<Result<Payload, Failure>, RuntimeError> {
        let ended = |state: &WatchState| state.outcome.clone();
        let (mut look, mut patience) = (!self.older, 1);
        loop {
            if look && let Some(outcome) = self.hung.runtime.read_outcome(&self.hung.key).await? {
                return Ok(outcome);
            }
            if let Some(outcome) = self.hung.wait_for(&mut patience, ended).await {
                return Ok(outcome);
            }
            look = true;
        }
    }
}

impl Runtime {
    /// Watches a run from now on.
    pub async fn watch_run(&self, key: &RunKey) -> Result<RunWatch, RuntimeError> {
        let hung = Hung::new(self, key, true);
        let head = self.read_head(key).await?;
        Ok(RunWatch { hung, seen: (head.generation, head.next_index), patience: 1 })
    }

    /// Registers a watch, then starts the run, so the first read of the store can be skipped.
    pub async fn start_and_watch(&self, start: StartRequest) -> Result<(Started, OutcomeWatch), RuntimeError> {
        let hung = Hung::new(self, &start.run, false);
        let started = self.start_run(start).await?;
        let older = started.created;
        Ok((started, OutcomeWatch { hung, older }))
    }

    /// Watches the end of a run that is about to be started.
    pub(crate) fn watch_outcome(&self, key: &RunKey) -> OutcomeWatch {
        OutcomeWatch { hung: Hung::new(self, key, false), older: false }
    }

    /// Waits until the run is closed and returns its result, without reading its log.
    pub async fn wait_for_outcome(&self, key: &RunKey) -> Result<Result<Payload, Failure>, RuntimeError> {
        self.watch_outcome(key).outcome().await
    }
}
