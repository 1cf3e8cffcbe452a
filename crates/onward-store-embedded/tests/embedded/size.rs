//! Many runs, much data, and what must not grow with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::{Name, Payload};
use onward_store::conformance::block_on;
use onward_store::{ClaimRuns, Delete, Store};
use onward_store_embedded::EmbeddedStore;

use crate::workload::{key, name, new_run, open, worker};

fn knows(kinds: &[&str]) -> Arc<BTreeMap<Name, Vec<Option<Name>>>> {
    Arc::new(kinds.iter().map(|kind| (name(kind), vec![None])).collect())
}

/// Starts many runs at once, so that they share syncs.
fn start_many(store: &EmbeddedStore, kind: &str, count: usize) {
    let starts: Vec<_> = (0..count)
        .map(|number| {
            let mut run = new_run(&format!("{kind}-{number}"));
            run.started.kind = name(kind);
            store.start_run(run, None)
        })
        .collect();
    starts.into_iter().for_each(|start| drop(block_on(start).unwrap()));
}

fn claim(store: &EmbeddedStore, kinds: &[&str], limit: usize) -> Vec<String> {
    let request = ClaimRuns { worker: worker(), namespace: Default::default(), knows: knows(kinds), limit };
    let claimed = block_on(store.claim_runs(request)).unwrap();
    claimed.into_iter().map(|run| run.head.key.id.as_str().to_owned()).collect()
}

#[test]
fn every_pending_run_is_claimed_once_however_many_there_are_and_also_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    start_many(&store, "unknown", 500);
    start_many(&store, "order", 20_000);
    assert_eq!(claim(&store, &["nothing"], 10), Vec::<String>::new());
    let mut seen = std::collections::BTreeSet::new();
    for round in 0.. {
        let claimed = claim(&store, &["order"], 3_000);
        if claimed.is_empty() {
            break;
        }
        assert!(round > 0 || claimed[0] == "order-0", "oldest first");
        claimed.into_iter().for_each(|id| assert!(seen.insert(id), "claimed twice"));
        // New runs start while the old ones are being claimed.
        if round == 2 {
            start_many(&store, "late", 10);
            let mut late = new_run("order-late");
            late.started.kind = name("order");
            block_on(store.start_run(late, None)).unwrap();
        }
    }
    assert_eq!(seen.len(), 20_001);
    drop(store);
    let store = open(directory.path());
    assert_eq!(claim(&store, &["order"], 100_000).len(), 20_001);
    assert_eq!(claim(&store, &["late", "unknown"], 100_000).len(), 510);
}

#[test]
fn a_directory_gives_space_back_after_runs_were_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let length = || std::fs::metadata(directory.path().join("onward.db")).unwrap().len();
    let starts: Vec<_> = (0..2_000)
        .map(|number| {
            let mut run = new_run(&format!("run-{number}"));
            run.started.input = Payload::binary("text/plain", vec![7; 8_000]);
            store.start_run(run, None)
        })
        .collect();
    starts.into_iter().for_each(|start| drop(block_on(start).unwrap()));
    let keys = || (0..2_000).map(|number| key(&format!("run-{number}")));
    let end = || onward_core::run::Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None });
    let ends: Vec<_> = keys().map(|key| store.append_input(key, end())).collect();
    assert!(ends.into_iter().all(|end| block_on(end).is_ok()));
    drop(store);
    let full = length();
    let store = open(directory.path());
    let last = key("run-1999");
    let deletes: Vec<_> =
        keys().filter(|key| *key != last).map(|key| store.delete_runs(Delete::Run { key, reason: String::new() })).collect();
    assert!(deletes.into_iter().all(|delete| block_on(delete).is_ok()));
    // Happens in the background while the store is idle.
    let given_up = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while length() > full / 4 && std::time::Instant::now() < given_up {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(length() <= full / 4, "{} of {full} bytes are left, {:?}", length(), store.stats());
    assert!(store.stats().pages_returned * 8_192 > full / 2);
    drop(store);
    assert!(length() <= full / 4);
    assert_eq!(block_on(open(directory.path()).read_log(last, None, onward_core::Index(0), 10)).unwrap().len(), 2);
}

#[test]
fn a_large_payload_is_stored_once_and_goes_with_its_last_run() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let large = Payload::binary("\0forged", vec![7; 300_000]);
    for id in ["a", "b"] {
        let mut run = new_run(id);
        run.started.input = large.clone();
        block_on(store.start_run(run, None)).unwrap();
        let log = block_on(store.read_log(key(id), None, onward_core::Index(0), 1)).unwrap();
        let onward_core::Event::RunStarted(started) = &log[0].events[0] else { panic!() };
        assert_eq!(started.input, large);
    }
    let blobs = || -> (i64, i64) {
        let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
        db.query_row("SELECT count(*), coalesce(sum(refs), 0) FROM blobs", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap()
    };
    assert_eq!(blobs(), (1, 2));
    for (id, left) in [("a", (1, 1)), ("b", (0, 0))] {
        let end = onward_core::run::Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None });
        block_on(store.append_input(key(id), end)).unwrap();
        block_on(store.delete_runs(Delete::Run { key: key(id), reason: "test".to_owned() })).unwrap();
        assert_eq!(blobs(), left);
    }
}
