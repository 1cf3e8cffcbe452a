//! Changes through one server, as listeners of another see them.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use onward_core::{Index, Namespace, RunKey};
use onward_store::conformance::block_on;
use onward_store::{Change, KnownRun, Listener, Store};
use onward_store_postgres::Options;

use crate::kit::{PATIENCE, connect, database, key, new_run, signal, start_held};

#[derive(Default)]
struct Ear {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default, Clone, Debug)]
struct Heard {
    elsewhere: Vec<RunKey>,
    work: Vec<Namespace>,
    told: Vec<Vec<u8>>,
    missed: usize,
}

impl Listener for Ear {
    fn changed(&self, change: &Change) {
        let mut heard = self.heard.lock().unwrap();
        match change {
            Change::Elsewhere { run, .. } => heard.elsewhere.push(run.clone()),
            Change::WorkElsewhere { namespace } => heard.work.push(namespace.clone()),
            Change::Broadcast { message } => heard.told.push(message.to_vec()),
            Change::Missed => heard.missed += 1,
            _ => {}
        }
        self.changed.notify_all();
    }
}

impl Ear {
    fn at(store: &dyn Store) -> Arc<Ear> {
        let ear = Arc::new(Ear::default());
        store.subscribe(ear.clone());
        ear
    }

    /// Returns whether the change arrived in time.
    fn hears(&self, within: Duration, what: impl Fn(&Heard) -> bool) -> bool {
        let heard = self.heard.lock().unwrap();
        let (_heard, limit) = self.changed.wait_timeout_while(heard, within, |heard| !what(heard)).unwrap();
        !limit.timed_out()
    }
}

/// Repeats `act` until it arrives: notifications are lost until both servers know each other, which is allowed.
fn until_heard(ear: &Ear, mut act: impl FnMut(usize), what: impl Fn(&Heard, usize) -> bool) {
    for number in 0..40 {
        act(number);
        if ear.hears(Duration::from_millis(500), |heard| what(heard, number)) {
            return;
        }
    }
    panic!("never notified: {:?}", ear.heard.lock().unwrap());
}

#[test]
fn a_server_is_told_what_runs_grew_and_where_work_waits_elsewhere() {
    let database = database();
    let (here, there) = (connect(&database, Options::default()), connect(&database, Options::default()));
    let (ear, _other) = (Ear::at(&*here), Ear::at(&*there));
    let id = |number: usize| format!("r{number}");
    let start = |number: usize| drop(block_on(there.start_run(new_run(&id(number)), None)).unwrap());
    until_heard(&ear, start, |heard, number| heard.elsewhere.contains(&key(&id(number))) && !heard.work.is_empty());
    // A change through this server is published with its record, not as a notification.
    block_on(here.start_run(new_run("own"), None)).unwrap();
    assert!(!ear.hears(Duration::from_millis(200), |heard| heard.elsewhere.contains(&key("own"))));
}

#[test]
fn a_letter_reaches_every_server_once() {
    for listen in [true, false] {
        let database = database();
        let connect = || connect(&database, Options { listen, ..Options::default() });
        let (here, there) = (connect(), connect());
        let (ear, other) = (Ear::at(&*here), Ear::at(&*there));
        // Larger than a notification.
        let letter = |number: u8| vec![number; 20_000];
        for number in 0..3 {
            block_on(there.broadcast(letter(number))).unwrap();
        }
        for ear in [&ear, &other] {
            assert!(ear.hears(PATIENCE, |heard| heard.told.len() >= 3), "listening: {listen}");
        }
        assert!(!ear.hears(Duration::from_millis(1_500), |heard| heard.told.len() > 3), "delivered twice");
        let mut told = ear.heard.lock().unwrap().told.clone();
        told.sort();
        assert_eq!(told, [letter(0), letter(1), letter(2)]);
    }
}

/// With all notifications lost, the holder of a run finds new records by polling.
#[test]
fn what_another_server_appended_is_found_without_any_hint() {
    let database = database();
    let without_listen = || connect(&database, Options { listen: false, ..Options::default() });
    let (here, there) = (without_listen(), without_listen());
    let held = start_held(&*here, "r", "w");
    start_held(&*here, "quiet", "w");
    let known = |id: &str| KnownRun { run: key(id), generation: 0, next: Index(1) };
    assert_eq!(block_on(here.read_since(vec![known("r"), known("quiet")])).unwrap(), []);
    block_on(there.append_input(key("r"), signal(None))).unwrap();
    let outbox = block_on(here.read_since(vec![known("r"), known("quiet")])).unwrap();
    assert_eq!(outbox.len(), 1);
    assert_eq!((outbox[0].head.epoch, outbox[0].records.len()), (held.head.epoch, 1));
}

/// The listening connection is cut: listeners get `Missed`.
#[test]
fn a_server_that_could_not_hear_for_a_while_says_so() {
    let database = database();
    let store = connect(&database, Options::default());
    let ear = Ear::at(&*store);
    let listening = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let until = Instant::now() + PATIENCE;
    // Wait until it has announced itself or has polled for broadcasts.
    let is_up = "AND (query LIKE '%COMMIT%' OR query LIKE '%onward.broadcasts%')";
    while database.psql(&format!("SELECT count(*) {listening} {is_up}")).unwrap() == "0" {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    database.psql(&format!("SELECT pg_terminate_backend(pid) {listening}")).unwrap();
    assert!(ear.hears(PATIENCE, |heard| heard.missed > 0));
    block_on(store.start_run(new_run("r"), None)).unwrap();
}
