//! Memory for request bodies: number of buffered bytes, and which bodies may buffer more.
//!
//! Owns the count of buffered bytes by namespace. A body counts with the bytes that have arrived, not with its declared length,
//! so a client that stops sending holds no more than it has sent. The limit of a namespace depends on the free memory: a
//! namespace may hold as much as is free, so one namespace gets half of the memory, each of two a third, and there is always some
//! left for the next one.
//!
//! Invariants:
//! - BM1: a namespace holds at most as much as it leaves free, except for its oldest body that is still arriving.
//! - BM2: at most one body is counted beyond the limit: the oldest of all that are still arriving.
//! - BM3: of the bodies that are still arriving, at least one can continue, so bodies cannot deadlock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onward_core::Namespace;
use tokio::sync::Notify;

/// Memory that bodies share.
pub(crate) struct BodyMemory {
    bytes_max: usize,
    counts: Mutex<MemoryCounts>,
    freed: Notify,
}

#[derive(Default)]
struct MemoryCounts {
    last_number: u64,
    used: usize,
    namespaces: BTreeMap<Namespace, NamespaceMemory>,
}

/// Memory that one namespace holds.
#[derive(Default)]
struct NamespaceMemory {
    bytes: usize,
    /// Number of bodies in memory, complete ones included.
    bodies: usize,
    /// Incomplete bodies by age: the key is the number that a body got when it was first counted.
    arriving: BTreeMap<u64, ()>,
}

/// One body's share of the memory; released on drop.
pub(crate) struct BodyShare {
    memory: Arc<BodyMemory>,
    namespace: Namespace,
    number: u64,
    bytes: usize,
}

impl BodyMemory {
    pub fn new(bytes_max: usize) -> Arc<BodyMemory> {
        Arc::new(BodyMemory { bytes_max, counts: Mutex::default(), freed: Notify::new() })
    }

    /// Returns an empty share for a new body.
    pub fn share(self: &Arc<BodyMemory>, namespace: Namespace) -> BodyShare {
        let mut counts = self.lock();
        counts.last_number += 1;
        let number = counts.last_number;
        let held = counts.namespaces.entry(namespace.clone()).or_default();
        held.bodies += 1;
        held.arriving.insert(number, ());
        drop(counts);
        BodyShare { memory: self.clone(), namespace, number, bytes: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryCounts {
    /// Returns whether a body may buffer `more` bytes.
    fn may_grow(&self, bytes_max: usize, namespace: &Namespace, number: u64, more: usize) -> bool {
        let free = bytes_max.saturating_sub(self.used);
        let oldest = |held: &NamespaceMemory| held.arriving.keys().next().copied();
        let (held, oldest_here) = self.namespaces.get(namespace).map_or((0, None), |held| (held.bytes, oldest(held)));
        let is_first_here = oldest_here == Some(number);
        let is_first = || self.namespaces.values().filter_map(oldest).min() == Some(number);
        let has_room = held + more <= free.saturating_sub(more); // BM1
        has_room || is_first_here && (more <= free || is_first()) // BM2, BM3
    }
}

impl BodyShare {
    /// Waits until there is room, then counts up to `size` bytes.
    pub async fn grow_to(&mut self, size: usize) {
        let more = size.saturating_sub(self.bytes);
        loop {
            let memory = self.memory.clone();
            let mut freed = std::pin::pin!(memory.freed.notified());
            // Enabled before the check, so that no release is missed.
            freed.as_mut().enable();
            if self.try_grow(more) {
                return;
            }
            freed.await;
        }
    }

    fn try_grow(&mut self, more: usize) -> bool {
        let mut counts = self.memory.lock();
        if !counts.may_grow(self.memory.bytes_max, &self.namespace, self.number, more) {
            return false;
        }
        counts.used += more;
        self.bytes += more;
        if let Some(held) = counts.namespaces.get_mut(&self.namespace) {
            held.bytes += more;
        }
        true
    }

    /// Marks the body as complete: it keeps its memory and needs no more.
    pub fn complete(&mut self) {
        let mut counts = self.memory.lock();
        if let Some(held) = counts.namespaces.get_mut(&self.namespace) {
            held.arriving.remove(&self.number);
        }
        drop(counts);
        self.memory.freed.notify_waiters();
    }
}

impl Drop for BodyShare {
    fn drop(&mut self) {
        let mut counts = self.memory.lock();
        counts.used -= self.bytes;
        if let Some(held) = counts.namespaces.get_mut(&self.namespace) {
            held.bytes -= self.bytes;
            held.bodies -= 1;
            held.arriving.remove(&self.number);
            if held.bodies == 0 {
                counts.namespaces.remove(&self.namespace);
            }
        }
        drop(counts);
        self.memory.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
