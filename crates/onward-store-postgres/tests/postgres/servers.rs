//! Several servers on one database: none has state that the others lack.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use onward_core::event::TimerStarted;
use onward_core::ledger::{SpendQuery, SpendRow};
use onward_core::queue::load::KeyLoad;
use onward_core::quota::QuotaUse;
use onward_core::run::{Commit, Committed, Input, NewRun, OutboxMessage, Wait};
use onward_core::task::{Task, TaskCount, TaskId, TaskReport};
use onward_core::{CallId, Epoch, Index, KindSchemas, Name, Namespace, Record, RunHead, RunKey, Timestamp, WorkerId};
use onward_store::conformance::{self, block_on};
use onward_store::{
    Appended, ClaimRuns, ClaimTasks, ClaimedOne, ClaimedRun, Clock, Delete, DeletedQuery, DeletedRun, Expired, KnownRun,
    Listener, ManualClock, MemoryStore, OpenCounts, OutboxId, RestoreRun, Restored, RunPage, RunQuery, RunUpdate, ServerInfo,
    Shard, Started, Store, StoreFuture, TaskQuery, VersionCount, WaitQuery,
};
use onward_store_postgres::{Options, PostgresStore};

use crate::kit::{claim, commit, connect, connect_at, database, key, log, new_run, seconds, signal, start_held, step, worker};

/// A store that sends every call to another server.
struct InTurn {
    stores: Vec<Arc<PostgresStore>>,
    turn: AtomicUsize,
}

impl InTurn {
    fn next(&self) -> &PostgresStore {
        &self.stores[self.turn.fetch_add(1, Ordering::Relaxed) % self.stores.len()]
    }
}

macro_rules! in_turn {
    ($(fn $verb:ident(&self $(, $name:ident: $kind:ty)*) -> $future:ty;)*) => {
        impl Store for InTurn {
            $(fn $verb(&self $(, $name: $kind)*) -> $future {
                self.next().$verb($($name),*)
            })*

            fn subscribe(&self, listener: Arc<dyn Listener>) {
                self.stores.iter().for_each(|store| store.subscribe(listener.clone()));
            }
        }
    };
}

in_turn! {
    fn start_run(&self, run: NewRun, claim: Option<WorkerId>) -> StoreFuture<'_, Started>;
    fn restore_run(&self, restore: RestoreRun) -> StoreFuture<'_, Restored>;
    fn append_input(&self, run: RunKey, input: Input) -> StoreFuture<'_, Appended>;
    fn claim_runs(&self, request: ClaimRuns) -> StoreFuture<'_, Vec<ClaimedRun>>;
    fn claim_run(&self, run: RunKey, worker: WorkerId, input: Option<Input>) -> StoreFuture<'_, ClaimedOne>;
    fn commit(&self, commit: Commit) -> StoreFuture<'static, Committed>;
    fn release_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()>;
    fn lose_run(&self, run: RunKey, epoch: Epoch) -> StoreFuture<'_, ()>;
    fn claim_tasks(&self, request: ClaimTasks) -> StoreFuture<'_, Vec<Task>>;
    fn report_task(&self, task: TaskId, claim: u64, report: TaskReport, lease: Duration) -> StoreFuture<'_, ()>;
    fn retry_task(&self, task: TaskId) -> StoreFuture<'_, ()>;
    fn heartbeat(&self, worker: WorkerId, lease: Duration) -> StoreFuture<'_, bool>;
    fn list_leases(&self, worker: WorkerId) -> StoreFuture<'_, Vec<(RunKey, Epoch)>>;
    fn expire(&self, limit: usize) -> StoreFuture<'_, Expired>;
    fn outbox_messages(&self, limit: usize) -> StoreFuture<'_, Vec<(OutboxId, OutboxMessage)>>;
    fn finish_deliveries(&self, done: Vec<OutboxId>) -> StoreFuture<'_, ()>;
    fn read_run(&self, run: RunKey, generation: Option<u32>) -> StoreFuture<'_, Option<RunHead>>;
    fn read_log(&self, run: RunKey, generation: Option<u32>, from: Index, limit: usize) -> StoreFuture<'_, Vec<Record>>;
    fn read_since(&self, known: Vec<KnownRun>) -> StoreFuture<'_, Vec<RunUpdate>>;
    fn list_runs(&self, query: RunQuery) -> StoreFuture<'_, RunPage>;
    fn count_versions(&self, namespace: Namespace) -> StoreFuture<'_, Vec<VersionCount>>;
    fn list_waits(&self, query: WaitQuery) -> StoreFuture<'_, Vec<Wait>>;
    fn list_tasks(&self, query: TaskQuery) -> StoreFuture<'_, Vec<Task>>;
    fn list_queue_keys(&self, namespace: Namespace, queue: Option<Name>, limit: usize) -> StoreFuture<'_, Vec<KeyLoad>>;
    fn quota_use(&self, namespace: Namespace) -> StoreFuture<'_, QuotaUse>;
    fn count_tasks(&self, namespace: Namespace) -> StoreFuture<'_, Vec<TaskCount>>;
    fn count_open(&self) -> StoreFuture<'_, OpenCounts>;
    fn delete_runs(&self, delete: Delete) -> StoreFuture<'_, u64>;
    fn spend(&self, query: SpendQuery) -> StoreFuture<'_, Vec<SpendRow>>;
    fn list_deleted(&self, query: DeletedQuery) -> StoreFuture<'_, Vec<DeletedRun>>;
    fn register_kinds(&self, kinds: Vec<KindSchemas>) -> StoreFuture<'_, ()>;
    fn list_kinds(&self, namespace: Namespace) -> StoreFuture<'_, Vec<KindSchemas>>;
}

