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
    counts: Mutex<Counts>,
    freed: Notify,
}

#[derive(Default)]
struct Counts {
    last_number: u64,
    used: usize,
    namespaces: BTreeMap<Namespace, Held>,
}

/// Memory that one namespace holds.
#[derive(Default)]
struct Held {
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

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Returns whether a body may buffer `more` bytes.
    fn may_grow(&self, bytes_max: usize, namespace: &Namespace, number: u64, more: usize) -> bool {
        let free = bytes_max.saturating_sub(self.used);
        let oldest = |held: &Held| held.arriving.keys().next().copied();
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
mod tests {
    use super::*;

    fn namespace(name: &str) -> Namespace {
        Namespace::new(name).unwrap()
    }

    fn filled(memory: &Arc<BodyMemory>, name: &str, count: usize, bytes: usize) -> Vec<BodyShare> {
        let mut shares: Vec<BodyShare> = (0..count).map(|_| memory.share(namespace(name))).collect();
        shares.retain_mut(|share| share.try_grow(bytes));
        shares
    }

    #[test]
    fn one_namespace_gets_half_of_the_memory_and_each_of_two_a_third() {
        let memory = BodyMemory::new(1_200);
        let a = filled(&memory, "a", 100, 10);
        assert_eq!(a.len(), 60);
        drop(a);
        let mut shares = Vec::new();
        for _ in 0..100 {
            shares.extend(filled(&memory, "a", 1, 10));
            shares.extend(filled(&memory, "b", 1, 10));
        }
        let of = |name: &str| shares.iter().filter(|share| share.namespace == namespace(name)).count();
        assert_eq!((of("a"), of("b")), (40, 40));
        assert_eq!(filled(&memory, "c", 100, 10).len(), 20, "there is something left for the next one");
    }

    #[test]
    fn the_oldest_body_of_a_namespace_is_not_held_up_by_its_own_namespace() {
        let memory = BodyMemory::new(1_000);
        let mut bodies = filled(&memory, "a", 5, 100);
        assert!(!bodies[1].try_grow(100), "BM1");
        assert!(bodies[0].try_grow(400));
        assert!(!memory.share(namespace("b")).try_grow(101), "100 bytes are free");
        // A complete body needs no more, so the next one is the oldest.
        bodies[0].complete();
        assert!(bodies[1].try_grow(100) && !bodies[2].try_grow(1));
        assert!(bodies[1].try_grow(700), "BM2: one body may be counted beyond the limit");
        assert!(!memory.share(namespace("b")).try_grow(1));
        bodies.clear();
        assert!(memory.lock().namespaces.is_empty() && memory.lock().used == 0);
        assert!(memory.share(namespace("b")).try_grow(500));
    }

    /// Bodies of many sizes arrive, grow, complete and are dropped in a random order.
    #[test]
    fn whatever_the_order_memory_is_bounded_and_some_body_can_go_on() {
        let seed = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand_seed);
        eprintln!("ONWARD_SEED={seed}");
        let mut state: u64 = seed;
        let mut below = |max: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % max
        };
        const LIMIT: usize = 10_000;
        const BODY_MAX: usize = 1_500;
        let memory = BodyMemory::new(LIMIT);
        // Share, missing bytes, and whether the body is complete.
        let mut bodies: Vec<(BodyShare, usize, bool)> = Vec::new();
        for _ in 0..20_000 {
            if bodies.len() < 40 && below(3) == 0 {
                let name = format!("n{}", below(6));
                bodies.push((memory.share(namespace(&name)), 1 + below(BODY_MAX as u64) as usize, false));
            }
            if bodies.is_empty() {
                continue;
            }
            let at = below(bodies.len() as u64) as usize;
            let (share, missing, is_complete) = &mut bodies[at];
            if *is_complete || below(50) == 0 {
                bodies.swap_remove(at);
                continue;
            }
            let more = (*missing).min(1 + below(400) as usize);
            if share.try_grow(more) {
                *missing -= more;
                if *missing == 0 {
                    share.complete();
                    *is_complete = true;
                }
            }
            let used = memory.lock().used;
            assert_eq!(used, bodies.iter().map(|(share, ..)| share.bytes).sum::<usize>());
            assert!(used <= LIMIT + BODY_MAX, "BM2: {used}");
            let counts = memory.lock();
            let mut arriving = bodies.iter().filter(|(_, _, is_complete)| !is_complete).peekable();
            let can_grow =
                |(share, missing, _): &(BodyShare, usize, bool)| counts.may_grow(LIMIT, &share.namespace, share.number, *missing);
            assert!(arriving.peek().is_none() || arriving.any(can_grow), "BM3");
        }
    }

    fn rand_seed() -> u64 {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    }
}
