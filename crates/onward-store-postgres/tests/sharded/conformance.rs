//! The conformance suite over three databases in memory, its parts about durability over two directories, and random sequences
//! that are compared with one database.

use std::sync::Arc;

use onward_store::conformance::{self, CASES, Subject};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_embedded::{EmbeddedStore, Options};
use onward_store_postgres::sharded::{Database, Pace, ShardedStore};

fn in_memory(count: usize, clock: &Arc<ManualClock>) -> ShardedStore {
    let database = |number: usize| Database { name: number.to_string(), store: Arc::new(MemoryStore::new(clock.clone())) };
    ShardedStore::new((0..count).map(database).collect(), clock.clone(), Pace::default())
}

struct Three(Arc<ShardedStore>);

impl Subject for Three {
    fn store(&self) -> Arc<dyn Store> {
        self.0.clone()
    }

    fn databases(&self) -> u32 {
        3
    }
}

fn three(clock: Arc<ManualClock>) -> Box<dyn Subject> {
    Box::new(Three(Arc::new(in_memory(3, &clock))))
}

onward_store::conformance_tests!(three);

struct Directories {
    clock: Arc<ManualClock>,
    folders: Vec<tempfile::TempDir>,
    store: Option<Arc<dyn Store>>,
}

impl Directories {
    fn open(&mut self) {
        let database = |folder: &tempfile::TempDir| {
            let options = Options { clock: self.clock.clone(), ..Options::default() };
            Database { name: String::new(), store: Arc::new(EmbeddedStore::open(folder.path(), options).unwrap()) }
        };
        let databases = self.folders.iter().map(database).collect();
        self.store = Some(Arc::new(ShardedStore::new(databases, self.clock.clone(), Pace::default())));
    }
}

impl Subject for Directories {
    fn store(&self) -> Arc<dyn Store> {
        self.store.clone().expect("it is open")
    }

    fn reopen(&mut self) {
        self.store = None;
        self.open();
    }
}

#[test]
fn directories_that_are_opened_again_keep_what_each_has() {
    let files = ["children::", "lists::", "continuing::", "restoring::", "inputs::"];
    for case in CASES.iter().filter(|case| files.iter().any(|file| case.name.starts_with(file))) {
        conformance::run_case(case.name, &|clock| {
            let folders = (0..2).map(|_| tempfile::tempdir().unwrap()).collect();
            let mut subject = Directories { clock, folders, store: None };
            subject.open();
            Box::new(subject)
        });
    }
}

#[test]
fn many_random_stories_keep_every_invariant() {
    for seed in conformance::seeds(5) {
        conformance::random_operations(seed, 300, &three);
    }
}

/// Compares everything except the order of claims and of outbox messages, which the comparison ignores for every store.
#[test]
fn several_databases_tell_the_story_that_one_tells() {
    for seed in conformance::seeds(5) {
        let clock = Arc::new(ManualClock::default());
        let (spread, one) = (in_memory(1 + seed as usize % 4, &clock), MemoryStore::new(clock.clone()));
        conformance::differential_of_known_workers(seed, 300, &spread, &one, &clock);
    }
}
