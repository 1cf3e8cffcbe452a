//! S6: a worker belongs to one namespace and never gets what has the same name in another.

use onward_core::run::NewRun;
use onward_core::task::{RetryPolicy, TaskOptions, TaskReport};
use onward_core::{Failure, Namespace, RunKey, Status};

use super::kit::{HeldRun, Kit, key, namespaces, new_run, seconds, settled, signal, task, worker};
use crate::SESSION_DEFAULT;

/// More than any store caches of one queue.
const CROWD: usize = 10_000;

pub async fn a_worker_gets_only_runs_of_its_namespace(mut kit: Kit) {
    let [default, other] = namespaces();
    start(&kit, &default, "r").await;
    assert_eq!(claim(&kit, &other, "o").await, []);
    start(&kit, &other, "r").await;
    assert_eq!(claim(&kit, &other, "o").await, [in_namespace(&other, "r")]);
    assert_eq!(claim(&kit, &other, "o").await, []);
    kit.reopen();
    // Leases may be lost by then; the namespace boundary holds.
    let again = claim(&kit, &other, "o").await;
    assert!(again.iter().all(|key| key.namespace == other), "{again:?}");
    assert_eq!(claim(&kit, &default, "d").await, [in_namespace(&default, "r")]);
    assert_eq!(kit.claim_in(Namespace::new("third").unwrap(), "t", 10).await, []);
}

pub async fn a_worker_gets_only_tasks_of_its_namespace(mut kit: Kit) {
    let [default, other] = namespaces();
    schedule(&kit, &default, TaskOptions::default()).await;
    assert_eq!(claim_tasks(&kit, &other, "o").await, []);
    kit.reopen();
    assert_eq!(claim_tasks(&kit, &other, "o").await, []);
    schedule(&kit, &other, TaskOptions::default()).await;
    assert_eq!(claim_tasks(&kit, &other, "o").await, [in_namespace(&other, "r")]);
    assert_eq!(claim_tasks(&kit, &other, "o").await, []);
    assert_eq!(claim_tasks(&kit, &default, "d").await, [in_namespace(&default, "r")]);
}

pub async fn a_run_that_was_lost_goes_to_a_worker_of_its_namespace(kit: Kit) {
    let [default, other] = namespaces();
    start(&kit, &default, "r").await;
    start(&kit, &other, "r").await;
    let lost = claim_held(&kit, &default, "d").await;
    let mut kept = claim_held(&kit, &other, "o").await;
    kit.pass(SESSION_DEFAULT / 2);
    kit.store().heartbeat(worker("o"), SESSION_DEFAULT).await.unwrap();
    kit.pass(SESSION_DEFAULT / 2);
    assert_eq!(kit.expire().await.workers_lost, 1);
    assert_eq!(claim(&kit, &other, "o").await, []);
    let regained = claim_held(&kit, &default, "e").await;
    assert!(regained.head.epoch > lost.head.epoch);
    kit.commit(&mut kept, vec![settled()]).await;
}

pub async fn a_task_that_was_lost_goes_to_a_worker_of_its_namespace(mut kit: Kit) {
    let [default, other] = namespaces();
    let options = || TaskOptions { retry: RetryPolicy::attempts(3).delay(seconds(10)), ..Default::default() };
    schedule(&kit, &default, options()).await;
    let lost = kit.claim_tasks_in(default.clone(), "d", 10).await;
    assert_eq!(lost.len(), 1);
    kit.pass(seconds(30));
    assert_eq!(kit.expire().await.tasks_expired, 1);
    kit.pass(seconds(10));
    assert_eq!(claim_tasks(&kit, &other, "o").await, []);
    let again = kit.claim_tasks_in(default.clone(), "e", 10).await.remove(0);

    let failed = TaskReport::Failed(Failure::retryable("busy"));
    kit.store().report_task(again.id, again.claim, failed, seconds(30)).await.unwrap();
    kit.reopen();
    kit.pass(seconds(20));
    assert_eq!(claim_tasks(&kit, &other, "o").await, []);
    assert_eq!(claim_tasks(&kit, &default, "d").await, [in_namespace(&default, "r")]);
}

