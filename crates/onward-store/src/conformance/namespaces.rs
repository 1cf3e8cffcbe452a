//! S6: a worker belongs to one namespace and never gets what has the same name in another.

use onward_core::run::NewRun;
use onward_core::task::{RetryPolicy, TaskOptions, TaskReport};
use onward_core::{Failure, Namespace, RunKey, Status};

use super::harness::{Harness, HeldRun, key, namespaces, new_run, seconds, settled, signal, task, worker};
use crate::SESSION_DEFAULT;

/// More than any store caches of one queue.
const CROWD: usize = 10_000;

pub async fn a_worker_gets_only_runs_of_its_namespace(mut harness: Harness) {
    let [default, other] = namespaces();
    start(&harness, &default, "r").await;
    assert_eq!(claim(&harness, &other, "o").await, []);
    start(&harness, &other, "r").await;
    assert_eq!(claim(&harness, &other, "o").await, [in_namespace(&other, "r")]);
    assert_eq!(claim(&harness, &other, "o").await, []);
    harness.reopen();
    // Leases may be lost by then; the namespace boundary holds.
    let again = claim(&harness, &other, "o").await;
    assert!(again.iter().all(|key| key.namespace == other), "{again:?}");
    assert_eq!(claim(&harness, &default, "d").await, [in_namespace(&default, "r")]);
    assert_eq!(harness.claim_in(Namespace::new("third").unwrap(), "t", 10).await, []);
}

pub async fn a_worker_gets_only_tasks_of_its_namespace(mut harness: Harness) {
    let [default, other] = namespaces();
    schedule(&harness, &default, TaskOptions::default()).await;
    assert_eq!(claim_tasks(&harness, &other, "o").await, []);
    harness.reopen();
    assert_eq!(claim_tasks(&harness, &other, "o").await, []);
    schedule(&harness, &other, TaskOptions::default()).await;
    assert_eq!(claim_tasks(&harness, &other, "o").await, [in_namespace(&other, "r")]);
    assert_eq!(claim_tasks(&harness, &other, "o").await, []);
    assert_eq!(claim_tasks(&harness, &default, "d").await, [in_namespace(&default, "r")]);
}

pub async fn a_run_that_was_lost_goes_to_a_worker_of_its_namespace(harness: Harness) {
    let [default, other] = namespaces();
    start(&harness, &default, "r").await;
    start(&harness, &other, "r").await;
    let lost = claim_held(&harness, &default, "d").await;
    let mut kept = claim_held(&harness, &other, "o").await;
    harness.pass(SESSION_DEFAULT / 2);
    harness.store().heartbeat(worker("o"), SESSION_DEFAULT).await.unwrap();
    harness.pass(SESSION_DEFAULT / 2);
    assert_eq!(harness.expire().await.workers_lost, 1);
    assert_eq!(claim(&harness, &other, "o").await, []);
    let regained = claim_held(&harness, &default, "e").await;
    assert!(regained.head.epoch > lost.head.epoch);
    harness.commit(&mut kept, vec![settled()]).await;
}

pub async fn a_task_that_was_lost_goes_to_a_worker_of_its_namespace(mut harness: Harness) {
    let [default, other] = namespaces();
    let options = || TaskOptions { retry: Some(RetryPolicy::attempts(3).delay(seconds(10))), ..Default::default() };
    schedule(&harness, &default, options()).await;
    let lost = harness.claim_tasks_in(default.clone(), "d", 10).await;
    assert_eq!(lost.len(), 1);
    harness.pass(seconds(30));
    assert_eq!(harness.expire().await.tasks_expired, 1);
    harness.pass(seconds(10));
    assert_eq!(claim_tasks(&harness, &other, "o").await, []);
    let again = harness.claim_tasks_in(default.clone(), "e", 10).await.remove(0);

    let failed = TaskReport::Failed(Failure::retryable("busy"));
    harness.store().report_task(again.id, again.claim, failed, seconds(30)).await.unwrap();
    harness.reopen();
    harness.pass(seconds(20));
    assert_eq!(claim_tasks(&harness, &other, "o").await, []);
    assert_eq!(claim_tasks(&harness, &default, "d").await, [in_namespace(&default, "r")]);
}

