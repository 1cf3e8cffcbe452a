//! Connections lost around COMMIT: an operation without a response happened completely or not at all, and a repeat finds out
//! (L5).

use std::sync::Arc;

use onward_core::run::Committed;
use onward_core::{Event, Index};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{Consequence, Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, OWNER, Proxy, Settings};

use crate::kit::{database, key, log, new_run, signal, step, worker};

/// Repeats until there is a result, as every caller does; returns how often the outcome was unknown.
fn insist<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> (T, u64) {
    for unknown in 0..1_000 {
        match attempt() {
            Ok(answer) => return (answer, unknown),
            Err(error) => assert_eq!(error.consequence(), Consequence::Retry, "{error}"),
        }
    }
    panic!("never answered");
}

/// Number of connections cut after a COMMIT (F16), and number of concurrent runs.
const CUTS: u64 = 500;
const RUNS: usize = 6;

#[test]
fn what_is_repeated_after_a_lost_commit_is_there_once() {
    let seed = 7;
    eprintln!("seed {seed}");
    let database = database();
    let proxy = Proxy::start(Cluster::shared().port(), seed, 2).unwrap();
    let url = format!("postgres://{OWNER}@127.0.0.1:{}/{}", proxy.port, database.name());
    let is_enough = || proxy.cuts().1 >= CUTS;
    let unknown: u64 = std::thread::scope(|scope| {
        let url = &url;
        let go = |number| scope.spawn(move || go_through(url, &format!("r{number}"), is_enough));
        let runs: Vec<_> = (0..RUNS).map(go).collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    proxy.cut_one_in(0);
    let (before, behind) = proxy.cuts();
    eprintln!("cut {before} times before and {behind} behind a COMMIT; {unknown} answers were lost");
    assert!(before > 100 && behind >= CUTS && unknown > 100);
}

/// Runs one workflow through its own server; returns how often an outcome was unknown.
fn go_through(url: &str, id: &str, is_enough: impl Fn() -> bool) -> u64 {
    let (store, _) = insist(|| block_on(PostgresStore::connect(url, Options::default())));
    let mut unknown = 0;
    let mut note = |count: u64| unknown += count;
    note(insist(|| block_on(store.start_run(new_run(id), None))).1);
    let (mut held, lost) = claim_by_name(&store, id);
    note(lost);
    let mut rounds: u32 = 0;
    while !is_enough() {
        let signal_id = format!("s{rounds}");
        let (appended, lost) = insist(|| block_on(store.append_input(key(id), signal(Some(&signal_id)))));
        note(lost);
        held.horizon = appended.index;
        let (committed, lost): (Committed, u64) = insist(|| block_on(store.commit(held.commit(vec![step(rounds)]))));
        note(lost);
        held.advance(1, committed);
        rounds += 1;
    }
    let (records, _) = insist(|| block_on(store.read_log(key(id), None, Index(0), usize::MAX)));
    assert_eq!(records.len(), 1 + 2 * rounds as usize, "L5");
    let names: Vec<&str> = records.iter().flat_map(|record| &record.events).map(Event::name).collect();
    assert!(names[1..].chunks(2).all(|pair| pair == ["signal_received", "step_completed"]), "{names:?}");
    unknown
}

/// Claims a run. A claim whose response was lost has leased the run to this worker: it is busy, and listed among its leases.
fn claim_by_name(store: &PostgresStore, id: &str) -> (HeldRun, u64) {
    let mut unknown = 0;
    loop {
        let (claimed, lost) = insist(|| {
            block_on(store.claim_run(key(id), worker(id), None)).or_else(|error| match error {
                StoreError::RunHeld { .. } => {
                    let head = block_on(store.read_run(key(id), None))?.expect("the run is there");
                    block_on(store.release_run(key(id), head.epoch))?;
                    Err(StoreError::Unavailable { why: "released".to_owned() })
                }
                other => Err(other),
            })
        });
        unknown += lost;
        if let Some(claimed) = claimed.claimed {
            return (HeldRun::new(&claimed), unknown);
        }
    }
}

/// The database is restarted, crashed and killed while a run continues.
#[test]
fn a_run_goes_on_over_restarts_of_the_server() {
    let mut cluster = Cluster::start(Settings::default()).unwrap();
    let url = cluster.url("postgres");
    let store = Arc::new(block_on(PostgresStore::connect(&url, Options::default())).unwrap());
    let started = block_on(store.start_run(new_run("r"), Some(worker("w")))).unwrap();
    let mut held = HeldRun::new(&started.claimed.expect("a new run is leased"));
    let its = store.clone();
    let steps: u32 = 400;
    let running = std::thread::spawn(move || {
        for round in 0..steps {
            let (committed, _) = insist(|| block_on(its.commit(held.commit(vec![step(round)]))));
            held.advance(1, committed);
        }
    });
    // Fast shutdown, immediate shutdown, kill.
    for signal in [2, 3, 9] {
        std::thread::sleep(std::time::Duration::from_millis(150));
        cluster.restart(signal).unwrap();
    }
    running.join().unwrap();
    assert_eq!(log(&*store, "r").len(), 1 + steps as usize);
    drop(store);
}
