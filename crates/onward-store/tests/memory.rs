//! The memory store passes the conformance suite.

use std::sync::Arc;

use onward_store::conformance::{self, Subject, Volatile};
use onward_store::{ManualClock, MemoryStore};

fn memory(clock: Arc<ManualClock>) -> Box<dyn Subject> {
    Box::new(Volatile(Arc::new(MemoryStore::new(clock))))
}

onward_store::conformance_tests!(memory);

#[test]
fn many_random_stories_keep_every_invariant() {
    for seed in conformance::seeds(10) {
        conformance::random_operations(seed, 300, &memory);
    }
}

#[test]
fn two_memory_stores_tell_the_same_story() {
    for seed in conformance::seeds(5) {
        let clock = Arc::new(ManualClock::default());
        let stores = [MemoryStore::new(clock.clone()), MemoryStore::new(clock.clone())];
        conformance::differential(seed, 300, &stores[0], &stores[1], &clock);
    }
}