pub async fn the_same_signal_wakes_only_the_run_it_was_sent_to(harness: Harness) {
    let [default, other] = namespaces();
    for namespace in [&default, &other] {
        start(&harness, namespace, "r").await;
        let mut held = claim_held(&harness, namespace, namespace.as_str()).await;
        harness.commit(&mut held, vec![settled()]).await;
        harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
    }
    let store = harness.store();
    let send = |namespace: &Namespace| store.append_input(in_namespace(namespace, "r"), signal(Some("once")));
    assert!(send(&other).await.unwrap().woke);
    assert_eq!(harness.head_of(&in_namespace(&default, "r")).await.status, Status::Waiting);
    assert_eq!(claim(&harness, &default, "d").await, []);
    assert_eq!(claim(&harness, &other, "o").await, [in_namespace(&other, "r")]);
    assert!(!send(&default).await.unwrap().repeated);
    assert_eq!(claim(&harness, &default, "d").await, [in_namespace(&default, "r")]);
}

/// A worker gets the next run of its namespace, however many older ones with the same names wait in another.
pub async fn what_waits_in_another_namespace_hides_nothing(mut harness: Harness) {
    let [default, other] = namespaces();
    let store = harness.store();
    // All are submitted before the first is awaited.
    let starts: Vec<_> = (0..CROWD).map(|number| store.start_run(new_run_in(&other, &number.to_string()), None)).collect();
    for start in starts {
        start.await.unwrap();
    }
    drop(store);
    schedule(&harness, &other, TaskOptions { priority: Some(9), ..Default::default() }).await;
    schedule(&harness, &default, TaskOptions::default()).await;
    start(&harness, &default, "5").await;
    for reopened in [false, true] {
        if reopened {
            harness.reopen();
        }
        let claimed = harness.claim_in(default.clone(), "d", 1).await;
        let held = HeldRun::new(claimed.first().expect("the run is found behind the others"));
        assert_eq!(held.key(), in_namespace(&default, "5"));
        assert_eq!(harness.claim_in(default.clone(), "d", 1).await, []);
        harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
    }
    let tasks = harness.claim_tasks_in(default.clone(), "d", 1).await;
    assert_eq!(tasks.first().map(|task| &task.id.run), Some(&in_namespace(&default, "r")));
    let crowd = harness.claim_in(other, "o", CROWD + 1).await;
    assert_eq!(crowd.len(), CROWD);
}

fn in_namespace(namespace: &Namespace, id: &str) -> RunKey {
    RunKey { namespace: namespace.clone(), ..key(id) }
}

fn new_run_in(namespace: &Namespace, id: &str) -> NewRun {
    NewRun { key: in_namespace(namespace, id), ..new_run(id) }
}

async fn start(harness: &Harness, namespace: &Namespace, id: &str) {
    assert!(harness.store().start_run(new_run_in(namespace, id), None).await.unwrap().created);
}

/// Starts run `r` and schedules one task of kind `mail`.
async fn schedule(harness: &Harness, namespace: &Namespace, options: TaskOptions) {
    let mut held = harness.start_held_as(new_run_in(namespace, "r")).await;
    harness.commit(&mut held, vec![task(0, options)]).await;
}

async fn claim(harness: &Harness, namespace: &Namespace, by: &str) -> Vec<RunKey> {
    harness.claim_in(namespace.clone(), by, 10).await.into_iter().map(|run| run.head.key).collect()
}

async fn claim_held(harness: &Harness, namespace: &Namespace, by: &str) -> HeldRun {
    let claimed = harness.claim_in(namespace.clone(), by, 10).await;
    assert_eq!(claimed.len(), 1, "one run can be claimed: {claimed:?}");
    HeldRun::new(&claimed[0])
}

async fn claim_tasks(harness: &Harness, namespace: &Namespace, by: &str) -> Vec<RunKey> {
    harness.claim_tasks_in(namespace.clone(), by, 10).await.into_iter().map(|task| task.id.run).collect()
}
