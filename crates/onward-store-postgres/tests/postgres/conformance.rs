//! The conformance suite of all stores, with the store closed and reopened where that matters.

use std::sync::Arc;

use onward_store::conformance::{self, Subject};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_embedded::EmbeddedStore;
use onward_testkit::Database;

use crate::kit::{connect_at, database};

struct Postgres {
    /// Dropped before the database.
    store: Option<Arc<dyn Store>>,
    clock: Arc<ManualClock>,
    database: Database<'static>,
}

impl Subject for Postgres {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().unwrap()
    }

    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(connect_at(&self.database, self.clock.clone()));
    }
}

pub fn postgres(clock: Arc<ManualClock>) -> Box<dyn Subject> {
    let mut subject = Postgres { store: None, clock, database: database() };
    subject.reopen();
    Box::new(subject)
}

onward_store::conformance_tests!(postgres);

#[test]
fn many_random_stories_keep_every_invariant() {
    for seed in conformance::seeds(2) {
        conformance::random_operations(seed, 150, &postgres);
    }
}

#[test]
fn postgres_matches_the_reference_store() {
    for seed in conformance::seeds(4) {
        let clock = Arc::new(ManualClock::default());
        let reference = MemoryStore::new(clock.clone());
        let subject = postgres(clock.clone());
        conformance::differential(seed, 250, &*subject.store(), &reference, &clock);
    }
}

#[test]
fn postgres_matches_the_embedded_store() {
    for seed in conformance::seeds(2) {
        let clock = Arc::new(ManualClock::default());
        let directory = tempfile::tempdir().unwrap();
        let options = onward_store_embedded::Options { clock: clock.clone(), ..Default::default() };
        let reference = EmbeddedStore::open(directory.path(), options).unwrap();
        let subject = postgres(clock.clone());
        conformance::differential(seed, 200, &*subject.store(), &reference, &clock);
    }
}

/// QL1 to QL6, with slots: both lease the same tasks of a queue whose limits change.
#[test]
fn postgres_limits_queues_as_the_reference_does() {
    for seed in conformance::seeds(5) {
        let clock = Arc::new(ManualClock::default());
        let (reference, subject) = (MemoryStore::new(clock.clone()), postgres(clock.clone()));
        conformance::differential_of_limits(seed, 250, &*subject.store(), &reference, &clock);
    }
}
