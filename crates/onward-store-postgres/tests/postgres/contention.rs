//! Others in the way: serialization failures, deadlocks, locks that are held for long.

use std::sync::Arc;
use std::time::Duration;

use onward_store::conformance::{self, block_on};
use onward_store::{ManualClock, MemoryStore, Store};
use onward_store_postgres::Options;

use crate::kit::{commit, connect, connect_at, database, key, log, new_run, signal, start_held, step};

/// Every third insert of records fails as if somebody else had been faster; a sequence counts, because it counts on after a rollback.
fn fail_often(code: &str) -> String {
    format!(
        "CREATE SEQUENCE tries;
         CREATE FUNCTION fail_often() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF nextval('tries') % 3 = 0 THEN RAISE EXCEPTION 'provoked' USING ERRCODE = '{code}'; END IF; RETURN NULL; END $$;
         CREATE TRIGGER fail_often AFTER INSERT ON onward.events FOR EACH STATEMENT EXECUTE FUNCTION fail_often()"
    )
}

#[test]
fn serialization_failures_and_deadlocks_are_tried_again() {
    for code in ["40001", "40P01"] {
        let database = database();
        database.psql(&fail_often(code)).unwrap();
        let store = connect(&database, Options::default());
        let mut held = start_held(&*store, "r", "w");
        (0..30).for_each(|ordinal| commit(&*store, &mut held, vec![step(ordinal)]));
        assert_eq!(log(&*store, "r").len(), 31);
        assert!(store.stats().retries >= 10, "{:?}", store.stats());
    }
}

#[test]
fn a_story_told_to_servers_that_are_refused_often_is_the_same() {
    let clock = Arc::new(ManualClock::default());
    let database = database();
    database.psql(&fail_often("40001")).unwrap();
    let store = connect_at(&database, clock.clone());
    conformance::differential(31, 200, &*store, &MemoryStore::new(clock.clone()), &clock);
}

/// The weakest isolation is enough, and the strongest one does no harm.
#[test]
fn a_story_told_under_serializable_is_the_same() {
    let clock = Arc::new(ManualClock::default());
    let database = database();
    database.psql(&format!("ALTER DATABASE {} SET default_transaction_isolation = 'serializable'", database.name())).unwrap();
    let store = connect_at(&database, clock.clone());
    conformance::differential(32, 200, &*store, &MemoryStore::new(clock.clone()), &clock);
    let senders: Vec<_> = (0..4)
        .map(|_| {
            let store = connect_at(&database, clock.clone());
            std::thread::spawn(move || {
                block_on(store.start_run(new_run("shared"), None)).unwrap();
                for _ in 0..25 {
                    block_on(store.append_input(key("shared"), signal(None))).unwrap();
                }
            })
        })
        .collect();
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    assert_eq!(log(&*store, "shared").len(), 101);
}

/// Somebody locks two runs in the wrong order: PostgreSQL ends one of the two, and nothing is lost whichever it is.
#[test]
fn a_deadlock_with_somebody_else_ends_and_every_input_arrives() {
    let database = database();
    database.psql(&format!("ALTER DATABASE {} SET deadlock_timeout = '50ms'", database.name())).unwrap();
    let store = connect(&database, Options::default());
    for id in ["a", "b"] {
        block_on(store.start_run(new_run(id), None)).unwrap();
    }
    let lock = |id: &str| format!("SELECT 1 FROM onward.runs WHERE id = '{id}' FOR UPDATE");
    let wrong = format!("BEGIN; {}; SELECT pg_sleep(0.05); {}; COMMIT", lock("b"), lock("a"));
    std::thread::scope(|scope| {
        let outsider = scope.spawn(|| (0..10).filter(|_| database.psql(&wrong).is_err()).count());
        let sends: Vec<_> = (0..200)
            .map(|number| {
                std::thread::sleep(Duration::from_millis(4));
                store.append_input(key(if number % 2 == 0 { "a" } else { "b" }), signal(None))
            })
            .collect();
        for send in sends {
            block_on(send).unwrap();
        }
        outsider.join().unwrap();
    });
    assert_eq!((log(&*store, "a").len(), log(&*store, "b").len()), (101, 101));
}

#[test]
fn a_run_that_somebody_has_locked_for_long_delays_only_its_batch() {
    let database = database();
    let store = connect(&database, Options::default());
    block_on(store.start_run(new_run("a"), None)).unwrap();
    std::thread::scope(|scope| {
        let outsider = scope.spawn(|| {
            database.psql("BEGIN; SELECT 1 FROM onward.runs WHERE id = 'a' FOR UPDATE; SELECT pg_sleep(0.5); COMMIT").unwrap()
        });
        std::thread::sleep(Duration::from_millis(200));
        let sent = store.append_input(key("a"), signal(None));
        // Reads, claims and heartbeats do not wait for it.
        assert!(block_on(store.read_run(key("a"), None)).unwrap().is_some());
        assert_eq!(crate::kit::claim(&*store, "w", 10).len(), 0, "a locked run is passed over");
        block_on(sent).unwrap();
        outsider.join().unwrap();
    });
}
