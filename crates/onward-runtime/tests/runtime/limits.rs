//! Rate-limited keys that workers share: one refusal holds back all of them, in all processes, without cost for the waiting
//! tasks.

use std::sync::Arc;

use onward_core::event::{PauseReason, RunPaused, TaskScheduled};
use onward_core::task::{RetryPolicy, Task, TaskOptions, TaskReport};
use onward_core::{Event, Failure, Hash};
use onward_runtime::{Blocker, LocalConnection, Runtime, WorkerProfile};
use tokio::time::Instant;

use crate::kit::*;

/// Returns a worker with these kinds of tasks and their keys.
fn caller(runtime: &Runtime, id: &str, kinds: &[(&str, Option<&str>)]) -> LocalConnection {
    let limits = kinds.iter().filter_map(|(kind, limit)| Some((name(kind), name((*limit)?))));
    let (task_kinds, task_limits) = (kinds.iter().map(|(kind, _)| name(kind)).collect(), limits.collect());
    let (knows, task_kinds, task_limits) = (Arc::default(), Arc::new(task_kinds), Arc::new(task_limits));
    runtime.join_worker(WorkerProfile { knows, task_kinds, task_limits, ..profile(id, 1) })
}

fn call(call_id: u32, kind: &str) -> Event {
    let (input, options) = (text("to"), TaskOptions { retry: Some(RetryPolicy::forever()), ..TaskOptions::default() });
    TaskScheduled { call_id: at(call_id), kind: name(kind), input_hash: Hash::of(&input), input, options }.into()
}

async fn next_task(worker: &LocalConnection) -> Task {
    let mut tasks = worker.next_tasks(1).await;
    tokio::task::yield_now().await;
    tasks.remove(0)
}

/// Returns two processes over one store, a run that the first one holds, and a claimed call of `llm.a`.
async fn begun(kinds: &[(&str, Option<&str>)]) -> (Harness, Runtime, HeldRun, LocalConnection, Task) {
    let kit = Harness::new();
    kit.store.share();
    let other = kit.other_runtime();
    let (worker, caller) = (kit.worker("w"), caller(&kit.runtime, "first", kinds));
    let mut held = kit.start_held(&worker, "r").await;
    kit.commit(&mut held, vec![call(0, "llm.a")]).await;
    let task = next_task(&caller).await;
    (kit, other, held, caller, task)
}

async fn refuse(worker: &LocalConnection, task: &Task, failure: Failure) {
    worker.report_task(task.id.clone(), task.claim, TaskReport::Failed(failure)).await.unwrap();
}

fn paused() -> RunPaused {
    RunPaused::because(PauseReason::Requested, "")
}

fn limited() -> Failure {
    Failure::new("model_rate_limited", "").with_retry_after(seconds(60)).with_limited(seconds(5))
}

/// CL2: calls with the same key wait in every process for exactly as long as the refusal named, without an attempt or a record.
#[tokio::test(start_paused = true)]
async fn a_refusal_holds_back_everything_that_shares_its_limit_in_all_processes() {
    let (kit, other, mut held, first, task) = begun(&[("llm.a", Some("key 1"))]).await;
    let second = caller(&other, "second", &[("llm.b", Some("key 1")), ("llm.c", Some("key 2"))]);
    refuse(&first, &task, limited()).await;
    let refused = Instant::now();
    kit.commit(&mut held, vec![call(1, "llm.b"), call(2, "llm.c")]).await;
    let before = kit.log("r").await.len();
    let free = next_task(&second).await;
    assert_eq!((free.kind.as_str(), refused.elapsed()), ("llm.c", seconds(0)), "another key is another limit");
    second.report_task(free.id, free.claim, TaskReport::Completed(text("done"))).await.unwrap();
    let looks = kit.store.calls("claim_tasks");
    let waited = next_task(&second).await;
    assert_eq!(
        (waited.kind.as_str(), refused.elapsed()),
        ("llm.b", seconds(5)),
        "not for the pause of the call that was refused"
    );
    assert_eq!((waited.attempt, waited.claim), (1, 1));
    assert!(kit.store.calls("claim_tasks") <= looks + 7, "it was looked for once per fallback, and when the limit opened");
    assert_eq!(kit.log("r").await[before..], ["task_attempted", "task_completed", "task_attempted"], "waiting is no record");
}

/// CL3: one call tests whether the provider still refuses.
#[tokio::test(start_paused = true)]
async fn when_a_limit_opens_one_call_goes_first() {
    let (kit, _, mut held, worker, task) = begun(&[("llm.a", Some("key"))]).await;
    refuse(&worker, &task, limited()).await;
    kit.commit(&mut held, (1..=20).map(|call_id| call(call_id, "llm.a")).collect()).await;
    let refused = Instant::now();
    let first = worker.next_tasks(100).await;
    assert_eq!((first.len(), refused.elapsed()), (1, seconds(5)));
    refuse(&worker, &first[0], limited()).await;
    let mut given = Vec::new();
    while given.iter().sum::<usize>() < 19 {
        given.push(worker.next_tasks(100).await.len());
    }
    assert_eq!(given, [1, 2, 4, 8, 4]);
    assert_eq!(refused.elapsed(), seconds(11), "a quarter of a second each");
}

