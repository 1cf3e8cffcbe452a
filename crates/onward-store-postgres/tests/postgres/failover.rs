//! Failover to a standby: writes that it lacks are lost, and leases granted by them are fenced; with synchronous replication
//! nothing is lost (F17).

use std::sync::Arc;
use std::time::{Duration, Instant};

use onward_core::run::Refusal;
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{Consequence, Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, OWNER, Proxy, Settings};

use crate::kit::{PATIENCE, claim, commit, log, start_held, step};

const KILL: i32 = 9;
const FAST: i32 = 2;

/// A primary with a standby, and a server behind a proxy that leads to one of them.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    proxy: Proxy,
    store: Arc<PostgresStore>,
}

impl Pair {
    fn start() -> Pair {
        let primary = Cluster::start(Settings::default()).unwrap();
        let standby = primary.standby(Settings::default()).unwrap();
        let proxy = Proxy::start(primary.port(), 1, 0).unwrap();
        let url = format!("postgres://{OWNER}@127.0.0.1:{}/postgres", proxy.port);
        let store = Arc::new(block_on(PostgresStore::connect(&url, Options::default())).unwrap());
        Pair { primary, standby, proxy, store }
    }

    /// Waits until the standby has everything of the primary.
    fn catch_up(&self) {
        let sql = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn >= pg_current_wal_lsn()";
        let until = Instant::now() + PATIENCE;
        while self.primary.psql("postgres", sql).unwrap() != "1" {
            assert!(Instant::now() < until, "the standby follows");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Kills the primary and promotes the standby.
    fn fail_over(&mut self) {
        self.primary.stop(KILL).unwrap();
        self.take_over();
    }

    fn take_over(&mut self) {
        self.standby.promote().unwrap();
        self.proxy.move_to(self.standby.port());
    }

    fn insist<T>(&self, mut attempt: impl FnMut(&PostgresStore) -> Result<T, StoreError>) -> Result<T, StoreError> {
        for _ in 0..100 {
            match attempt(&self.store) {
                Err(error) if error.consequence() == Consequence::Retry => {}
                other => return other,
            }
        }
        panic!("never answered");
    }
}

fn go_on(store: &dyn Store, held: &mut HeldRun, steps: std::ops::Range<u32>) {
    steps.for_each(|ordinal| commit(store, held, vec![step(ordinal)]));
}

#[test]
fn writes_missing_on_a_standby_are_lost_and_no_worker_continues_from_them() {
    let mut pair = Pair::start();
    let mut held = start_held(&*pair.store, "r", "w");
    go_on(&*pair.store, &mut held, 0..10);
    pair.catch_up();
    pair.standby.stop(FAST).unwrap();
    go_on(&*pair.store, &mut held, 10..20);
    // Killed before the standby resumes, else it would receive the rest.
    pair.primary.stop(KILL).unwrap();
    pair.standby.go_on().unwrap();
    pair.take_over();
    let refused = pair.insist(|store| block_on(store.commit(held.commit(vec![step(20)]))));
    assert!(matches!(refused, Err(StoreError::Refused(Refusal::Fenced { .. }))), "{refused:?}");
    assert_eq!(pair.store.stats().moves, 1, "the other timeline was noticed");
    assert_eq!(log(&*pair.store, "r").len(), 11, "as far as the standby had it");
    let mut again = claim(&*pair.store, "v", 1).pop().expect("the run is free");
    assert!(again.head.epoch > held.head.epoch);
    go_on(&*pair.store, &mut again, 10..20);
    assert_eq!(log(&*pair.store, "r").len(), 21);
}

#[test]
fn with_a_synchronous_standby_nothing_that_was_acknowledged_is_lost() {
    let mut pair = Pair::start();
    pair.primary.psql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'").unwrap();
    pair.primary.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    let until = Instant::now() + PATIENCE;
    while pair.primary.psql("postgres", "SELECT sync_state FROM pg_stat_replication").unwrap() != "sync" {
        assert!(Instant::now() < until, "the standby becomes synchronous");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut held = start_held(&*pair.store, "r", "w");
    go_on(&*pair.store, &mut held, 0..50);
    pair.fail_over();
    // Commits would wait forever for the missing standby.
    pair.standby.psql("postgres", "ALTER SYSTEM SET synchronous_standby_names = ''").unwrap();
    pair.standby.psql("postgres", "SELECT pg_reload_conf()").unwrap();
    let mut again = pair.insist(|store| Ok(claim(store, "v", 1))).unwrap().pop().expect("the run is free");
    assert_eq!(log(&*pair.store, "r").len(), 51, "every acknowledged step is there");
    go_on(&*pair.store, &mut again, 50..60);
    assert_eq!(log(&*pair.store, "r").len(), 61);
}