#[test]
fn three_servers_in_turn_tell_the_story_of_the_reference() {
    for seed in conformance::seeds(2) {
        let clock = Arc::new(ManualClock::default());
        let database = database();
        let stores = (0..3).map(|_| connect_at(&database, clock.clone())).collect();
        let reference = MemoryStore::new(clock.clone());
        conformance::differential(seed, 250, &InTurn { stores, turn: AtomicUsize::new(0) }, &reference, &clock);
    }
}

#[test]
fn two_servers_never_give_one_run_to_two_workers() {
    let database = database();
    let stores = [connect(&database, Options::default()), connect(&database, Options::default())];
    for run in 0..60 {
        block_on(stores[run % 2].start_run(new_run(&format!("r{run}")), None)).unwrap();
    }
    let workers: Vec<_> = (0..4)
        .map(|id| {
            let store = stores[id % 2].clone();
            std::thread::spawn(move || {
                let (mut keys, mut empty) = (Vec::new(), 0);
                // Runs locked by another claim are skipped: an empty claim is not the end.
                while empty < 20 {
                    let claimed = claim(&*store, &format!("w{id}"), 3);
                    empty = if claimed.is_empty() { empty + 1 } else { 0 };
                    keys.extend(claimed.iter().map(|held| held.key()));
                }
                keys
            })
        })
        .collect();
    let keys: Vec<RunKey> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!((keys.len(), keys.iter().collect::<BTreeSet<_>>().len()), (60, 60));
}

#[test]
fn a_zombie_of_one_server_is_fenced_by_a_claim_through_another() {
    let clock = Arc::new(ManualClock::default());
    let database = database();
    let (one, other) = (connect_at(&database, clock.clone()), connect_at(&database, clock.clone()));
    let zombie = start_held(&*one, "r", "zombie");
    block_on(one.heartbeat(worker("zombie"), seconds(10))).unwrap();
    clock.advance(seconds(9));
    assert_eq!(block_on(other.expire(100)).unwrap().workers_lost, 0);
    clock.advance(seconds(1));
    assert_eq!(block_on(other.expire(100)).unwrap().workers_lost, 1);
    let mut new = claim(&*other, "w", 1).remove(0);
    assert!(new.head.epoch > zombie.head.epoch);
    assert_eq!(block_on(one.commit(zombie.commit(vec![step(0)]))).unwrap_err().code(), "lease_lost");
    commit(&*other, &mut new, vec![step(0)]);
    assert_eq!(log(&*one, "r"), ["run_started", "step_completed"]);
    assert!(!block_on(one.heartbeat(worker("zombie"), seconds(10))).unwrap());
}

#[test]
fn timers_that_many_servers_look_for_fire_once_and_none_early() {
    let clock = Arc::new(ManualClock::default());
    let database = database();
    let stores = [connect_at(&database, clock.clone()), connect_at(&database, clock.clone())];
    let runs = 80;
    for run in 0..runs {
        let mut held = start_held(&*stores[0], &format!("r{run}"), "w");
        let due = |ordinal: u64| clock.now().after(Duration::from_millis(10_000 + ordinal));
        let timer = |ordinal: u32| TimerStarted { call_id: CallId::root(ordinal), due_at: due(u64::from(ordinal)) }.into();
        commit(&*stores[0], &mut held, vec![timer(0), timer(1), timer(2)]);
    }
    clock.advance(Duration::from_millis(9_999));
    stores.iter().for_each(|store| assert_eq!(block_on(store.expire(1_000)).unwrap().timers_fired, 0));
    clock.advance(Duration::from_millis(2)); // two of three are due
    let threads: Vec<_> = (0..4)
        .map(|id| {
            let store = stores[id % 2].clone();
            std::thread::spawn(move || (0..40).map(|_| block_on(store.expire(10)).unwrap().timers_fired).sum::<u64>())
        })
        .collect();
    let fired: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(fired, 2 * runs);
    for run in 0..runs {
        let fired = log(&*stores[1], &format!("r{run}")).iter().filter(|event| **event == "timer_fired").count();
        assert_eq!(fired, 2, "run {run}");
    }
}

