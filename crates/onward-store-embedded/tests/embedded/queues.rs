//! Limits of queues over the death of the process that has the directory open (QL1, QL3).

use std::sync::Arc;

use onward_store::conformance::{self, Mortal, block_on};
use onward_store::{ManualClock, Store};
use onward_store_embedded::{EmbeddedStore, Options, WorkersInside};
use tempfile::TempDir;

use crate::died::died;

/// The number of cases in the ordinary run; the store dies several times in each.
const CASES: u64 = 200;

/// A process with a directory: its successor has a copy of the files as they were at its death.
struct Process {
    clock: Arc<ManualClock>,
    workers_inside: WorkersInside,
    directory: TempDir,
    store: Option<Arc<dyn Store>>,
}

impl Process {
    fn start(clock: Arc<ManualClock>, workers_inside: WorkersInside) -> Process {
        let mut process = Process { clock, workers_inside, directory: tempfile::tempdir().unwrap(), store: None };
        process.open();
        process
    }

    fn open(&mut self) {
        let options = Options { clock: self.clock.clone(), workers_inside: self.workers_inside, ..Options::default() };
        self.store = Some(Arc::new(EmbeddedStore::open(self.directory.path(), options).unwrap()));
    }
}

impl Mortal for Process {
    fn count(&self) -> usize {
        1
    }

    fn store(&self, _server: usize) -> Arc<dyn Store> {
        self.store.clone().unwrap()
    }

    fn die(&mut self, _server: usize) {
        let after = died(self.directory.path());
        self.store = None;
        self.directory = after;
        self.open();
    }

    fn takes_workers_along(&self) -> bool {
        self.workers_inside == WorkersInside::All
    }
}

#[test]
fn holders_never_exceed_a_limit_over_the_deaths_of_the_process() {
    let mut deaths = 0;
    for seed in conformance::seeds(CASES) {
        let workers_inside = if seed % 2 == 0 { WorkersInside::All } else { WorkersInside::None };
        let clock = Arc::new(ManualClock::default());
        let mut process = Process::start(clock.clone(), workers_inside);
        deaths += block_on(conformance::limits_hold_over_deaths(seed, &mut process, &clock));
    }
    assert!(deaths > 0, "the test kills");
}
