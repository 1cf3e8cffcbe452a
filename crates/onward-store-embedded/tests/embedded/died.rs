//! Runs that a dead process was executing count it as a lost worker at the next opening (CW1).
//!
//! A process that dies leaves the files of its directory as they are: a copy of them is the directory after its death.

use std::path::Path;

use onward_core::event::TerminateRequested;
use onward_core::run::Input;
use onward_core::{RunHead, Status, WorkerId};
use onward_store::conformance::block_on;
use onward_store::{Store, SystemClock};
use onward_store_embedded::{EmbeddedStore, Options, WorkersInside};

use crate::workload::{key, new_run};

fn open(directory: &Path, workers_inside: WorkersInside) -> EmbeddedStore {
    EmbeddedStore::open(directory, Options { workers_inside, ..Options::default() }).unwrap()
}

/// Starts a run that a worker of this process has.
fn start(store: &EmbeddedStore, id: &str, worker: &str) {
    block_on(store.start_run(new_run(id), Some(WorkerId::new(worker).unwrap()))).unwrap();
}

fn terminate() -> Input {
    Input::new(TerminateRequested { reason: String::new(), reset_to: None })
}

/// Claims the run again.
fn claim(store: &EmbeddedStore, id: &str, worker: &str) {
    let claimed = block_on(store.claim_run(key(id), WorkerId::new(worker).unwrap(), None)).unwrap();
    assert!(claimed.claimed.is_some(), "{:?}", claimed.head.status);
}

/// Returns the directory as it is when the process dies now. It is copied again if a file changed meanwhile: a death has one
/// moment.
pub fn died(directory: &Path) -> tempfile::TempDir {
    let names = || std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    loop {
        let (copy, copied) = (tempfile::tempdir().unwrap(), names());
        for name in &copied {
            std::fs::copy(directory.join(name), copy.path().join(name)).unwrap();
        }
        let is_same = |name| std::fs::read(directory.join(name)).ok() == std::fs::read(copy.path().join(name)).ok();
        if names() == copied && copied.iter().all(is_same) {
            return copy;
        }
    }
}

fn head(store: &EmbeddedStore, id: &str) -> RunHead {
    block_on(store.read_run(key(id), None)).unwrap().unwrap()
}

fn lost(store: &EmbeddedStore, id: &str) -> u32 {
    head(store, id).lost_workers.map_or(0, |lost| lost.count)
}

#[test]
fn a_run_that_kills_its_process_is_paused_at_the_third_death() {
    let mut directory = tempfile::tempdir().unwrap();
    let mut store = open(directory.path(), WorkersInside::All);
    start(&store, "r", "p1");
    start(&store, "other", "p1");
    for death in 1..=3 {
        let after = died(directory.path());
        drop(store);
        directory = after;
        store = open(directory.path(), WorkersInside::All);
        assert_eq!((lost(&store, "r"), lost(&store, "other")), (death, u32::from(death == 1)));
        if death == 1 {
            // The other one ends; it was only a neighbor.
            block_on(store.append_input(key("other"), terminate())).unwrap();
        }
        if death < 3 {
            claim(&store, "r", &format!("p{}", death + 1));
        }
    }
    let found = head(&store, "r");
    let named: Vec<String> = found.crashed().unwrap().latest.iter().map(|lost| lost.worker.to_string()).collect();
    assert_eq!((found.status, named), (Status::Paused, vec!["p1".to_owned(), "p2".to_owned(), "p3".to_owned()]));
}

/// LF1
#[test]
fn a_process_that_closes_its_store_has_not_died() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), WorkersInside::All);
    start(&store, "r", "p");
    drop(store);
    assert_eq!(lost(&open(directory.path(), WorkersInside::All), "r"), 0);
}

/// A server that dies takes its own workers with it and no connected one.
#[test]
fn a_connected_worker_outlives_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), WorkersInside::Named("within-"));
    start(&store, "own", "within-1");
    start(&store, "connected", "w");
    let after = died(directory.path());
    let store = open(after.path(), WorkersInside::Named("within-"));
    assert_eq!((lost(&store, "own"), lost(&store, "connected")), (1, 0));
}

/// A lease that was released before the process died, and one whose run has ended, leave nothing.
#[test]
fn only_leases_that_were_held_count() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), WorkersInside::All);
    for id in ["released", "ended", "held"] {
        start(&store, id, "p");
    }
    block_on(store.release_run(key("released"), head(&store, "released").epoch)).unwrap();
    block_on(store.append_input(key("ended"), terminate())).unwrap();
    let after = died(directory.path());
    let store = open(after.path(), WorkersInside::All);
    assert_eq!(["released", "ended", "held"].map(|id| lost(&store, id)), [0, 0, 1]);
}

/// CW5, LF2: whatever dies next, one death counts once.
#[test]
fn a_death_counts_once() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), WorkersInside::All);
    start(&store, "r", "p");
    let after = died(directory.path());
    for _ in 0..5 {
        let again = open(after.path(), WorkersInside::All);
        assert_eq!(lost(&again, "r"), 1);
        drop(again);
        // The next process dies before it has removed the slots.
        std::fs::copy(directory.path().join("onward.leases"), after.path().join("onward.leases")).unwrap();
    }
}

/// LF3: damaged slots, and those of another database, are no evidence.
#[test]
fn a_damaged_or_foreign_file_counts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), WorkersInside::All);
    start(&store, "r", "p");
    let whole = std::fs::read(directory.path().join("onward.leases")).unwrap();
    let damaged = died(directory.path());
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        std::fs::write(damaged.path().join("onward.leases"), bytes).unwrap();
        assert_eq!(lost(&open(damaged.path(), WorkersInside::All), "r"), 0, "byte {at}");
    }
    let foreign = tempfile::tempdir().unwrap();
    let other = open(foreign.path(), WorkersInside::All);
    start(&other, "another", "p");
    let foreign = died(foreign.path());
    std::fs::write(foreign.path().join("onward.leases"), whole).unwrap();
    assert_eq!(lost(&open(foreign.path(), WorkersInside::All), "another"), 0);
}

#[test]
fn no_limit_counts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path(), WorkersInside::All);
    start(&store, "r", "p");
    let clock = std::sync::Arc::new(SystemClock);
    let options = Options { clock, workers_inside: WorkersInside::All, pause_after_lost_workers: 0, ..Options::default() };
    let after = died(directory.path());
    let store = EmbeddedStore::open(after.path(), options).unwrap();
    assert_eq!(head(&store, "r").lost_workers, None);
}
