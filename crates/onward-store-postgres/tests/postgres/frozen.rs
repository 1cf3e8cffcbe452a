//! DB11: a database that accepts connections but does not respond, from the start or from the middle of an operation on.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use onward_core::Index;
use onward_store::conformance::block_on;
use onward_store::{Consequence, RunQuery, Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, OWNER, Proxy, Settings};

use crate::kit::{commit, connect, database, key, log, new_run, signal, start_held, step};

/// Short, but much longer than any successful operation here.
const SILENCE_MAX: Duration = Duration::from_millis(1_200);
/// Time in which every operation on a frozen database must end: its silence limit, and a connection attempt that times out.
const BOUND: Duration = Duration::from_secs(300);

fn options() -> Options {
    Options { connect_timeout: Duration::from_millis(500), silence_timeout: SILENCE_MAX, ..Options::default() }
}

/// Returns the error for a database that does not respond; it must come in bounded time.
fn refused<T>(what: &str, question: impl FnOnce() -> Result<T, StoreError>) -> StoreError {
    let begun = Instant::now();
    let error = question().err().unwrap_or_else(|| panic!("{what} was answered"));
    assert!(begun.elapsed() < BOUND, "{what} took {:?}", begun.elapsed());
    assert_eq!((error.code(), error.consequence()), ("store_unavailable", Consequence::Retry), "{what}: {error}");
    error
}

/// Repeats until there is a result.
fn until_answered<T>(mut question: impl FnMut() -> Result<T, StoreError>) -> T {
    let until = Instant::now() + BOUND;
    loop {
        match question() {
            Ok(answer) => return answer,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

#[test]
fn one_that_takes_connections_and_never_answers_is_as_good_as_down() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://{OWNER}@{}/x", listener.local_addr().unwrap());
    let error = refused("connect", || block_on(PostgresStore::connect(&url, options())));
    assert!(error.to_string().contains("it accepts connections but does not respond"), "{error}");

    let store = block_on(PostgresStore::connect_when_up(&url, options())).unwrap();
    refused("start_run", || block_on(store.start_run(new_run("r"), None)));
    refused("read_run", || block_on(store.read_run(key("r"), None)));
    refused("expire", || block_on(store.expire(9)));
    assert_eq!(store.last_error().as_deref(), Some("it accepts connections but does not respond"));
    // The limit in the address overrides all others.
    let patient = Options { connect_timeout: BOUND * 10, ..Options::default() };
    refused("connect", || block_on(PostgresStore::connect(&format!("{url}?connect_timeout=1"), patient)));
}

/// A whole cluster is suspended, as by a disk that hangs, and resumes.
#[test]
fn one_that_stands_still_is_given_up_and_found_again() {
    let cluster = Cluster::start(Settings { is_forgetful: true, ..Settings::default() }).unwrap();
    let store = block_on(PostgresStore::connect(&cluster.url("postgres"), options())).unwrap();
    let mut held = start_held(&store, "r", "w");
    commit(&store, &mut held, vec![step(0)]);
    block_on(store.list_runs(RunQuery::default())).unwrap();

    let frozen = cluster.freeze().unwrap();
    let error = refused("signal", || block_on(store.append_input(key("r"), signal(Some("s")))));
    assert!(error.to_string().contains("no response for 1.2 s"), "{error}");
    refused("read_log", || block_on(store.read_log(key("r"), None, Index(0), 9)));
    refused("expire", || block_on(store.expire(9)));
    refused("list_runs", || block_on(store.list_runs(RunQuery::default())));
    // Operations do not queue behind connection attempts that time out.
    let (begun, count) = (Instant::now(), 100);
    let questions: Vec<_> = (0..count).map(|_| store.read_run(key("r"), None)).collect();
    for question in questions {
        refused("read_run", || block_on(question));
    }
    assert!(begun.elapsed() < SILENCE_MAX * count / 2, "one after the other: {:?}", begun.elapsed());

    drop(frozen);
    until_answered(|| block_on(store.append_input(key("r"), signal(Some("s")))));
    let committed = until_answered(|| block_on(store.commit(held.commit(vec![step(1)]))));
    held.advance(1, committed);
    let names = log(&store, "r");
    assert_eq!(names.iter().filter(|name| **name == "signal_received").count(), 1, "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "step_completed").count(), 2, "{names:?}");
}

/// DB7, L5: the outcome of a COMMIT that was sent without a response is unknown; a repeat finds out.
#[test]
fn what_was_on_its_way_when_the_network_stood_still_is_there_once() {
    let database = database();
    let proxy = Proxy::start(Cluster::shared().port(), 1, 0).unwrap();
    let url = format!("postgres://{OWNER}@127.0.0.1:{}/{}", proxy.port, database.name());
    let store = block_on(PostgresStore::connect(&url, options())).unwrap();
    let mut held = start_held(&store, "r", "w");
    for round in 0..4 {
        // In every other round it is the COMMIT that does not get through.
        proxy.hold_commits(round % 2 == 0);
        proxy.freeze(round % 2 == 1);
        let unknown = store.stats().unknown;
        refused("commit", || block_on(store.commit(held.commit(vec![step(round)]))));
        if round % 2 == 0 {
            assert_eq!(store.stats().unknown, unknown + 1, "a COMMIT was sent");
        }
        proxy.hold_commits(false);
        proxy.freeze(false);
        let committed = until_answered(|| block_on(store.commit(held.commit(vec![step(round)]))));
        held.advance(1, committed);
    }
    assert_eq!(log(&store, "r"), ["run_started", "step_completed", "step_completed", "step_completed", "step_completed"]);
}

/// A slow statement is not silence: a foreign lock delays it for longer than the limit of a usual statement.
#[test]
fn changes_of_the_tables_and_deletions_may_take_longer() {
    let database = database();
    let store = connect(&database, options());
    block_on(store.start_run(new_run("r"), None)).unwrap();
    let end = onward_core::run::Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None });
    block_on(store.append_input(key("r"), end)).unwrap();
    let its = database.name().to_owned();
    let locking = std::thread::spawn(move || {
        let text = "BEGIN; SELECT 1 FROM onward.runs WHERE id = 'r' FOR UPDATE; SELECT pg_sleep(3); COMMIT";
        Cluster::shared().psql(&its, text).unwrap();
    });
    until_locked(&database);
    let delete = onward_store::Delete::Run { key: key("r"), reason: String::new() };
    assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
    locking.join().unwrap();
}

fn until_locked(database: &onward_testkit::Database<'_>) {
    let text = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(3)%' AND wait_event = 'PgSleep'";
    let until = Instant::now() + BOUND;
    while Cluster::shared().psql(database.name(), text).unwrap() != "1" {
        assert!(Instant::now() < until, "no statement sleeps");
    }
}
