//! Changes through one server, as listeners of another see them.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use onward_core::{Index, Namespace, RunKey};
use onward_store::conformance::block_on;
use onward_store::{Change, KnownRun, Listener, Store};
use onward_store_postgres::Options;

use crate::kit::{PATIENCE, connect, database, key, new_run, signal, start_held};

#[derive(Default)]
struct Recorder {
    received: Mutex<Received>,
    changed: Condvar,
}

#[derive(Default, Clone, Debug)]
struct Received {
    elsewhere: Vec<RunKey>,
    work: Vec<Namespace>,
    broadcasts: Vec<Vec<u8>>,
    missed: usize,
}

impl Listener for Recorder {
    fn changed(&self, change: &Change) {
        let mut received = self.received.lock().unwrap();
        match change {
            Change::Elsewhere { run, .. } => received.elsewhere.push(run.clone()),
            Change::WorkElsewhere { namespace } => received.work.push(namespace.clone()),
            Change::Broadcast { message } => received.broadcasts.push(message.to_vec()),
            Change::Missed => received.missed += 1,
            _ => {}
        }
        self.changed.notify_all();
    }
}

impl Recorder {
    fn at(store: &dyn Store) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        store.subscribe(recorder.clone());
        recorder
    }

    /// Returns whether the change arrived in time.
    fn receives(&self, within: Duration, what: impl Fn(&Received) -> bool) -> bool {
        let received = self.received.lock().unwrap();
        let (_received, limit) = self.changed.wait_timeout_while(received, within, |received| !what(received)).unwrap();
        !limit.timed_out()
    }
}

/// Repeats `act` until it arrives: notifications are lost until both servers know each other, which is allowed.
fn until_received(recorder: &Recorder, mut act: impl FnMut(usize), what: impl Fn(&Received, usize) -> bool) {
    for number in 0..40 {
        act(number);
        if recorder.receives(Duration::from_millis(500), |received| what(received, number)) {
            return;
        }
    }
    panic!("never notified: {:?}", recorder.received.lock().unwrap());
}

#[test]
fn a_server_is_notified_of_runs_that_grew_and_of_work_elsewhere() {
    let database = database();
    let (here, there) = (connect(&database, Options::default()), connect(&database, Options::default()));
    let (recorder, _other) = (Recorder::at(&*here), Recorder::at(&*there));
    let id = |number: usize| format!("r{number}");
    let start = |number: usize| drop(block_on(there.start_run(new_run(&id(number)), None)).unwrap());
    until_received(&recorder, start, |received, number| {
        received.elsewhere.contains(&key(&id(number))) && !received.work.is_empty()
    });
    // A change through this server is published with its record, not as a notification.
    block_on(here.start_run(new_run("own"), None)).unwrap();
    assert!(!recorder.receives(Duration::from_millis(200), |received| received.elsewhere.contains(&key("own"))));
}

#[test]
fn a_broadcast_reaches_every_server_once() {
    for listen in [true, false] {
        let database = database();
        let connect = || connect(&database, Options { listen, ..Options::default() });
        let (here, there) = (connect(), connect());
        let (recorder, other) = (Recorder::at(&*here), Recorder::at(&*there));
        // Larger than a notification.
        let message = |number: u8| vec![number; 20_000];
        for number in 0..3 {
            block_on(there.broadcast(message(number))).unwrap();
        }
        for recorder in [&recorder, &other] {
            assert!(recorder.receives(PATIENCE, |received| received.broadcasts.len() >= 3), "listening: {listen}");
        }
        assert!(!recorder.receives(Duration::from_millis(1_500), |received| received.broadcasts.len() > 3), "delivered twice");
        let mut broadcasts = recorder.received.lock().unwrap().broadcasts.clone();
        broadcasts.sort();
        assert_eq!(broadcasts, [message(0), message(1), message(2)]);
    }
}

/// With all notifications lost, the holder of a run finds new records by polling.
#[test]
fn what_another_server_appended_is_found_without_any_notification() {
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
fn a_server_that_could_not_listen_for_a_while_reports_it() {
    let database = database();
    let store = connect(&database, Options::default());
    let recorder = Recorder::at(&*store);
    let listening = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let until = Instant::now() + PATIENCE;
    // Wait until it has announced itself or has polled for broadcasts.
    let is_up = "AND (query LIKE '%COMMIT%' OR query LIKE '%onward.broadcasts%')";
    while database.psql(&format!("SELECT count(*) {listening} {is_up}")).unwrap() == "0" {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(20));
    }
    database.psql(&format!("SELECT pg_terminate_backend(pid) {listening}")).unwrap();
    assert!(recorder.receives(PATIENCE, |received| received.missed > 0));
    block_on(store.start_run(new_run("r"), None)).unwrap();
}
