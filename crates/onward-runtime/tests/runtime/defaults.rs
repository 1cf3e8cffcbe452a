//! Defaults of kinds: applied on every way to a task or run, from all sources.

use std::collections::BTreeMap;

use onward_core::api::{DefaultsQuery, DefaultsSource, PutDefaultsRequest, StartTaskRequest};
use onward_core::event::OnParentClose;
use onward_core::task::{RetryPolicy, TaskOptions};
use onward_core::{DEFAULTS_KIND_PREFIX, Event, Index, KindDefaults, KindSchemas, Namespace};
use onward_runtime::{Options, Runtime, RuntimeError};

use crate::faulty::When;
use crate::kit::*;

fn of_tasks(priority: i32) -> KindDefaults {
    KindDefaults { priority: Some(priority), ..KindDefaults::default() }
}

fn of_runs(deadline_ms: u64) -> KindDefaults {
    KindDefaults { deadline_ms: Some(deadline_ms), ..KindDefaults::default() }
}

async fn put(runtime: &Runtime, kind: &str, defaults: KindDefaults) -> Result<Vec<DefaultsSource>, RuntimeError> {
    let request = PutDefaultsRequest { namespace: Namespace::default(), kind: name(kind), defaults };
    Ok(runtime.put_defaults(request).await?.defaults.into_iter().map(|of| of.source).collect())
}

fn registered(is_task: bool, kind: &str, defaults: KindDefaults) -> KindSchemas {
    let row = KindSchemas::empty(Namespace::default(), name(kind), None);
    KindSchemas { is_task, defaults: Some(Box::new(defaults)), ..row }
}

/// Commits one task over the worker's connection and returns its recorded options.
async fn scheduled(
    kit: &Harness,
    worker: &onward_runtime::LocalConnection,
    held: &mut HeldRun,
    options: TaskOptions,
) -> TaskOptions {
    let head = kit.head(held.key.id.as_str()).await;
    let draft = held.draft(Index(head.next_index.0 - 1), vec![task(held.n as u32, options)]);
    worker.commit(draft).await.unwrap();
    held.n += 1;
    let records = kit.runtime.store().read_log(held.key.clone(), None, head.next_index, 1).await.unwrap();
    match &records[0].events[0] {
        Event::TaskScheduled(task) => task.options.clone(),
        other => panic!("{other:?}"),
    }
}

/// KD2: a live default before one of the settings, that before a registered one; KD1: a call's own before all.
#[tokio::test]
async fn a_task_gets_each_option_from_the_first_source_that_has_it() {
    let retry = Some(RetryPolicy::attempts(4));
    let settings = KindDefaults { priority: Some(2), total_timeout_ms: Some(9_000), ..KindDefaults::default() };
    let kit = Harness::with(Options { defaults: BTreeMap::from([(name("mail"), settings)]), ..Options::default() });
    let of_worker = KindDefaults { retry: retry.clone(), total_timeout_ms: Some(1), ..of_tasks(1) };
    kit.runtime.register_kinds(&Namespace::default(), vec![registered(true, "mail", of_worker)]).await.unwrap();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let first = scheduled(&kit, &worker, &mut held, TaskOptions::default()).await;
    assert_eq!((first.priority(), first.total_timeout_ms, &first.retry), (2, Some(9_000), &retry));
    assert_eq!(first.from_kind, ["priority", "retry", "total_timeout_ms"]);
    let sources = put(&kit.runtime, "mail", of_tasks(3)).await.unwrap();
    assert_eq!(sources, [DefaultsSource::Live, DefaultsSource::Settings, DefaultsSource::Registered]);
    let second = scheduled(&kit, &worker, &mut held, TaskOptions::default()).await;
    assert_eq!((second.priority(), second.total_timeout_ms), (3, Some(9_000)));
    let own = scheduled(&kit, &worker, &mut held, TaskOptions { priority: Some(0), ..TaskOptions::default() }).await;
    assert_eq!((own.priority(), own.from_kind.as_slice()), (0, ["retry".to_owned(), "total_timeout_ms".to_owned()].as_slice()));
    put(&kit.runtime, "mail", KindDefaults::default()).await.unwrap();
    let last = scheduled(&kit, &worker, &mut held, TaskOptions::default()).await;
    assert_eq!(last.priority(), 2, "without options the live defaults are removed");
}

