//! A database that is restored to an earlier state while servers run: what they and their workers know of the lost time no longer
//! counts, and nothing granted then is granted again (F32, DB9).

use std::sync::Arc;

use onward_core::event::TaskScheduled;
use onward_core::run::Refusal;
use onward_core::task::{Task, TaskOptions, TaskReport};
use onward_core::{CallId, Event, Hash, Namespace};
use onward_store::conformance::{HeldRun, block_on};
use onward_store::{ClaimTasks, Consequence, Store, StoreError};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::{Cluster, Settings};

use crate::kit::{claim, json, key, log, name, new_run, seconds, signal, start_held, step, worker};

/// Two servers, and what they hold when the database goes back.
struct Servers {
    stores: [Arc<PostgresStore>; 2],
    /// Leased before the backup, with a signal that came after it.
    before: HeldRun,
    /// Leased after the backup, through the other server.
    after: HeldRun,
    task: Task,
}

fn task(ordinal: u32) -> Event {
    let (input, options) = (json("1"), TaskOptions::default());
    TaskScheduled { call_id: CallId::root(ordinal), kind: name("mail"), input_hash: Hash::of(&input), input, options }.into()
}

fn claim_task(store: &dyn Store, by: &str) -> Option<Task> {
    let (queues, kinds) = (vec![None], vec![name("mail")].into());
    let request = ClaimTasks { worker: worker(by), namespace: Namespace::default(), queues, kinds, limit: 1, lease: seconds(60) };
    block_on(store.claim_tasks(request)).unwrap().pop()
}

/// Repeats until there is a result: connections break while the database is replaced.
fn insist<T>(mut attempt: impl FnMut() -> Result<T, StoreError>) -> Result<T, StoreError> {
    for _ in 0..100 {
        match attempt() {
            Err(error) if error.consequence() == Consequence::Retry => {}
            other => return other,
        }
    }
    panic!("never answered");
}

/// Creates the state of the backup: a run that `w1` holds, one without a holder, and one with a task.
fn prepare(url: &str) -> ([Arc<PostgresStore>; 2], HeldRun) {
    let connect = || Arc::new(block_on(PostgresStore::connect(url, Options::default())).unwrap());
    let stores = [connect(), connect()];
    let mut with_task = start_held(&*stores[0], "with-task", "w0");
    let committed = block_on(stores[0].commit(with_task.commit(vec![task(0)]))).unwrap();
    with_task.advance(1, committed);
    block_on(stores[0].release_run(key("with-task"), with_task.head.epoch)).unwrap();
    let before = start_held(&*stores[0], "before", "w1");
    block_on(stores[0].heartbeat(worker("w1"), seconds(600))).unwrap();
    block_on(stores[1].start_run(new_run("after"), None)).unwrap();
    (stores, before)
}

/// Works on between the backup and its restore.
fn go_on(stores: [Arc<PostgresStore>; 2], mut before: HeldRun) -> Servers {
    let appended = insist(|| block_on(stores[0].append_input(key("before"), signal(Some("lost"))))).unwrap();
    before.horizon = appended.index;
    let after = claim(&*stores[1], "w2", 1).pop().expect("the run is free");
    let task = claim_task(&*stores[1], "w2").expect("the task is free");
    for index in 0..20 {
        block_on(stores[index % 2].start_run(new_run(&format!("lost-{index}")), None)).unwrap();
    }
    Servers { stores, before, after, task }
}

fn assert_fenced<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Refused(Refusal::Fenced { .. }))), "{answer:?}");
}

