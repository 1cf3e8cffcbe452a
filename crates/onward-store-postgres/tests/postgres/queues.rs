//! Limits of queues over several servers (QL1 to QL3, DB13).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use onward_core::event::TaskScheduled;
use onward_core::queue::QueueSettings;
use onward_core::queue::settings::settings_row;
use onward_core::task::{Task, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Hash, Namespace};
use onward_store::conformance::{self, Mortal, block_on};
use onward_store::{ClaimTasks, ManualClock, Registration, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::Database;

use crate::kit::{commit, connect, connect_at, database, json, name, seconds, start_held, worker};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

fn task(ordinal: u32) -> Event {
    let options = TaskOptions { queue: Some(name("q")), key: Some(name(KEYS[ordinal as usize % 4])), ..TaskOptions::default() };
    let input = json("1");
    TaskScheduled { call_id: CallId::root(ordinal), kind: name("mail"), input_hash: Hash::of(&input), input, options }.into()
}

fn claim(store: &dyn Store, by: &str, limit: usize, lease: u64) -> Vec<Task> {
    let (queues, kinds) = (vec![Some(name("q"))], Arc::new(vec![name("mail")]));
    let request = ClaimTasks { worker: worker(by), namespace: Namespace::default(), queues, kinds, limit, lease: seconds(lease) };
    block_on(store.claim_tasks(request)).unwrap()
}

fn set(store: &dyn Store, concurrency_max: u32, key_concurrency_max: u32) {
    let (concurrency_max, key_concurrency_max) = (Some(concurrency_max), Some(key_concurrency_max));
    let settings = QueueSettings { concurrency_max, key_concurrency_max, ..QueueSettings::default() };
    let row = settings_row(Namespace::default(), Some(&name("q")), Some(settings)).unwrap();
    block_on(store.register_kinds(vec![row], Registration::Always)).unwrap();
}

/// Counts what is held: at most as many as are leased, because a task is counted after its claim and until its report.
#[derive(Default)]
struct Holders {
    by_key: Mutex<BTreeMap<String, usize>>,
    done: AtomicUsize,
}

impl Holders {
    fn begin(&self, task: &Task) {
        let mut by_key = self.by_key.lock().unwrap();
        *by_key.entry(task.options.key_text().to_owned()).or_default() += 1;
        assert!(by_key.values().sum::<usize>() <= 3, "QL1: {by_key:?}");
        assert!(by_key.values().all(|held| *held <= 1), "QL1: {by_key:?}");
    }

    fn end(&self, task: &Task) {
        *self.by_key.lock().unwrap().get_mut(task.options.key_text()).unwrap() -= 1;
        self.done.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn limits_hold_over_servers_that_claim_at_the_same_time() {
    const TASKS: u32 = 120;
    let database = database();
    let stores: Vec<_> = (0..3).map(|_| connect(&database, Options::default())).collect();
    set(&*stores[0], 3, 1);
    let mut held = start_held(&*stores[0], "r", "w");
    commit(&*stores[0], &mut held, (0..TASKS).map(task).collect());
    let holders = Holders::default();
    std::thread::scope(|scope| {
        for id in 0..6 {
            let (store, holders) = (&stores[id % 3], &holders);
            scope.spawn(move || {
                while holders.done.load(Ordering::SeqCst) < TASKS as usize {
                    for task in claim(&**store, &format!("w{id}"), 2, 60) {
                        holders.begin(&task);
                        std::thread::yield_now();
                        holders.end(&task);
                        let done = TaskReport::Completed(json("1"));
                        block_on(store.report_task(task.id.clone(), task.claim, done, seconds(60))).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(holders.done.load(Ordering::SeqCst), TASKS as usize, "QL3: every task was handed out");
}

#[test]
fn a_server_that_is_gone_gives_its_slots_back_with_its_leases() {
    let database = database();
    let lost = connect(&database, Options::default());
    set(&*lost, 2, 2);
    let mut held = start_held(&*lost, "r", "w");
    commit(&*lost, &mut held, (0..8).map(task).collect());
    assert_eq!(claim(&*lost, "lost", 10, 1).len(), 2);
    drop(lost);
    let store = connect(&database, Options::default());
    assert_eq!(claim(&*store, "next", 10, 60).len(), 0, "QL1: its leases count");
    loop {
        block_on(store.expire(100)).unwrap();
        let claimed = claim(&*store, "next", 10, 60);
        if !claimed.is_empty() {
            assert_eq!(claimed.len(), 2, "QL3");
            return;
        }
        std::thread::yield_now();
    }
}

/// Two servers of one database; their workers survive them.
struct Servers<'d> {
    database: &'d Database<'d>,
    clock: Arc<ManualClock>,
    stores: Vec<Arc<PostgresStore>>,
}

impl Mortal for Servers<'_> {
    fn count(&self) -> usize {
        self.stores.len()
    }

    fn store(&self, server: usize) -> Arc<dyn Store> {
        self.stores[server].clone()
    }

    fn die(&mut self, server: usize) {
        self.stores[server] = connect_at(self.database, self.clock.clone());
    }

    fn takes_workers_along(&self) -> bool {
        false
    }
}

/// QL1, QL3
#[test]
fn holders_never_exceed_a_limit_over_the_deaths_of_two_servers() {
    let (database, clock) = (database(), Arc::new(ManualClock::default()));
    let stores = (0..2).map(|_| connect_at(&database, clock.clone())).collect();
    let mut servers = Servers { database: &database, clock: clock.clone(), stores };
    let mut deaths = 0;
    for seed in conformance::seeds(40) {
        deaths += block_on(conformance::limits_hold_over_deaths(seed, &mut servers, &clock));
    }
    assert!(deaths > 0, "the test kills");
}
