//! Retention at one server while others read, signal and retry the same runs: each exists completely or not at all (F27, L20).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use onward_core::event::RunCompleted;
use onward_core::run::Refusal;
use onward_core::{Event, Index, Log};
use onward_store::conformance::block_on;
use onward_store::{Delete, Retention, Store, StoreError};
use onward_store_postgres::Options;

use crate::kit::{commit, connect, database, json, key, signal, start_held, step};

const RUNS: u64 = 120;

/// Reads a run; returns false if it is gone. Its log must be complete.
fn look(store: &dyn Store, id: &str) -> bool {
    match block_on(store.read_log(key(id), None, Index(0), usize::MAX)) {
        Err(StoreError::RunNotFound { .. }) => false,
        Ok(records) => {
            let count = records.iter().flat_map(|record| &record.events).count();
            Log::load(records).unwrap_or_else(|error| panic!("{id}: {error}"));
            assert!(count >= 1, "{id} is there and has no events");
            true
        }
        Err(error) => panic!("{id}: {error}"),
    }
}

#[test]
fn a_run_that_is_being_deleted_is_read_whole_or_not_at_all() {
    let database = database();
    let stores = [(); 3].map(|()| connect(&database, Options::default()));
    let (is_over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
    let deleted = std::thread::scope(|scope| {
        let deleting = scope.spawn(|| {
            let retention = Retention { default: std::time::Duration::ZERO, ..Retention::default() };
            let mut deleted = 0;
            while !is_over.load(Ordering::Relaxed) || deleted < RUNS {
                deleted += block_on(stores[0].delete_runs(Delete::Expired { retention: retention.clone(), limit: 3 })).unwrap();
            }
            deleted
        });
        for store in &stores[1..] {
            scope.spawn(|| {
                for turn in (0..).take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    let id = format!("r{}", turn % RUNS);
                    seen.fetch_add(u64::from(look(&**store, &id)), Ordering::Relaxed);
                    match block_on(store.append_input(key(&id), signal(Some("s")))) {
                        Ok(_) | Err(StoreError::RunNotFound { .. } | StoreError::Refused(Refusal::Closed { .. })) => {}
                        Err(error) => panic!("{id}: {error}"),
                    }
                }
            });
        }
        for number in 0..RUNS {
            let mut held = start_held(&*stores[0], &format!("r{number}"), "w");
            commit(&*stores[0], &mut held, vec![step(0)]);
            end(&*stores[0], held);
        }
        is_over.store(true, Ordering::Relaxed);
        deleting.join().unwrap()
    });
    eprintln!("{} looks found a run", seen.load(Ordering::Relaxed));
    assert!(deleted == RUNS && seen.load(Ordering::Relaxed) > 0);
    for table in ["runs", "events", "idempotency", "timers", "tasks", "waits", "outbox", "attributes", "blobs", "past"] {
        assert_eq!(database.psql(&format!("SELECT count(*) FROM onward.{table}")).unwrap(), "0", "{table}");
    }
}

/// Ends a run despite unread signals.
fn end(store: &dyn Store, held: onward_store::conformance::HeldRun) {
    let mut last = held.commit(vec![Event::from(RunCompleted { output: json("1"), attempts: None })]);
    last.waits = false;
    last.end_over_unread = true;
    block_on(store.commit(last)).unwrap();
}