pub async fn the_same_signal_wakes_only_the_run_it_was_sent_to(kit: Kit) {
    let [default, other] = namespaces();
    for namespace in [&default, &other] {
        start(&kit, namespace, "r").await;
        let mut held = claim_held(&kit, namespace, namespace.as_str()).await;
        kit.commit(&mut held, vec![settled()]).await;
        kit.store().release_run(held.key(), held.head.epoch).await.unwrap();
    }
    let store = kit.store();
    let send = |namespace: &Namespace| store.append_input(in_namespace(namespace, "r"), signal(Some("once")));
    assert!(send(&other).await.unwrap().woke);
    assert_eq!(kit.head_of(&in_namespace(&default, "r")).await.status, Status::Waiting);
    assert_eq!(claim(&kit, &default, "d").await, []);
    assert_eq!(claim(&kit, &other, "o").await, [in_namespace(&other, "r")]);
    assert!(!send(&default).await.unwrap().repeated);
    assert_eq!(claim(&kit, &default, "d").await, [in_namespace(&default, "r")]);
}

/// A worker gets the next run of its namespace, however many older ones with the same names wait in another.
pub async fn what_waits_in_another_namespace_hides_nothing(mut kit: Kit) {
    let [default, other] = namespaces();
    let store = kit.store();
    // All are submitted before the first is awaited.
    let starts: Vec<_> = (0..CROWD).map(|number| store.start_run(new_run_in(&other, &number.to_string()), None)).collect();
    for start in starts {
        start.await.unwrap();
    }
    drop(store);
    schedule(&kit, &other, TaskOptions { priority: 9, ..Default::default() }).await;
    schedule(&kit, &default, TaskOptions::default()).await;
    start(&kit, &default, "5").await;
    for reopened in [false, true] {
        if reopened {
            kit.reopen();
        }
        let claimed = kit.claim_in(default.clone(), "d", 1).await;
        let held = HeldRun::new(claimed.first().expect("the run is found behind the others"));
        assert_eq!(held.key(), in_namespace(&default, "5"));
        assert_eq!(kit.claim_in(default.clone(), "d", 1).await, []);
        kit.store().release_run(held.key(), held.head.epoch).await.unwrap();
    }
    let tasks = kit.claim_tasks_in(default.clone(), "d", 1).await;
    assert_eq!(tasks.first().map(|task| &task.id.run), Some(&in_namespace(&default, "r")));
    let crowd = kit.claim_in(other, "o", CROWD + 1).await;
    assert_eq!(crowd.len(), CROWD);
}

fn in_namespace(namespace: &Namespace, id: &str) -> RunKey {
    RunKey { namespace: namespace.clone(), ..key(id) }
}

fn new_run_in(namespace: &Namespace, id: &str) -> NewRun {
    NewRun { key: in_namespace(namespace, id), ..new_run(id) }
}

async fn start(kit: &Kit, namespace: &Namespace, id: &str) {
    assert!(kit.store().start_run(new_run_in(namespace, id), None).await.unwrap().created);
}

/// Starts run `r` and schedules one task of kind `mail`.
async fn schedule(kit: &Kit, namespace: &Namespace, options: TaskOptions) {
    let mut held = kit.start_held_as(new_run_in(namespace, "r")).await;
    kit.commit(&mut held, vec![task(0, options)]).await;
}

async fn claim(kit: &Kit, namespace: &Namespace, by: &str) -> Vec<RunKey> {
    kit.claim_in(namespace.clone(), by, 10).await.into_iter().map(|run| run.head.key).collect()
}

async fn claim_held(kit: &Kit, namespace: &Namespace, by: &str) -> HeldRun {
    let claimed = kit.claim_in(namespace.clone(), by, 10).await;
    assert_eq!(claimed.len(), 1, "one run can be claimed: {claimed:?}");
    HeldRun::new(&claimed[0])
}

async fn claim_tasks(kit: &Kit, namespace: &Namespace, by: &str) -> Vec<RunKey> {
    kit.claim_tasks_in(namespace.clone(), by, 10).await.into_iter().map(|task| task.id.run).collect()
}
