//! A full disk: writes are refused as a whole and resume without a restart once there is space (F6).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use onward_core::{Index, Status};
use onward_store::conformance::block_on;
use onward_store::{Delete, Store, StoreError};
use onward_store_embedded::{EmbeddedStore, Options};

use crate::workload::{RunOfSteps, json, key, remember};

impl RunOfSteps {
    /// Commits until the disk is full; returns the number of commits.
    fn fill(&mut self, store: &EmbeddedStore) -> u64 {
        for _ in 0..100_000 {
            match self.step(store, 2_000) {
                Ok(()) => {}
                Err(StoreError::DiskFull) => return self.n,
                Err(other) => panic!("after {} commits: {other}", self.n),
            }
        }
        panic!("the disk was never full");
    }

    fn check(&self, store: &EmbeddedStore) {
        let records = block_on(store.read_log(self.head.key.clone(), None, Index(0), usize::MAX)).unwrap();
        assert_eq!(records.len() as u64, self.n + 1, "exactly the acknowledged commits are in the log");
        let head = block_on(store.read_run(self.head.key.clone(), None)).unwrap().unwrap();
        assert_eq!((head.next_commit, head.status), (self.n, Status::Running), "the lease is not lost");
    }
}

struct Mount(tempfile::TempDir);

impl Mount {
    fn new(options: &str) -> Mount {
        let directory = tempfile::tempdir().unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(directory.path()).status();
        assert!(done.is_ok_and(|status| status.success()), "this test mounts a small tmpfs: run it as root");
        Mount(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn grow(&self, options: &str) {
        let done = Command::new("mount").args(["-o", &format!("remount,{options}")]).arg(self.path()).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Opens a directory, with retries: a process that another test just forked has the lock until it executes its program.
fn reopen(directory: &Path) -> EmbeddedStore {
    let begun = Instant::now();
    loop {
        match EmbeddedStore::open(directory, Options::default()) {
            Err(error) if error.code() == "directory_locked" && begun.elapsed() < Duration::from_secs(300) => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

#[test]
fn a_full_disk_refuses_writes_until_it_has_space_again() {
    let mount = Mount::new("size=6m");
    let directory = mount.path().join("data");
    let store = EmbeddedStore::open(&directory, Options::default()).unwrap();
    let mut filler = RunOfSteps::start(&store, "r").unwrap();
    assert!(filler.fill(&store) > 100);
    // Still full, readable and leased.
    assert_eq!(filler.step(&store, 2_000).unwrap_err().code(), "disk_full");
    filler.check(&store);
    assert!(block_on(store.is_full()));
    mount.grow("size=32m");
    assert!(!block_on(store.is_full()), "it detects the free space");
    for _ in 0..500 {
        filler.step(&store, 2_000).unwrap();
    }
    filler.check(&store);
    drop(store);
    let store = reopen(&directory);
    assert_eq!(remember(&store).runs[0].1.len() as u64, filler.n + 1);
}

/// With many writers, a batch that does not fit is rolled back as a whole, in the file and in memory.
#[test]
fn of_many_writers_on_a_full_disk_each_keeps_exactly_what_it_was_answered() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { database_bytes_max: Some(3 * 1024 * 1024), ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    let mut fillers: Vec<RunOfSteps> = (0..20).map(|id| RunOfSteps::start(&store, &format!("r{id}")).unwrap()).collect();
    std::thread::scope(|scope| {
        fillers.iter_mut().for_each(|filler| drop(scope.spawn(|| filler.fill(&store))));
    });
    // Only space is missing: leases and commit numbers are unchanged.
    for filler in &mut fillers {
        filler.check(&store);
        assert_eq!(filler.step(&store, 100_000).unwrap_err().code(), "disk_full");
        filler.check(&store);
    }
    let answered: u64 = fillers.iter().map(|filler| filler.n + 1).sum();
    drop(store);
    let store = EmbeddedStore::open(directory.path(), Options::default()).unwrap();
    let found: usize = remember(&store).runs.iter().map(|(_, records)| records.len()).sum();
    assert_eq!(found as u64, answered);
}

#[test]
fn a_disk_that_is_full_at_opening_is_reported_as_full() {
    let mount = Mount::new("size=100k");
    let refused = EmbeddedStore::open(mount.path().join("data"), Options::default()).unwrap_err();
    assert_eq!(refused.code(), "disk_full", "{refused}");
}

#[test]
fn a_store_at_its_size_limit_refuses_writes_until_runs_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { database_bytes_max: Some(2 * 1024 * 1024), ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    let mut old = RunOfSteps::start(&store, "old").unwrap();
    for _ in 0..200 {
        old.step(&store, 2_000).unwrap();
    }
    let end = onward_core::event::RunCompleted { output: json("1"), attempts: None };
    old.commit(&store, end.into()).unwrap();
    let mut filler = RunOfSteps::start(&store, "r").unwrap();
    filler.fill(&store);
    filler.check(&store);
    assert_eq!(filler.step(&store, 30_000).unwrap_err().code(), "disk_full");
    assert!(block_on(store.is_full()));
    block_on(store.delete_runs(Delete::Run { key: key("old"), reason: "space".to_owned() })).unwrap();
    assert!(!block_on(store.is_full()));
    for _ in 0..100 {
        filler.step(&store, 2_000).unwrap();
    }
    filler.check(&store);
}

/// A batch that is rolled back takes nothing from the holder of a paused run: the step's result is accepted once there is space.
#[test]
fn a_paused_run_keeps_its_holder_over_a_batch_that_is_undone() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { database_bytes_max: Some(1024 * 1024), ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    let mut paused = RunOfSteps::start(&store, "paused").unwrap();
    let reason = onward_core::event::PauseReason::Requested;
    let pause = onward_core::event::RunPaused::because(reason, "");
    block_on(store.append_input(key("paused"), onward_core::run::Input::new(pause))).unwrap();
    let mut old = RunOfSteps::start(&store, "old").unwrap();
    for _ in 0..100 {
        old.step(&store, 2_000).unwrap();
    }
    old.commit(&store, onward_core::event::RunCompleted { output: json("1"), attempts: None }.into()).unwrap();
    RunOfSteps::start(&store, "filler").unwrap().fill(&store);

    assert_eq!(paused.step(&store, 100_000).unwrap_err().code(), "disk_full");
    let head = || block_on(store.read_run(key("paused"), None)).unwrap().unwrap();
    assert_eq!((head().status, head().epoch, head().next_commit), (Status::Paused, paused.head.epoch, 0));
    block_on(store.delete_runs(Delete::Run { key: key("old"), reason: "space".to_owned() })).unwrap();
    paused.step(&store, 2_000).unwrap();
    assert_eq!((head().status, head().next_commit), (Status::Paused, 1));
}
