//! Versions of a document, what a start accepts, and a process that dies in the middle of a list.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward::prelude::*;
use onward::{Builder, ReplayCheck, RunHandle, Status};
use onward_store::{MemoryStore, Store, SystemClock};
use serde_json::{Value, json};

use crate::{flow, shell};

const OLD: &str = "
flow: greet
inputs:
  name: { type: string }
  times: { type: integer, default: 1 }
steps:
  - { name: hold, wait: go }
  - { name: greet, task: greet, with: \"old {{ inputs.name }}\", store: text }
output: \"{{ state.text }}\"
";

/// Another document: its first call is another one.
const NEW: &str = "
flow: greet
inputs:
  name: { type: string }
steps:
  - { name: hold, wait: come }
  - { name: greet, task: greet, with: \"new {{ inputs.name }}\", store: text }
output: \"{{ state.text }}\"
";

fn on(store: &Arc<dyn Store>) -> Builder {
    let greet = async |text: String| Ok::<_, Failure>(text);
    Onward::with_store(store.clone(), Arc::new(SystemClock)).check_replay(ReplayCheck::Every).task("greet", greet)
}

fn store() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

/// Starts a run of the old document, and stops its worker while it waits.
async fn begun(store: &Arc<dyn Store>) {
    let first = on(store).flow(&flow(OLD)).start().await.unwrap();
    let run = first.start::<String, _>("greet", &json!({"name": "Ada"})).id("a").await.unwrap();
    run.until(|view| view.head.status == Status::Waiting).await.unwrap();
    assert_eq!(run.view().await.unwrap().head.version.unwrap().as_str(), flow(OLD).version());
    first.shutdown().await;
}

#[tokio::test]
async fn a_run_keeps_the_document_that_it_began_with() {
    let store = store();
    begun(&store).await;
    let second = on(&store).flow(&flow(NEW)).previous_flow(&flow(OLD)).start().await.unwrap();
    let old: RunHandle<String> = second.run("a").unwrap();
    old.signal("go", &()).await.unwrap();
    assert_eq!(old.result().await.unwrap(), "old Ada");
    let new = second.start::<String, _>("greet", &json!({"name": "Bo"})).signal("come", &()).await.unwrap();
    assert_eq!(new.result().await.unwrap(), "new Bo");
    second.shutdown().await;
}

#[tokio::test]
async fn another_document_under_the_same_version_diverges_with_a_report() {
    let store = store();
    begun(&store).await;
    let version = flow(OLD).version();
    let second = on(&store).foreign("greet", false, shell(NEW)).version(&version).start().await.unwrap();
    let run: RunHandle<String> = second.run("a").unwrap();
    run.signal("go", &()).await.unwrap();
    let view = run.until(|view| view.head.status == Status::Paused).await.unwrap();
    let pause = view.pause.unwrap();
    assert!(pause.message.contains("`go`") && pause.message.contains("`come`"), "{}", pause.message);
    second.shutdown().await;
}

#[tokio::test]
async fn a_start_with_an_input_that_does_not_fit_is_refused() {
    let onward = on(&store()).flow(&flow(OLD)).start().await.unwrap();
    for wrong in [json!({}), json!({"name": 1}), json!({"name": "a", "unknown": 1}), json!([])] {
        let refused = onward.start::<Value, _>("greet", &wrong).await.map(drop).unwrap_err();
        assert_eq!(refused.code(), "input_invalid", "{wrong}");
    }
    onward.shutdown().await;
}

#[tokio::test]
async fn a_document_with_errors_is_reported_at_the_start() {
    let text = "flow: wrong\nsteps:\n  - { name: a, task: t, next: [{ goto: nowhere }] }\n";
    let error = Onward::in_memory().flow_text(text).start().await.map(drop).unwrap_err();
    assert_eq!(error.code(), "register_invalid");
    assert!(error.to_string().contains("nowhere"), "{error}");
    let hosts = Onward::in_memory().flow_http(["*"]).start().await.map(drop).unwrap_err();
    assert_eq!(hosts.code(), "register_invalid");
}

/// Scenario 47: the process dies while it works on the third of four items.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_each_continues_at_the_item_at_which_its_process_died() {
    let text = "
flow: items
steps:
  - name: work
    each: { in: [1, 2, 3, 4], as: n }
    task: double
    with: \"{{ n }}\"
    store: all
output: \"{{ state.all }}\"
";
    let directory = tempfile::tempdir().unwrap();
    let begun: Arc<Mutex<BTreeMap<u64, u32>>> = Arc::default();
    let (reached, mut at_three) = tokio::sync::mpsc::unbounded_channel();
    let builder = |hangs: bool| {
        let (begun, reached) = (begun.clone(), reached.clone());
        let double = move |n: u64| {
            let (begun, reached) = (begun.clone(), reached.clone());
            async move {
                *begun.lock().unwrap().entry(n).or_default() += 1;
                if hangs && n == 3 {
                    reached.send(()).unwrap();
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>(n * 2)
            }
        };
        Onward::embedded(directory.path()).check_replay(ReplayCheck::Every).flow(&flow(text)).task("double", double)
    };
    let first = builder(true).start().await.unwrap();
    first.start::<Vec<u64>, _>("items", &json!({})).id("a").await.unwrap();
    at_three.recv().await.unwrap();
    first.shutdown_within(Duration::ZERO).await;
    let second = loop {
        // The directory is free once the first one has ended.
        match builder(false).start().await {
            Ok(second) => break second,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    let run: RunHandle<Vec<u64>> = second.run("a").unwrap();
    assert_eq!(run.result().await.unwrap(), [2, 4, 6, 8]);
    assert_eq!(*begun.lock().unwrap(), BTreeMap::from([(1, 1), (2, 1), (3, 2), (4, 1)]));
    let state = run.view().await.unwrap().state;
    assert!(format!("{state:?}").contains("flow/work"), "{state:?}");
    second.shutdown().await;
}

const FLAKY: &str = "
flow: flaky
steps:
  - { name: one, task: count, with: one, store: one }
  - { name: two, task: flaky, store: two }
output: \"{{ state.one ~ state.two }}\"
";

/// Z1: the progress of a failed step does not come after its failure.
#[tokio::test]
async fn a_failed_run_is_retried_from_the_call_that_failed() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (counted, tried) = (calls.clone(), calls.clone());
    let onward = Onward::in_memory()
        .check_replay(ReplayCheck::Every)
        .flow(&flow(FLAKY))
        .task("count", move |_: Value| {
            counted.lock().unwrap().push("count");
            async { Ok::<_, Failure>(1) }
        })
        .task("flaky", move |_: Value| {
            let mut calls = tried.lock().unwrap();
            calls.push("flaky");
            let first = calls.len() == 2;
            async move { if first { Err(Failure::fatal("no stock").with_code("no_stock")) } else { Ok(2) } }
        })
        .start()
        .await
        .unwrap();
    let run = onward.start::<String, _>("flaky", &json!({})).id("f").await.unwrap();
    let failure = run.result().await.unwrap_err();
    assert_eq!(failure.failure().unwrap().code, "no_stock");
    run.retry("again").await.unwrap();
    assert_eq!(run.result().await.unwrap(), "12");
    assert_eq!(*calls.lock().unwrap(), ["count", "flaky", "flaky"]);
}