/// Checks the servers after the restore.
fn check(servers: Servers) {
    let Servers { stores, before, after, task } = servers;
    // The other signal gets the index of the lost one.
    insist(|| block_on(stores[1].append_input(key("before"), signal(Some("other"))))).unwrap();
    assert_fenced(insist(|| block_on(stores[0].commit(before.commit(vec![step(0)])))));
    assert_fenced(insist(|| block_on(stores[1].commit(after.commit(vec![step(0)])))));
    for (store, own) in stores.iter().zip(["w1", "w2"]) {
        assert!(!insist(|| block_on(store.heartbeat(worker(own), seconds(60)))).unwrap(), "{own} is told that it has nothing");
    }
    let given = claim(&*stores[0], "w3", 10);
    assert_eq!(given.len(), 2, "everything can be claimed at once");
    for held in &given {
        assert!(held.head.epoch > before.head.epoch && held.head.epoch > after.head.epoch);
    }
    let late = claim_task(&*stores[0], "w3").expect("the task is free again");
    assert_ne!(late.claim, task.claim);
    let report = TaskReport::Completed(json("2"));
    let stale = insist(|| block_on(stores[1].report_task(task.id.clone(), task.claim, report.clone(), seconds(60))));
    assert!(matches!(stale, Err(StoreError::TaskAttemptOver(_))), "{stale:?}");
    insist(|| block_on(stores[1].report_task(late.id.clone(), late.claim, report.clone(), seconds(60)))).unwrap();
    for held in given {
        insist(|| block_on(stores[1].commit(held.commit(vec![step(0)])))).unwrap();
    }
    assert_eq!(log(&*stores[0], "before"), ["run_started", "signal_received", "step_completed"]);
    assert_eq!(log(&*stores[0], "with-task"), ["run_started", "task_scheduled", "task_completed"]);
    assert!(stores.iter().all(|store| store.stats().moves == 1), "each has noticed once");
}

#[test]
fn a_restored_dump_fences_later_workers() {
    let cluster = Cluster::shared();
    let database = cluster.database(None).unwrap();
    let (stores, before) = prepare(&database.url());
    let dump = cluster.dump(database.name()).unwrap();
    let servers = go_on(stores, before);
    cluster.load(database.name(), "onward", &dump).unwrap();
    check(servers);
}

#[test]
fn restored_files_fence_later_workers() {
    let mut cluster = Cluster::start(Settings::default()).unwrap();
    let (stores, before) = prepare(&cluster.url("postgres"));
    let copy = cluster.copy_files().unwrap();
    let servers = go_on(stores, before);
    cluster.put_back(&copy).unwrap();
    check(servers);
}

/// A restart, even after a crash, is not a restore: leases stay valid.
#[test]
fn a_restarted_server_fences_no_worker() {
    let mut cluster = Cluster::start(Settings::default()).unwrap();
    let (stores, before) = prepare(&cluster.url("postgres"));
    let Servers { stores, before, after, .. } = go_on(stores, before);
    for signal in [2, 3, 9] {
        cluster.restart(signal).unwrap();
    }
    insist(|| block_on(stores[0].commit(before.commit(vec![step(0)])))).unwrap();
    insist(|| block_on(stores[1].commit(after.commit(vec![step(0)])))).unwrap();
    assert!(stores.iter().all(|store| store.stats().moves == 0));
}

/// An operator can declare what cannot be detected: `UPDATE onward.restore_guard SET call_id = ''`.
#[test]
fn leases_are_taken_back_by_hand() {
    let cluster = Cluster::shared();
    let database = cluster.database(None).unwrap();
    // Without the rights for the full check, as at some hosting providers.
    database.psql("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; CREATE ROLE guest LOGIN").unwrap();
    database.psql(&format!("GRANT CREATE ON DATABASE {} TO guest", database.name())).unwrap();
    let url = database.url().replace(onward_testkit::OWNER, "guest");
    let (stores, before) = prepare(&url);
    database.psql("UPDATE onward.restore_guard SET location = ''").unwrap();
    assert_fenced(block_on(stores[0].commit(before.commit(vec![step(0)]))));
    assert_eq!(claim(&*stores[1], "w3", 10).len(), 2);
    assert_eq!(stores.iter().map(|store| store.stats().moves).collect::<Vec<_>>(), [1, 1]);
}
