//! Invariants that hold for every run at every moment.

use std::collections::BTreeSet;

use onward_core::projection::Projection;
use onward_core::run::Wait;
use onward_core::task::Task;
use onward_core::{CallId, Event, Index, Log, RunHead};

use super::harness::{Harness, namespaces};
use super::random::World;
use crate::{RunQuery, Store, TaskQuery, WaitQuery};

/// Checks L1, L3, L8, L10, L13 and L16 of every run.
pub async fn check_invariants(harness: &Harness, world: &mut World) {
    let store = harness.store();
    let mut runs = Vec::new();
    for namespace in namespaces() {
        runs.extend(store.list_runs(RunQuery { namespace, limit: 1_000, ..Default::default() }).await.unwrap().runs);
    }
    world.keep_counts_of(&runs);
    for head in runs {
        let log = harness.check_run(&head.key).await;
        check_open(&*store, &head, &log).await;
        check_once(&log);
        let mut signals = count_signals(&log);
        for generation in 0..=head.generation {
            let records = store.read_log(head.key.clone(), Some(generation), Index(0), usize::MAX).await.unwrap();
            let old = Log::load(records).expect("L1");
            let commits = old.records().iter().filter(|record| record.commit.is_some()).count() as u64;
            let known = world.commits_taken(&head.key, generation);
            assert_eq!(commits, known, "L3: commits of {} in generation {generation}", head.key);
            if generation != head.generation {
                signals += count_signals(&old);
            }
        }
        let known = world.signals_taken(&head.key);
        assert_eq!(signals, known, "L13: signals of {}", head.key);
    }
}

/// Counts the signals that the test sent; signals between runs go through the outbox and are not counted.
fn count_signals(log: &Log) -> usize {
    log.events().filter(|(_, event)| matches!(event, Event::SignalReceived(signal) if signal.sender.is_none())).count()
}

/// Checks that the open waits and tasks are those that the log leaves open (J1).
async fn check_open(store: &dyn Store, head: &RunHead, log: &Log) {
    let projection = Projection::of(head.key.clone(), log.records()).expect("H2");
    let (namespace, run) = (head.key.namespace.clone(), Some(head.key.clone()));
    let query = WaitQuery { namespace: namespace.clone(), run: run.clone(), limit: 1_000, ..Default::default() };
    let mut listed = store.list_waits(query).await.unwrap();
    listed.sort_by(|a, b| a.call_id.cmp(&b.call_id));
    assert_eq!(listed, projection.waits.into_values().collect::<Vec<Wait>>(), "L16: open waits of {}", head.key);
    let query = TaskQuery { namespace, run, limit: 1_000, ..Default::default() };
    let listed = store.list_tasks(query).await.unwrap();
    let summary = |task: &Task| (task.id.clone(), task.kind.clone(), task.options.clone(), task.scheduled_at);
    let mut listed: Vec<_> = listed.iter().map(summary).collect();
    listed.sort_by(|a, b| a.0.call_id.cmp(&b.0.call_id));
    let known: Vec<_> = projection.tasks.values().map(summary).collect();
    assert_eq!(listed, known, "L16: open tasks of {}", head.key);
}

/// Checks that each call has at most one answer (L8, L10, L12, L19).
fn check_once(log: &Log) {
    let mut answered: BTreeSet<(&str, &CallId)> = BTreeSet::new();
    for (_, event) in log.events() {
        let answer = match event {
            Event::TaskCompleted(event) => ("task", &event.call_id),
            Event::TaskFailed(event) => ("task", &event.call_id),
            Event::TimerFired(event) => ("timer", &event.call_id),
            Event::ApprovalDecided(event) => ("approval", &event.call_id),
            Event::ChildCompleted(event) => ("child", &event.call_id),
            Event::ChildFailed(event) => ("child", &event.call_id),
            _ => continue,
        };
        assert!(answered.insert(answer), "{answer:?} was answered twice");
    }
}