/// Also the call that was refused itself: it does not wait for its own next attempt.
#[tokio::test(start_paused = true)]
async fn a_limit_that_an_operator_reopens_holds_back_no_call() {
    let (kit, other, mut held, worker, task) = begun(&[("llm.a", Some("key"))]).await;
    let second = caller(&other, "second", &[("llm.b", Some("key"))]);
    refuse(&worker, &task, limited()).await;
    kit.commit(&mut held, vec![call(1, "llm.b")]).await;
    let refused = Instant::now();
    assert!(kit.runtime.reopen_rate_limit(&task.id.run.namespace, &name("llm.a")).await.unwrap());
    let (again, waited) = (next_task(&worker).await, next_task(&second).await);
    assert_eq!((again.id, again.attempt), (task.id, 2));
    assert_eq!((waited.kind.as_str(), refused.elapsed()), ("llm.b", seconds(0)));
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_gave_up_closes_the_limit_for_others() {
    let (kit, other, mut held, first, task) = begun(&[("llm.a", Some("key"))]).await;
    let second = caller(&other, "second", &[("llm.b", Some("key"))]);
    refuse(&first, &task, Failure::fatal("an hour is too long").with_limited(seconds(3_600))).await;
    let refused = Instant::now();
    kit.commit(&mut held, vec![call(1, "llm.b")]).await;
    assert_eq!(next_task(&second).await.kind.as_str(), "llm.b");
    assert_eq!(refused.elapsed(), seconds(15 * 60), "the maximum wait"); // CL1
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_refused_for_good_closes_nothing() {
    let (kit, other, mut held, first, task) = begun(&[("llm.a", Some("key"))]).await;
    let second = caller(&other, "second", &[("llm.b", Some("key"))]);
    refuse(&first, &task, Failure::fatal("who are you?").with_code("model_key_refused")).await;
    let refused = Instant::now();
    kit.commit(&mut held, vec![call(1, "llm.b")]).await;
    assert_eq!((next_task(&second).await.kind.as_str(), refused.elapsed()), ("llm.b", seconds(0)), "it asks for itself");
}

/// CL2: workers of earlier versions and of other languages declare no key.
#[tokio::test(start_paused = true)]
async fn workers_without_a_limit_key_are_held_back_by_the_kind() {
    for (limit, refused_for) in
        [(None, Failure { limited_ms: None, ..limited() }.with_retry_after(seconds(5))), (Some("key"), limited())]
    {
        let (kit, other, mut held, first, task) = begun(&[("llm.a", limit)]).await;
        let second = caller(&other, "second", &[("llm.a", None), ("llm.b", None)]);
        refuse(&first, &task, refused_for).await;
        let refused = Instant::now();
        kit.commit(&mut held, vec![call(1, "llm.a"), call(2, "llm.b")]).await;
        assert_eq!((next_task(&second).await.kind.as_str(), refused.elapsed()), ("llm.b", seconds(0)), "{limit:?}");
        assert_eq!((next_task(&second).await.kind.as_str(), refused.elapsed()), ("llm.a", seconds(5)), "{limit:?}");
    }
}

/// Returns what the run is blocked on, with the time until it continues without intervention.
async fn list_blockers(kit: &Harness, runtime: &Runtime) -> Vec<(String, &'static str, Option<u64>)> {
    let now = kit.runtime.clock().now();
    let found = runtime.blocked_on(&key("r")).await.unwrap();
    let line = |blocker: &Blocker| {
        let left = blocker.until.map(|until| until.since(now).as_secs());
        Some((blocker.task.as_ref()?.to_string(), blocker.why.as_str(), left))
    };
    found.iter().filter_map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_a_limit_is_listed_with_the_time_when_it_opens() {
    let (kit, _, mut held, first, task) = begun(&[("llm.a", Some("key")), ("llm.b", Some("key"))]).await;
    assert_eq!(list_blockers(&kit, &kit.runtime).await, [], "it is worked on");
    refuse(&first, &task, limited()).await;
    kit.commit(&mut held, vec![call(1, "llm.b"), call(2, "llm.c")]).await;
    let seen = |what: &str, why, left| (format!("r~0~{what}"), why, left);
    let expected = [seen("0", "retries", Some(60)), seen("1", "rate_limited", Some(5)), seen("2", "no_worker", None)];
    assert_eq!(list_blockers(&kit, &kit.runtime).await, expected);
    let found = kit.runtime.blocked_on(&key("r")).await.unwrap();
    assert_eq!(found[0].failure_code.as_deref(), Some("model_rate_limited"));
    // Another worker has the kind, with another key: it takes the task at once.
    let other = caller(&kit.runtime, "other", &[("llm.b", Some("another key")), ("llm.c", None)]);
    assert_eq!(list_blockers(&kit, &kit.runtime).await, expected[..1]);
    drop(other);
    tokio::time::advance(seconds(5)).await;
    assert_eq!(list_blockers(&kit, &kit.runtime).await, [seen("0", "retries", Some(60)), seen("2", "no_worker", None)]);
    kit.runtime.pause_run(&key("r"), paused()).await.unwrap();
    assert_eq!(list_blockers(&kit, &kit.runtime).await, [], "the pause is the reason");
}
