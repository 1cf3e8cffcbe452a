//! Contention: serialization failures, deadlocks, locks that are held for long.

use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{RunCompleted, RunContinued, RunStarted, TaskScheduled};
use onward_core::log::{CommitHeader, CommitId};
use onward_core::task::TaskOptions;
use onward_core::{CallId, Epoch, Hash, Index, Namespace, Record, Timestamp};
use onward_store::conformance::{self, block_on};
use onward_store::{ClaimTasks, ManualClock, MemoryStore, Restore, RestoreRun, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Database, OWNER, Proxy};

use crate::kit::{
    PATIENCE, commit, connect, connect_at, database, json, key, log, name, new_run, seconds, signal, start_held, step, worker,
};

/// Fails every third insert of records with this code; a sequence counts, because a rollback does not reset it.
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

/// DB8: an operation that the database will always reject fails alone, not the others of its batch.
#[test]
fn what_the_database_refuses_for_good_fails_alone() {
    let database = database();
    database
        .psql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF NEW.id LIKE 'bad%' THEN RAISE EXCEPTION 'never' USING ERRCODE = '54000'; END IF; RETURN NEW; END $$;
             CREATE TRIGGER refuse BEFORE INSERT ON onward.runs FOR EACH ROW EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    let store = connect(&database, Options { appenders: 1, ..Options::default() });
    // The first is under way, the others come in one batch.
    let ids: Vec<String> = (0..60).map(|n| if n % 20 == 7 { format!("bad-{n}") } else { format!("good-{n}") }).collect();
    let starts: Vec<_> = ids.iter().map(|id| (id, store.start_run(new_run(id), None))).collect();
    for (id, start) in starts {
        assert_eq!(block_on(start).is_ok(), id.starts_with("good"), "{id}");
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

/// READ COMMITTED is sufficient, and SERIALIZABLE works, too.
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

/// A foreign transaction locks two runs in the opposite order: PostgreSQL ends one of both, and no input is lost.
#[test]
fn a_deadlock_with_another_session_ends_and_every_input_arrives() {
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
fn a_long_locked_run_delays_only_its_batch() {
    let database = database();
    let store = connect(&database, Options::default());
    block_on(store.start_run(new_run("a"), None)).unwrap();
    std::thread::scope(|scope| {
        let outsider = scope.spawn(|| {
            database.psql("BEGIN; SELECT 1 FROM onward.runs WHERE id = 'a' FOR UPDATE; SELECT pg_sleep(0.5); COMMIT").unwrap()
        });
        std::thread::sleep(Duration::from_millis(200));
        let sent = store.append_input(key("a"), signal(None));
        // Reads, claims and heartbeats do not wait for the lock.
        assert!(block_on(store.read_run(key("a"), None)).unwrap().is_some());
        assert_eq!(crate::kit::claim(&*store, "w", 10).len(), 0, "a locked run is skipped");
        block_on(sent).unwrap();
        outsider.join().unwrap();
    });
}

/// K7: a recorded attempt needs the lock of its run; the claim does not wait for it, and the task is announced again.
#[test]
fn a_task_whose_run_is_locked_is_handed_out_a_little_later() {
    let database = database();
    let store = connect(&database, Options::default());
    let mut held = start_held(&*store, "a", "w");
    let options = TaskOptions { costs: true, ..TaskOptions::default() };
    let input = json("[]");
    let task = TaskScheduled { call_id: CallId::root(0), kind: name("mail"), input_hash: Hash::of(&input), input, options };
    commit(&*store, &mut held, vec![task.into()]);
    let claim = || {
        let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
        let (worker, namespace) = (worker("t"), Namespace::default());
        block_on(store.claim_tasks(ClaimTasks { worker, namespace, queues, kinds, limit: 10, lease: seconds(30) })).unwrap()
    };
    std::thread::scope(|scope| {
        let outsider = scope.spawn(|| {
            database.psql("BEGIN; SELECT 1 FROM onward.runs WHERE id = 'a' FOR UPDATE; SELECT pg_sleep(0.5); COMMIT").unwrap()
        });
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(claim().len(), 0);
        outsider.join().unwrap();
    });
    // The next query is not skipped: the store knows that a task waits.
    assert_eq!(claim().len(), 1);
    assert_eq!(log(&*store, "a").last(), Some(&"task_attempted"));
}

/// With fewer connections than the store wants, operations wait for one (F21).
#[test]
fn too_many_connections_are_waited_for() {
    let database = database();
    let role = format!("few_{}", database.name());
    database.psql(&format!("CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT ALL ON SCHEMA onward TO {role}")).unwrap();
    for what in ["TABLES", "SEQUENCES"] {
        database.psql(&format!("GRANT ALL ON ALL {what} IN SCHEMA onward TO {role}")).unwrap();
    }
    let url = database.url().replace(onward_testkit::OWNER, &role);
    let store = Arc::new(block_on(PostgresStore::connect(&url, Options { connections: 1, ..Options::default() })).unwrap());
    block_on(store.start_run(new_run("r"), None)).unwrap();
    // Now both connections are used.
    assert!(block_on(store.read_run(key("r"), None)).unwrap().is_some());
    let crowd = || block_on(PostgresStore::connect(&url, Options::default())).map(drop);
    let refused = crowd().unwrap_err();
    assert_eq!(refused.code(), "store_unavailable", "not for good: {refused}");
    drop(store);
    let until = std::time::Instant::now() + PATIENCE;
    while crowd().is_err() {
        assert!(std::time::Instant::now() < until);
    }
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).unwrap();
}

/// A statement that takes too long is ended by the database and retried (F21).
#[test]
fn statements_that_time_out_are_tried_again_a_bounded_number_of_times() {
    let database = database();
    let slow = "CREATE SEQUENCE tries;
       CREATE FUNCTION sleep_often() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         IF nextval('tries') % 4 = 0 THEN PERFORM pg_sleep(5); END IF; RETURN NULL; END $$;
       CREATE TRIGGER sleep_often AFTER INSERT ON onward.events FOR EACH STATEMENT EXECUTE FUNCTION sleep_often()";
    database.psql(slow).unwrap();
    database.psql(&format!("ALTER DATABASE {} SET statement_timeout = '200ms'", database.name())).unwrap();
    let store = connect(&database, Options::default());
    let mut held = start_held(&*store, "r", "w");
    (0..12).for_each(|ordinal| commit(&*store, &mut held, vec![step(ordinal)]));
    assert_eq!(log(&*store, "r").len(), 13);
    let retries = store.stats().retries;
    assert!((3..=20).contains(&retries), "{retries}");
    // A statement that never succeeds is given up, with the reason.
    let always = "CREATE OR REPLACE FUNCTION sleep_often() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       PERFORM pg_sleep(5); RETURN NULL; END $$";
    database.psql(always).unwrap();
    database.psql(&format!("ALTER DATABASE {} SET statement_timeout = '20ms'", database.name())).unwrap();
    let store = connect(&database, Options::default());
    let error = block_on(store.append_input(key("r"), signal(None))).unwrap_err();
    assert_eq!(error.code(), "store_unavailable");
    assert!(error.to_string().contains("statement timeout"), "{error}");
}

/// A server stops inside a transaction, like a suspended machine: others get its locks, and it retries.
#[test]
fn a_suspended_server_delays_no_other_for_long() {
    let database = database();
    let proxy = Proxy::start(Cluster::shared().port(), 1, 0).unwrap();
    let url = format!("postgres://{OWNER}@127.0.0.1:{}/{}", proxy.port, database.name());
    let still = Arc::new(block_on(PostgresStore::connect(&url, Options::default())).unwrap());
    let other = connect(&database, Options::default());
    block_on(other.start_run(new_run("r"), None)).unwrap();
    proxy.hold_commits(true);
    let sent = still.append_input(key("r"), signal(Some("still")));
    let until = std::time::Instant::now() + PATIENCE;
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'";
    while database.psql(waiting).unwrap() == "0" {
        assert!(std::time::Instant::now() < until, "it has locked the run");
        std::thread::sleep(Duration::from_millis(10));
    }
    let begun = std::time::Instant::now();
    block_on(other.append_input(key("r"), signal(Some("other")))).unwrap();
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    proxy.hold_commits(false);
    // The outcome is unknown, or the operation was retried; a repeat finds out.
    if block_on(sent).is_err() {
        block_on(still.append_input(key("r"), signal(Some("still")))).unwrap();
    }
    assert_eq!(log(&*other, "r").len(), 3, "both are there, once each");
}

/// Makes the database reject every append with this code.
fn refuse_events(database: &Database, code: &str) {
    let text = format!(
        "CREATE FUNCTION onward.refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '{code}'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON onward.events EXECUTE FUNCTION onward.refuse()"
    );
    database.psql(&text).unwrap();
}

/// Every operation of a batch fails with `disk_full` when the disk is full.
#[test]
fn a_full_disk_is_reported_as_such_to_every_caller_of_the_batch() {
    let database = database();
    let store = connect(&database, Options { appenders: 1, ..Options::default() });
    block_on(store.start_run(new_run("r"), None)).unwrap();
    refuse_events(&database, "53100");
    let signals: Vec<_> = (0..50).map(|_| store.append_input(key("r"), signal(None))).collect();
    for answer in signals.into_iter().map(block_on) {
        assert_eq!(answer.unwrap_err().code(), "disk_full");
    }
    assert!(store.stats().operations > store.stats().batches, "some shared a batch");
    database.psql("DROP TRIGGER refuse ON onward.events").unwrap();
    block_on(store.append_input(key("r"), signal(None))).unwrap();
    assert_eq!(log(&*store, "r"), ["run_started", "signal_received"]);
}

/// The same for an unavailable database; the error is not nested in itself.
#[test]
fn a_rejected_batch_is_logged_once() {
    let database = database();
    let store = connect(&database, Options { appenders: 1, ..Options::default() });
    block_on(store.start_run(new_run("r"), None)).unwrap();
    refuse_events(&database, "40001");
    let signals: Vec<_> = (0..50).map(|_| store.append_input(key("r"), signal(None))).collect();
    for answer in signals.into_iter().map(block_on) {
        assert_eq!(answer.unwrap_err().to_string().matches("the store cannot be reached").count(), 1);
    }
}

/// Creates the logs of a run with many generations: short texts are in its records, long ones in blobs, and neither fit into one
/// statement.
fn long_run() -> Vec<Vec<Record>> {
    let generations = 700;
    let log = |generation: u32| {
        let count = if generation.is_multiple_of(20) { 40_000 } else { 2_000 };
        let words = json(&format!("\"{generation}: {}\"", "what was said ".repeat(count)));
        let first_seed = (generation > 0).then_some(7);
        let started = RunStarted { generation, first_seed, ..RunStarted::new(name("order"), json("{}"), 7) };
        let first = Record::input(Index(0), Timestamp(1), started.into());
        let (n, epoch, commit_id, horizon) = (0, Epoch(1), CommitId(u64::from(generation)), Index(0));
        let commit = Some(CommitHeader { n, epoch, commit_id, horizon, waits: false, is_while_paused: false });
        let end = match generation == generations - 1 {
            true => RunCompleted { output: words, attempts: None }.into(),
            false => RunContinued { input: words, checkpoint: None }.into(),
        };
        vec![first, Record { index: Index(1), at: Timestamp(2), commit, events: vec![end] }]
    };
    (0..generations).map(log).collect()
}

/// A long conversation that is forked or imported.
#[test]
fn a_run_that_takes_several_statements_is_written_whole_or_not_at_all() {
    let database = database();
    let store = connect(&database, Options::default());
    let logs = long_run();
    let restore = || {
        let what = Restore::Run { logs: logs.clone() };
        block_on(store.restore_run(RestoreRun { key: key("r"), what, outbox: Vec::new() }))
    };
    // The second statement with records is refused, and the first one is rolled back, too.
    database
        .psql(
            "CREATE SEQUENCE tries;
             CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF nextval('tries') % 2 = 0 THEN RAISE EXCEPTION 'never' USING ERRCODE = '54000'; END IF; RETURN NULL; END $$;
             CREATE TRIGGER refuse AFTER INSERT ON onward.events FOR EACH STATEMENT EXECUTE FUNCTION refuse()",
        )
        .unwrap();
    restore().unwrap_err();
    assert!(database.psql("SELECT last_value >= 2 FROM tries").unwrap().contains('t'), "there was a second one");
    assert_eq!(block_on(store.read_run(key("r"), None)).unwrap(), None);
    for table in ["runs", "past", "events", "blobs", "idempotency"] {
        assert_eq!(database.psql(&format!("SELECT count(*) FROM onward.{table}")).unwrap().trim(), "0", "{table}");
    }
    database.psql("DROP TRIGGER refuse ON onward.events").unwrap();
    let began = std::time::Instant::now();
    assert!(restore().unwrap().created);
    eprintln!("{} generations in {:?}", logs.len(), began.elapsed());
    assert!(!restore().unwrap().created, "it is the very same run");
    for (generation, log) in (0..).zip(&logs) {
        assert_eq!(block_on(store.read_log(key("r"), Some(generation), Index(0), usize::MAX)).unwrap(), *log);
    }
}
