//! What listeners of one server hear of what is done through another.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use onward_core::{Index, RunKey};
use onward_store::conformance::block_on;
use onward_store::{Change, Listener, Store};
use onward_store_postgres::Options;

use crate::kit::{commit, connect, database, key, new_run, signal, start_held, step};

#[derive(Default)]
struct Ear {
    heard: Mutex<Heard>,
    changed: Condvar,
}

#[derive(Default, Clone, Debug)]
struct Heard {
    appended: Vec<(RunKey, Index)>,
    pending: Vec<RunKey>,
}

impl Listener for Ear {
    fn changed(&self, change: Change<'_>) {
        let mut heard = self.heard.lock().unwrap();
        match change {
            Change::Appended { head, record } => heard.appended.push((head.key.clone(), record.index)),
            Change::RunPending { head } => heard.pending.push(head.key.clone()),
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

    /// The limit only ends a test that fails anyway.
    fn wait_for(&self, done: impl Fn(&Heard) -> bool) -> Heard {
        let heard = self.heard.lock().unwrap();
        let (heard, limit) = self.changed.wait_timeout_while(heard, Duration::from_secs(10), |heard| !done(heard)).unwrap();
        assert!(!limit.timed_out(), "{heard:?}");
        heard.clone()
    }

    fn indexes(&self, id: &str, count: usize) -> Vec<u64> {
        let of = |heard: &Heard| -> Vec<u64> {
            let own = heard.appended.iter().filter(|(run, _)| *run == key(id));
            own.map(|(_, index)| index.0).collect()
        };
        of(&self.wait_for(|heard| of(heard).len() >= count))
    }
}

#[test]
fn who_holds_a_run_hears_of_inputs_through_another_server_in_order() {
    let database = database();
    let (here, there) = (connect(&database, Options::default()), connect(&database, Options::default()));
    let ear = Ear::at(&*here);
    let _other = Ear::at(&*there);
    let mut held = start_held(&*here, "r", "w");
    for round in 0..20 {
        block_on(there.append_input(key("r"), signal(None))).unwrap();
        if round % 3 == 0 {
            block_on(here.append_input(key("r"), signal(None))).unwrap();
        }
        commit(&*here, &mut held, vec![step(round)]);
    }
    let next = block_on(here.read_run(key("r"), None)).unwrap().unwrap().next_index;
    let indexes = ear.indexes("r", next.0 as usize);
    assert_eq!(indexes, (0..next.0).collect::<Vec<_>>(), "DB9");
}

/// All notifications are lost: the note about the run is found.
#[test]
fn who_holds_a_run_hears_of_inputs_although_every_hint_is_lost() {
    let database = database();
    let deaf = || connect(&database, Options { listen: false, ..Options::default() });
    let (here, there) = (deaf(), deaf());
    let ear = Ear::at(&*here);
    start_held(&*here, "r", "w");
    ear.indexes("r", 1);
    let started = Instant::now();
    for _ in 0..3 {
        block_on(there.append_input(key("r"), signal(None))).unwrap();
    }
    assert_eq!(ear.indexes("r", 4), [0, 1, 2, 3]);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    let notes = || database.psql("SELECT count(*) FROM onward.calls").unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while notes() != "0" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(notes(), "0");
}

#[test]
fn a_server_is_told_of_runs_that_wait_for_a_worker_elsewhere() {
    let database = database();
    let (here, there) = (connect(&database, Options::default()), connect(&database, Options::default()));
    let (ear, _other) = (Ear::at(&*here), Ear::at(&*there));
    // The two have to hear of each other first; until then hints are lost, which is allowed.
    for number in 0.. {
        let id = format!("r{number}");
        block_on(there.start_run(new_run(&id), None)).unwrap();
        let heard = ear.heard.lock().unwrap();
        let told = |heard: &mut Heard| !heard.pending.contains(&key(&id)) || !heard.appended.contains(&(key(&id), Index(0)));
        let (_heard, limit) = ear.changed.wait_timeout_while(heard, Duration::from_millis(500), told).unwrap();
        if !limit.timed_out() {
            return;
        }
        assert!(number < 20, "never told");
    }
}
