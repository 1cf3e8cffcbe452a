//! A pooler that uses another connection for each transaction: everything works, except that notifications do not arrive (F18).

use std::sync::Arc;

use onward_store::conformance::{self, block_on};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Database, Pooler};

use crate::kit::{claim, database, key, log, new_run, signal};

fn connect(pooler: &Pooler, database: &Database<'_>, options: Options) -> PostgresStore {
    block_on(PostgresStore::connect(&pooler.url(database.name()), options)).unwrap()
}

#[test]
fn a_story_told_through_a_pooler_is_the_same() {
    let (pooler, database) = (Pooler::start(Cluster::shared()).unwrap(), database());
    let clock = Arc::new(ManualClock::default());
    let store = connect(&pooler, &database, Options { clock: Some(clock.clone()), ..Options::default() });
    conformance::differential(41, 300, &store, &MemoryStore::new(clock.clone()), &clock);
    // Three connections of the pooler served all of ours, and no transaction met leftovers of another.
    let count =
        database.psql("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");
    assert!(count.unwrap().parse::<u32>().unwrap() <= 3);
    drop(store);
}

#[test]
fn servers_behind_a_pooler_share_runs_without_notifications() {
    let (pooler, database) = (Pooler::start(Cluster::shared()).unwrap(), database());
    let stores = [(); 3].map(|()| Arc::new(connect(&pooler, &database, Options::default())));
    for number in 0..30 {
        block_on(stores[number % 3].start_run(new_run(&format!("r{number}")), None)).unwrap();
    }
    let claimers: Vec<_> = stores
        .iter()
        .enumerate()
        .map(|(number, store)| {
            let store = store.clone();
            std::thread::spawn(move || {
                let mut got = Vec::new();
                for _ in 0..20 {
                    got.extend(claim(&*store, &format!("w{number}"), 3).into_iter().map(|held| held.key()));
                }
                got
            })
        })
        .collect();
    let mut claimed: Vec<_> = claimers.into_iter().flat_map(|claimer| claimer.join().unwrap()).collect();
    claimed.sort();
    claimed.dedup();
    assert_eq!(claimed.len(), 30, "each run went to one worker, and none was passed over");
    for number in 0..30 {
        block_on(stores[number % 3].append_input(key("r0"), signal(Some(&format!("s{}", number / 3))))).unwrap();
    }
    assert_eq!(log(&*stores[0], "r0").len(), 11, "the same id through three servers is one signal");
}
