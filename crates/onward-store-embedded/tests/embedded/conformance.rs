//! The conformance suite, with the store reopened midway.

use std::sync::Arc;

use onward_store::conformance::{self, Subject};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_embedded::{EmbeddedStore, Options};
use tempfile::TempDir;

struct Embedded {
    directory: TempDir,
    clock: Arc<ManualClock>,
    store: Option<Arc<dyn Store>>,
}

impl Embedded {
    fn open(&mut self) {
        let options = Options { clock: self.clock.clone(), ..Options::default() };
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(self.directory.path(), options).unwrap());
        self.store = Some(store);
    }
}

impl Subject for Embedded {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().unwrap()
    }

    fn reopen(&mut self) {
        self.store = None;
        self.open();
    }
}

fn embedded(clock: Arc<ManualClock>) -> Box<dyn Subject> {
    let mut subject = Embedded { directory: tempfile::tempdir().unwrap(), clock, store: None };
    subject.open();
    Box::new(subject)
}

onward_store::conformance_tests!(embedded);

#[test]
fn many_random_stories_keep_every_invariant() {
    for seed in conformance::seeds(4) {
        conformance::random_operations(seed, 200, &embedded);
    }
}

#[test]
fn the_embedded_store_tells_the_story_of_the_reference() {
    for seed in conformance::seeds(6) {
        let clock = Arc::new(ManualClock::default());
        let reference = MemoryStore::new(clock.clone());
        let subject = embedded(clock.clone());
        conformance::differential(seed, 300, &*subject.store(), &reference, &clock);
    }
}

/// QL1 to QL6, with slots: both lease the same tasks of a queue whose limits change.
#[test]
fn the_embedded_store_limits_queues_as_the_reference_does() {
    for seed in conformance::seeds(8) {
        let clock = Arc::new(ManualClock::default());
        let (reference, subject) = (MemoryStore::new(clock.clone()), embedded(clock.clone()));
        conformance::differential_of_limits(seed, 300, &*subject.store(), &reference, &clock);
    }
}