/// KD3: standalone tasks, runs of callers, and children.
#[tokio::test]
async fn every_way_to_a_task_or_run_applies_the_defaults() {
    let kit = Harness::new();
    put(&kit.runtime, "mail", of_tasks(5)).await.unwrap();
    let start =
        StartTaskRequest { task: key("t"), kind: name("mail"), input: text("to"), options: TaskOptions::default(), trace: None };
    kit.runtime.start_task(start).await.unwrap();
    assert_eq!(kit.runtime.read_task(&key("t")).await.unwrap().options.priority(), 5);

    put(&kit.runtime, "order", of_runs(60_000)).await.unwrap();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let due_at = Some(kit.head("r").await.created_at.after(seconds(60)));
    assert_eq!(kit.head("r").await.deadline_at, due_at);
    kit.commit(&mut held, vec![child(0, "c", OnParentClose::Cancel)]).await;
    kit.settle().await;
    assert_eq!(kit.head("c").await.deadline_at, due_at, "a child has the deadline of its kind");
    let own = onward_runtime::StartRequest { deadline_ms: Some(5_000), ..start_of("s") };
    kit.runtime.start_run(own).await.unwrap();
    assert_eq!(kit.head("s").await.deadline_at, Some(kit.head("s").await.created_at.after(seconds(5))), "KD1");
}

fn start_of(id: &str) -> onward_runtime::StartRequest {
    crate::kit::start(id)
}

#[tokio::test]
async fn another_server_applies_new_defaults_within_its_poll_interval() {
    let kit = Harness::new();
    let other = kit.other_runtime();
    put(&kit.runtime, "order", of_runs(60_000)).await.unwrap();
    other.start_run(start_of("a")).await.unwrap();
    put(&kit.runtime, "order", of_runs(5_000)).await.unwrap();
    kit.advance(seconds(1));
    other.start_run(start_of("b")).await.unwrap();
    let head = kit.head("b").await;
    assert_eq!(head.deadline_at, Some(head.created_at.after(seconds(5))));
}

/// KD4
#[tokio::test]
async fn a_store_that_cannot_list_kinds_fails_no_commit() {
    let kit = Harness::new();
    put(&kit.runtime, "mail", of_tasks(5)).await.unwrap();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    assert_eq!(scheduled(&kit, &worker, &mut held, TaskOptions::default()).await.priority(), 5);
    kit.advance(seconds(10));
    kit.store.fail_once("list_kinds", When::Before);
    assert_eq!(scheduled(&kit, &worker, &mut held, TaskOptions::default()).await.priority(), 5, "those that were read last");
}

#[tokio::test]
async fn invalid_defaults_change_nothing_and_workers_cannot_write_live_ones() {
    let kit = Harness::new();
    let zero = KindDefaults { attempt_timeout_ms: Some(0), ..KindDefaults::default() };
    refused(put(&kit.runtime, "mail", zero).await, "defaults_invalid");
    let namespace = Namespace::default();
    let mixed = vec![
        registered(true, "mail", of_runs(5)),
        registered(false, "order", KindDefaults { retry: Some(RetryPolicy::attempts(5)), ..of_tasks(5) }),
    ];
    for wrong in mixed {
        refused(kit.runtime.register_kinds(&namespace, vec![wrong]).await, "defaults_invalid");
    }
    let live = registered(false, &format!("{DEFAULTS_KIND_PREFIX}mail"), of_tasks(9));
    refused(kit.runtime.register_kinds(&namespace, vec![live]).await, "kind_reserved");
    let query = DefaultsQuery { namespace: namespace.clone(), kind: None };
    assert_eq!(kit.runtime.list_defaults(&query).await.unwrap().defaults, []);
    put(&kit.runtime, "mail", of_tasks(5)).await.unwrap();
    assert_eq!(kit.runtime.list_kinds(&namespace).await.unwrap(), [], "the rows of defaults are not kinds");
}