#[test]
fn senders_through_two_servers_get_one_index_each_and_repeats_stay_repeats() {
    let database = database();
    let stores = [connect(&database, Options::default()), connect(&database, Options::default())];
    block_on(stores[0].start_run(new_run("r"), None)).unwrap();
    let senders: Vec<_> = (0..4)
        .map(|id| {
            let store = stores[id % 2].clone();
            let send = move |number: usize| {
                let id = format!("s{}", number % 30);
                block_on(store.append_input(key("r"), signal(Some(&id)))).unwrap()
            };
            std::thread::spawn(move || (0..60).map(send).filter(|appended| !appended.repeated).count())
        })
        .collect();
    let taken: usize = senders.into_iter().map(|sender| sender.join().unwrap()).sum();
    assert_eq!(taken, 30);
    let records = block_on(stores[0].read_log(key("r"), None, Index(0), usize::MAX)).unwrap();
    assert_eq!(records.iter().map(|record| record.index).collect::<Vec<_>>(), (0..31).map(Index).collect::<Vec<_>>());
}

/// The database clock decides; the time of the server is not used.
#[test]
fn the_clock_of_the_database_judges() {
    let database = database();
    let store = connect(&database, Options::default());
    let query_number = |sql: &str| database.psql(sql).unwrap().parse::<u64>().unwrap();
    let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
    let before = query_number(clock);
    let held = start_held(&*store, "r", "w");
    let after = query_number(clock);
    assert!((Timestamp(before)..=Timestamp(after)).contains(&held.head.created_at));
    block_on(store.heartbeat(worker("w"), seconds(30))).unwrap();
    let until = query_number("SELECT until FROM onward.sessions");
    assert!((before + 30_000..=query_number(clock) + 30_000).contains(&until));
}

#[test]
fn servers_are_known_for_as_long_as_they_announce_themselves() {
    let clock = Arc::new(ManualClock::default());
    let database = database();
    let (one, other) = (connect_at(&database, clock.clone()), connect_at(&database, clock.clone()));
    let server = |id: &str| ServerInfo {
        id: crate::kit::name(id),
        url: format!("http://{id}"),
        version: "1".to_owned(),
        started_at: Timestamp(7),
        last_seen_at: clock.now(),
        workers: vec![1, 2, 3],
    };
    block_on(one.announce_server(server("a"), Some(seconds(10)))).unwrap();
    block_on(other.announce_server(server("b"), Some(seconds(20)))).unwrap();
    assert_eq!(block_on(other.list_servers()).unwrap(), [server("a"), server("b")]);
    let b = server("b");
    clock.advance(seconds(10));
    assert_eq!(block_on(one.list_servers()).unwrap(), [b]);
    block_on(other.announce_server(server("b"), None)).unwrap();
    assert_eq!(block_on(one.list_servers()).unwrap(), []);
}

/// The shard of a database is recorded once; a database that has runs already holds all root runs.
#[test]
fn a_share_is_taken_once_and_not_by_a_database_that_has_runs() {
    let database = database();
    let stores = [connect(&database, Options::default()), connect(&database, Options::default())];
    assert_eq!(block_on(stores[0].read_shard()).unwrap(), None);
    let share = |cluster: &str, position| Shard { cluster: cluster.to_owned(), position, count: 3 };
    let taken = std::thread::scope(|scope| {
        let take = |number: usize| {
            let store = &stores[number];
            scope.spawn(move || block_on(store.record_shard(share(&format!("c{number}"), 1))).unwrap())
        };
        [take(0), take(1)].map(|thread| thread.join().unwrap())
    });
    assert_eq!(taken[0], taken[1], "the first counts for both");
    assert_eq!(block_on(stores[1].record_shard(share("c9", 2))).unwrap(), taken[0]);
    let used = self::database();
    let store = connect(&used, Options::default());
    block_on(store.start_run(new_run("r"), None)).unwrap();
    assert_eq!(block_on(store.read_shard()).unwrap(), Some(Shard::all(String::new())));
    assert_eq!(block_on(store.record_shard(share("c", 0))).unwrap(), Shard::all(String::new()));
}

/// The server that read its clock first may write last.
#[test]
fn the_times_of_a_log_never_go_back() {
    let (early, late, database) = (Arc::new(ManualClock::default()), Arc::new(ManualClock::default()), database());
    late.advance(seconds(10));
    let (first, second) = (connect_at(&database, late), connect_at(&database, early));
    block_on(first.start_run(new_run("r"), None)).unwrap();
    block_on(second.append_input(key("r"), signal(None))).unwrap();
    let records = block_on(first.read_log(key("r"), None, Index(0), usize::MAX)).unwrap();
    assert_eq!((records.len(), records[1].at), (2, records[0].at));
}
