//! The modifier `memo` of steps: results that runs of flows share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward::prelude::*;
use onward::{MemoKeys, ReplayCheck};
use onward_store::{MemoryStore, SystemClock};
use serde_json::{Value, json};

use crate::flow;

const PAGES: &str = "
flow: pages
inputs:
  url: { type: string }
steps:
  - { name: fetch, task: fetch, with: \"{{ inputs.url }}\", memo: 1h, store: page }
  - { name: keyed, task: fetch, with: other, memo: { for: 1h, key: \"page/{{ inputs.url }}\", scope: namespace }, store: keyed }
  - { name: alone, task: fetch, with: \"{{ inputs.url }}\", memo: { for: 1h, scope: tree }, store: alone }
  - { name: draw, action: random, memo: 1h, store: drawn }
output: [\"{{ state.page }}\", \"{{ state.keyed }}\", \"{{ state.alone }}\", \"{{ state.drawn }}\"]
";

#[tokio::test]
async fn steps_of_other_runs_have_the_recorded_results() {
    let ran = Arc::new(AtomicU32::new(0));
    let counted = ran.clone();
    let fetch = move |_: TaskCtx, _: Value| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(number) }
    };
    let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
    let builder = Onward::with_store(store, Arc::new(SystemClock)).check_replay(ReplayCheck::Every);
    let onward = builder.flow(&flow(PAGES)).task("fetch", fetch).start().await.unwrap();
    let run = async |url: &str| -> Value {
        onward.start::<Value, _>("pages", &json!({ "url": url })).await.unwrap().result().await.unwrap()
    };
    let (first, second, other) = (run("a").await, run("a").await, run("b").await);
    assert_eq!((&first[0], &first[1], &first[2]), (&json!(0), &json!(1), &json!(2)));
    assert_eq!((&second[0], &second[1], &second[2]), (&json!(0), &json!(1), &json!(3)), "another tree computes again");
    assert_eq!((&first[3], &first[3]), (&second[3], &other[3]));
    assert_ne!((&first[0], &first[1]), (&other[0], &other[1]));
    assert_eq!(onward.invalidate_memos(MemoKeys::prefix("page/")).await.unwrap(), 2);
    onward.shutdown().await;
}

#[test]
fn a_memo_belongs_to_calls_that_may_be_repeated() {
    let problems = |step: &str| {
        let text = format!("flow: f\nsteps:\n  - {step}\n");
        let parsed = onward::flow::document::parse(&text, "f.yaml");
        let known = onward::flow::document::Known::default();
        onward::flow::document::check(&parsed, &known).iter().map(|problem| problem.code.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(problems("{ name: a, task: t, memo: 1h }"), [""; 0]);
    assert_eq!(problems("{ name: a, approval: x, memo: 1h }"), ["wrong_field"]);
    assert_eq!(problems("{ name: a, task: t, memo: soon }"), ["invalid_duration"]);
    assert_eq!(problems("{ name: a, task: t, memo: { key: k } }"), ["missing_field"]);
    assert_eq!(problems("{ name: a, task: t, memo: { for: 1h, scope: world } }"), ["wrong_type"]);
    assert_eq!(problems("{ name: a, task: t, memo: { for: 1h, key: \"{{ nowhere }}\" } }"), ["unknown_name"]);
}
