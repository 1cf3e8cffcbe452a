//! S6, W3: a worker belongs to one namespace and receives runs, tasks, queries and notifications of no other.

use onward_core::task::TaskOptions;
use onward_core::{Namespace, RunKey};
use onward_runtime::{BlockReason, LocalConnection, Runtime, RuntimeError, StartRequest, WorkerProfile};

use crate::kit::*;

fn other() -> Namespace {
    Namespace::new("other").unwrap()
}

fn elsewhere(id: &str) -> RunKey {
    RunKey { namespace: other(), ..key(id) }
}

fn start_elsewhere(id: &str) -> StartRequest {
    StartRequest { run: elsewhere(id), ..start(id) }
}

fn join(runtime: &Runtime, id: &str, namespace: Namespace) -> LocalConnection {
    runtime.join_worker(WorkerProfile { namespace, ..profile(id, 100) })
}

#[tokio::test(start_paused = true)]
async fn a_started_run_is_handed_to_a_worker_of_its_namespace() {
    let kit = Harness::new();
    let (ours, theirs) = (kit.worker("w"), join(&kit.runtime, "v", other()));
    for id in ["r", "s", "t"] {
        // However busy the one is and however idle the other.
        kit.runtime.start_run(start_elsewhere(id)).await.unwrap();
        let runs = tokio::time::timeout(seconds(10), theirs.next_runs(1)).await.expect("it is theirs");
        assert_eq!(runs[0].head.key, elsewhere(id));
    }
    assert!(waits(ours.next_runs(8)).await);
    kit.start("r").await;
    assert_eq!(ours.next_runs(8).await[0].head.key, key("r"));
    assert!(waits(theirs.next_runs(8)).await);
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_looks_for_is_of_its_namespace() {
    let kit = Harness::new();
    kit.start("r").await;
    kit.runtime.start_run(start_elsewhere("r")).await.unwrap();
    let theirs = join(&kit.runtime, "v", other());
    let runs = theirs.next_runs(8).await;
    assert_eq!((runs.len(), &runs[0].head.key), (1, &elsewhere("r")));
    assert!(waits(theirs.next_runs(8)).await);
}

#[tokio::test(start_paused = true)]
async fn a_task_goes_to_a_worker_of_its_namespace_and_no_other_is_woken_for_it() {
    let kit = Harness::new();
    let (ours, theirs) = (kit.worker("w"), join(&kit.runtime, "v", other()));
    assert!(waits(theirs.next_tasks(8)).await);
    let mut held = kit.start_held(&ours, "r").await;
    let claims = kit.store.calls("claim_tasks");
    let waiting = tokio::spawn(async move { theirs.next_tasks(8).await });
    kit.commit(&mut held, vec![task(0, TaskOptions::default())]).await;
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!(kit.store.calls("claim_tasks"), claims, "no worker was notified");
    assert_eq!(ours.next_tasks(8).await[0].id.run, key("r"));
    assert!(!waiting.is_finished());
    waiting.abort();
}

#[tokio::test(start_paused = true)]
async fn a_worker_of_another_namespace_is_no_compatible_worker() {
    let kit = Harness::new();
    let theirs = join(&kit.runtime, "v", other());
    let head = kit.start("r").await;
    assert_eq!(kit.runtime.pending_reason(&head).await, Some(BlockReason::NoWorker));
    let answer = kit.runtime.query_run(&key("r"), name("sum"), text("")).await;
    assert!(matches!(answer, Err(RuntimeError::NoCompatibleWorker { .. })), "{answer:?}");
    assert!(waits(theirs.next_questions()).await);
}
