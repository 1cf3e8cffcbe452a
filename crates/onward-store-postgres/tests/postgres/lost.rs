//! Connections that are lost around COMMIT: what was not answered is there or not, as a whole, and a repeat finds out (L5).

use std::sync::Arc;

use onward_core::Index;
use onward_core::run::Committed;
use onward_pg_cluster::{Cluster, Settings};
use onward_store::conformance::{Held, block_on};
use onward_store::{Consequence, Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};

use crate::kit::{database, key, log, new_run, signal, step, worker};
use crate::proxy::Proxy;

/// Repeats until there is an answer, as every caller does; says how often nobody knew.
fn insist<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> (T, u64) {
    for unknown in 0..1_000 {
        match attempt() {
            Ok(answer) => return (answer, unknown),
            Err(error) => assert_eq!(error.consequence(), Consequence::Retry, "{error}"),
        }
    }
    panic!("never answered");
}

#[test]
fn what_is_repeated_after_a_lost_commit_is_there_once() {
    let seed = 7;
    eprintln!("seed {seed}");
    let database = database();
    let proxy = Proxy::start(Cluster::shared().port(), seed, 6);
    let url = format!("postgres://{}@127.0.0.1:{}/{}", onward_pg_cluster::OWNER, proxy.port, database.name());
    let (store, _) = insist(|| block_on(PostgresStore::connect(&url, Options::default())));
    let store = Arc::new(store);
    let mut unknown = 0;
    let mut note = |count: u64| unknown += count;
    let (_, lost) = insist(|| block_on(store.start_run(new_run("r"), None)));
    note(lost);
    // A claim whose answer was lost has leased the run to us: the session is ours, so is the run, and by its name it is busy.
    let mut held: Option<Held> = None;
    while held.is_none() {
        let (claimed, lost) = insist(|| {
            block_on(store.claim_run(key("r"), worker("w"), None)).or_else(|error| match error {
                StoreError::RunHeld { .. } => {
                    let head = block_on(store.read_run(key("r"), None))?.expect("the run is there");
                    block_on(store.release_run(key("r"), head.epoch))?;
                    Err(StoreError::Unavailable { why: "released".to_owned() })
                }
                other => Err(other),
            })
        });
        note(lost);
        held = claimed.claimed.as_ref().map(Held::new);
    }
    let mut held = held.expect("claimed");
    let rounds: u32 = 250;
    for round in 0..rounds {
        let id = format!("s{round}");
        let (appended, lost) = insist(|| block_on(store.append_input(key("r"), signal(Some(&id)))));
        note(lost);
        held.horizon = appended.index;
        let (committed, lost): (Committed, u64) = insist(|| block_on(store.commit(held.commit(vec![step(round)]))));
        note(lost);
        held.advance(1, committed);
    }
    proxy.stop_cutting();
    let (before, behind) = proxy.cuts();
    eprintln!("cut {before} times before and {behind} behind a COMMIT; {unknown} answers were lost");
    assert!(before > 20 && behind > 20 && unknown > 20);
    let records = block_on(store.read_log(key("r"), None, Index(0), usize::MAX)).unwrap();
    assert_eq!(records.len(), 1 + 2 * rounds as usize, "L5");
    let names = log(&*store, "r");
    assert!(names[1..].chunks(2).all(|pair| pair == ["signal_received", "step_completed"]), "{names:?}");
}

/// The server is restarted, crashed and killed while a run goes on.
#[test]
fn a_run_goes_on_over_restarts_of_the_server() {
    let mut cluster = Cluster::start(Settings::default()).unwrap();
    let url = cluster.url("postgres");
    let store = Arc::new(block_on(PostgresStore::connect(&url, Options::default())).unwrap());
    let started = block_on(store.start_run(new_run("r"), Some(worker("w")))).unwrap();
    let mut held = Held::new(&started.claimed.expect("a new run is leased"));
    let its = store.clone();
    let steps: u32 = 400;
    let running = std::thread::spawn(move || {
        for round in 0..steps {
            let (committed, _) = insist(|| block_on(its.commit(held.commit(vec![step(round)]))));
            held.advance(1, committed);
        }
    });
    // Fast, immediate, killed.
    for signal in [2, 3, 9] {
        std::thread::sleep(std::time::Duration::from_millis(150));
        cluster.restart(signal).unwrap();
    }
    running.join().unwrap();
    assert_eq!(log(&*store, "r").len(), 1 + steps as usize);
    drop(store);
}
