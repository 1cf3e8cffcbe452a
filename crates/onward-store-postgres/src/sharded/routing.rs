//! Placement of runs, and requests to one or all databases.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::event::ParentLink;
use onward_core::internal::InternalRuns;
use onward_core::root_run::root_run;
use onward_core::{Hash, RunKey};
use onward_store::sync;
use onward_store::{Change, Clock, Gaps, Listener, Store, StoreError, StoreFuture};

use crate::sharded::database::{Common, Health, ShardDatabase};
use crate::sharded::merge::{Request, join_all};
use crate::sharded::open::Database;
use crate::sharded::time::{Pace, Time};

/// A store over several databases.
pub struct ShardedStore {
    pub(crate) databases: Vec<Arc<ShardDatabase>>,
    pub(crate) common: Common,
    /// Start of the next round, so that no database is always the last.
    turn: AtomicUsize,
    listeners: Mutex<Vec<Arc<dyn Listener>>>,
}

/// Returns the position, among `count` databases, of the one that holds the run and its whole tree (SD1).
pub fn position(key: &RunKey, count: usize) -> usize {
    let hash = Hash::of_parts(&[key.namespace.as_str().as_bytes(), root_run(&key.id).as_bytes()]);
    let number = hash.0.first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes));
    (number % count as u64) as usize
}

/// The result of each database, with its position.
pub type Answers<T> = Vec<(usize, Result<T, StoreError>)>;

impl ShardedStore {
    /// Creates a store over databases without recorded shards, for tests. Use [`ShardedStore::open`] for persistent ones.
    pub fn new(databases: Vec<Database>, clock: Arc<dyn Clock>, pace: Pace) -> ShardedStore {
        let (count, common) = (databases.len(), Common { clock, time: Arc::new(Time::start()), pace });
        let database =
            |(position, Database { name, store })| Arc::new(ShardDatabase::new(name, position, count, store, common.clone()));
        ShardedStore::of(databases.into_iter().enumerate().map(database).collect(), common)
    }

    pub(crate) fn of(databases: Vec<Arc<ShardDatabase>>, common: Common) -> ShardedStore {
        assert!(!databases.is_empty(), "a sharded store needs a database");
        ShardedStore { databases, common, turn: AtomicUsize::new(0), listeners: Mutex::default() }
    }

    /// Returns the health of each database. One that is down is probed once per second.
    pub fn health(&self) -> Vec<Health> {
        self.databases.iter().map(|database| database.health()).collect()
    }

    pub(crate) fn of_run(&self, key: &RunKey) -> &Arc<ShardDatabase> {
        &self.databases[position(key, self.databases.len())]
    }

    /// Sends a request to the database of one run.
    pub(crate) fn request_one<'s, T: 's>(
        &'s self,
        key: &RunKey,
        question: impl for<'a> FnOnce(&'a dyn Store) -> StoreFuture<'a, T> + Send + 's,
    ) -> StoreFuture<'s, T> {
        let database = self.of_run(key);
        Box::pin(database.request(question))
    }

    /// Sends a request to all databases at once. The result of one that is known to be down is its error, without a request
    /// (SD3).
    pub(crate) async fn request_all<T: Send>(
        &self,
        question: impl for<'a> Fn(&'a dyn Store) -> StoreFuture<'a, T> + Sync,
    ) -> Answers<T> {
        self.request_some((0..self.databases.len()).collect(), |_, store| question(store)).await
    }

    pub(crate) async fn request_some<T: Send>(
        &self,
        positions: Vec<usize>,
        question: impl for<'a> Fn(usize, &'a dyn Store) -> StoreFuture<'a, T> + Sync,
    ) -> Answers<T> {
        let question = &question;
        let requests = positions.iter().map(|&position| -> Request<'_, _> {
            Box::pin(self.databases[position].request(move |store| question(position, store)))
        });
        let answers = join_all(requests.collect()).await;
        positions.into_iter().zip(answers).collect()
    }

    /// Returns all positions, beginning with another one every time.
    pub(crate) fn rotated(&self) -> Vec<usize> {
        let (count, first) = (self.databases.len(), self.turn.fetch_add(1, Ordering::Relaxed));
        (0..count).map(|offset| (first.wrapping_add(offset)) % count).collect()
    }

    /// Refuses a child whose id has another root run than its parent (SD2).
    pub(crate) fn check_root_run(&self, key: &RunKey, parent: Option<&ParentLink>) -> Result<(), StoreError> {
        let of = |key: &RunKey| (key.namespace.clone(), root_run(&key.id).to_owned());
        match parent {
            // Runs of a schedule outlive it: they change in writes of their own.
            Some(link) if !InternalRuns::holds_children(&link.run.id) => Ok(()),
            // With a single database, every run is in it.
            Some(link) if self.databases.len() > 1 && of(&link.run) != of(key) => {
                Err(StoreError::RootRunDiffers { child: key.clone(), parent: link.run.clone() })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn listen(&self, listener: Arc<dyn Listener>) {
        sync::lock(&self.listeners).push(listener.clone());
        self.databases.iter().for_each(|database| database.store.subscribe(listener.clone()));
    }

    pub(crate) fn notify_listeners(&self, change: &Change) {
        sync::lock(&self.listeners).iter().for_each(|listener| listener.changed(change));
    }
}

/// Returns the successful results; fails only if there is none (SD3).
pub fn some_answers<T>(answers: Answers<T>) -> Result<Vec<(usize, T)>, StoreError> {
    let (mut found, mut failed) = (Vec::new(), None);
    for (position, answer) in answers {
        match answer {
            Ok(answer) => found.push((position, answer)),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// Returns the successful results and adds the names of unreachable databases to `gaps`; fails if all are unreachable. Without
/// `gaps`, returns all results or the first error (SD4).
pub fn listed<T>(store: &ShardedStore, answers: Answers<T>, gaps: Option<&Gaps>) -> Result<Vec<T>, StoreError> {
    let Some(gaps) = gaps else { return all_answers(answers) };
    let is_missing = |answer: &Result<T, StoreError>| matches!(answer, Err(StoreError::Unavailable { .. }));
    let is_whole = !answers.iter().any(|(_, answer)| is_missing(answer));
    if is_whole || answers.iter().all(|(_, answer)| is_missing(answer)) {
        return all_answers(answers);
    }
    let (missing, found): (Answers<T>, Answers<T>) = answers.into_iter().partition(|(_, answer)| is_missing(answer));
    missing.iter().for_each(|(position, _)| gaps.note(store.databases[*position].name.as_str()));
    all_answers(found)
}

/// Returns all results, or the first error (SD4).
pub fn all_answers<T>(answers: Answers<T>) -> Result<Vec<T>, StoreError> {
    answers.into_iter().map(|(_, answer)| answer).collect()
}
