//! A concurrent map with runs as keys, optimized for lookups of absent runs.
//!
//! Every change of every run is looked up here, on the store's own thread. A lookup in an empty map reads one counter;
//! otherwise it locks one shard briefly. Closures that run under a lock must be short and must not access this map.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use onward_core::RunKey;
use onward_store::sync::lock;

const SHARDS: usize = 16;

pub(crate) struct ByRun<V> {
    count: AtomicUsize,
    hasher: RandomState,
    shards: [Mutex<HashMap<RunKey, V>>; SHARDS],
}

impl<V> Default for ByRun<V> {
    fn default() -> ByRun<V> {
        ByRun { count: AtomicUsize::new(0), hasher: RandomState::new(), shards: Default::default() }
    }
}

impl<V> ByRun<V> {
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Calls `visit` with the value of `key` and returns its result; `None` if there is no value.
    pub fn update<T>(&self, key: &RunKey, visit: impl FnOnce(&mut V) -> T) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        self.shard(key).get_mut(key).map(visit)
    }

    /// Calls `edit`, which may add, change or remove the value of `key`.
    pub fn edit<T>(&self, key: &RunKey, edit: impl FnOnce(&mut Option<V>) -> T) -> T {
        let mut shard = self.shard(key);
        let mut value = shard.remove(key);
        let before = value.is_some();
        let answer = edit(&mut value);
        match (before, value.is_some()) {
            (false, true) => self.count.fetch_add(1, Ordering::SeqCst),
            (true, false) => self.count.fetch_sub(1, Ordering::SeqCst),
            _ => 0,
        };
        if let Some(value) = value {
            shard.insert(key.clone(), value);
        }
        answer
    }

    pub fn each(&self, mut visit: impl FnMut(&RunKey, &V)) {
        for shard in &self.shards {
            lock(shard).iter().for_each(|(key, value)| visit(key, value));
        }
    }

    /// Removes and returns the values that `chosen` accepts.
    pub fn take_all(&self, mut chosen: impl FnMut(&V) -> bool) -> Vec<(RunKey, V)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            taken.extend(lock(shard).extract_if(|_, value| chosen(value)));
        }
        self.count.fetch_sub(taken.len(), Ordering::SeqCst);
        taken
    }

    fn shard(&self, key: &RunKey) -> MutexGuard<'_, HashMap<RunKey, V>> {
        lock(&self.shards[self.hasher.hash_one(key) as usize % SHARDS])
    }
}
