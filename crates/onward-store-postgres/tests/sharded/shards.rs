//! SD5: a list of databases that differs from the recorded one is refused.

use std::sync::Arc;

use onward_store::conformance::block_on;
use onward_store::{ManualClock, MemoryStore, Shard, Store, StoreError};
use onward_store_postgres::sharded::ShardedStore;

use crate::faulty::{Faulty, PACE, id_in, key, named, until_up};
use crate::placement::new_run;

fn databases(count: usize) -> Vec<Arc<Faulty>> {
    let clock = Arc::new(ManualClock::default());
    (0..count).map(|_| Faulty::new(Arc::new(MemoryStore::new(clock.clone())))).collect()
}

fn open(databases: &[&Arc<Faulty>], cluster: &str) -> Result<ShardedStore, StoreError> {
    let databases: Vec<_> = databases.iter().map(|database| (*database).clone()).collect();
    block_on(ShardedStore::open(named(&databases), Some(cluster.to_owned()), Arc::new(ManualClock::default()), PACE))
}

#[track_caller]
fn refused(databases: &[&Arc<Faulty>], why: &str) {
    let error = open(databases, "new").map(drop).unwrap_err();
    assert_eq!(error.code(), "databases_differ", "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

/// Waits until the second database is known to be unusable for this reason.
fn until_down(store: &ShardedStore, why: &str) {
    while !store.health()[1].down.as_ref().is_some_and(|(_, reason)| reason.contains(why)) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn the_same_databases_in_the_same_order_are_opened_again() {
    let [a, b, c] = &databases(3)[..] else { unreachable!() };
    open(&[a, b, c], "first").unwrap();
    open(&[a, b, c], "second").unwrap();
    assert_eq!(block_on(b.read_shard()).unwrap(), Some(Shard { cluster: "first".to_owned(), position: 1, count: 3 }));
}

#[test]
fn databases_that_are_swapped_added_left_out_or_foreign_are_refused() {
    let [a, b, c, d] = &databases(4)[..] else { unreachable!() };
    open(&[a, b], "ours").unwrap();
    refused(&[b, a], "database 1 of 2 (a) is recorded as database 2 of 2");
    refused(&[a, b, c], "is recorded as database 1 of 2");
    refused(&[a], "is recorded as database 1 of 2");
    refused(&[a, c, b], "is recorded as database 1 of 2");
    open(&[c, d], "theirs").unwrap();
    refused(&[a, d], "database 2 of 2 (b) belongs to another cluster");
    // An empty database in place of another one.
    let fresh = &databases(1)[0];
    refused(&[fresh, b], "has no recorded shard");
    assert_eq!(block_on(fresh.read_shard()).unwrap(), None);
}

#[test]
fn a_reader_sends_no_notifications() {
    let [a, b] = &databases(2)[..] else { unreachable!() };
    let read = || block_on(ShardedStore::open(named(&[a.clone(), b.clone()]), None, Arc::new(ManualClock::default()), PACE));
    let error = read().map(drop).unwrap_err();
    assert!(error.code() == "databases_differ" && error.to_string().contains("has no recorded shard"), "{error}");
    assert_eq!((block_on(a.read_shard()).unwrap(), block_on(b.read_shard()).unwrap()), (None, None));
    open(&[a, b], "ours").unwrap();
    read().unwrap();
}

#[test]
fn a_database_that_was_used_alone_stays_alone() {
    let [a, b] = &databases(2)[..] else { unreachable!() };
    block_on(a.start_run(new_run("r"), None)).unwrap();
    refused(&[a, b], "was used as a single database");
    assert_eq!(block_on(b.read_shard()).unwrap(), None);
}

#[test]
fn a_first_opening_that_was_interrupted_is_finished_by_the_next() {
    let [a, b] = &databases(2)[..] else { unreachable!() };
    b.refuse(true);
    assert_eq!(open(&[a, b], "first").map(drop).unwrap_err().code(), "store_unavailable");
    // A concurrent open got as far as the first database.
    block_on(a.record_shard(Shard { cluster: "theirs".to_owned(), position: 0, count: 2 })).unwrap();
    b.refuse(false);
    open(&[a, b], "second").unwrap();
    assert_eq!(block_on(b.read_shard()).unwrap().unwrap().cluster, "theirs");
}

#[test]
fn a_server_starts_while_a_database_is_down_and_checks_it_before_it_uses_it() {
    let [a, b, c] = &databases(3)[..] else { unreachable!() };
    let stranger = &databases(1)[0];
    open(&[a, b, c], "ours").unwrap();
    for (second, is_ours) in [(b, true), (stranger, false)] {
        second.refuse(true);
        let store = open(&[a, second, c], "again").unwrap();
        let (here, there) = (key(&id_in(0, 0)), key(&id_in(1, 0)));
        assert_eq!(block_on(store.read_run(here, None)).unwrap(), None);
        assert_eq!(block_on(store.read_run(there.clone(), None)).unwrap_err().code(), "store_unavailable");
        second.refuse(false);
        match is_ours {
            true => until_up(&store, &[true; 3]),
            false => until_down(&store, "has no recorded shard"),
        }
        let started = block_on(store.start_run(new_run(there.id.as_str()), None));
        assert_eq!(started.is_ok(), is_ours, "{:?}", started.err());
        let commit_goes_through = block_on(store.release_run(there, onward_core::Epoch(1))).is_ok();
        assert_eq!(commit_goes_through, is_ours);
    }
    assert!(block_on(stranger.inner.list_runs(Default::default())).unwrap().runs.is_empty(), "nothing was written to it");
    for database in [a, b, c] {
        database.refuse(true);
    }
    assert_eq!(open(&[a, b, c], "again").map(drop).unwrap_err().code(), "store_unavailable");
}
