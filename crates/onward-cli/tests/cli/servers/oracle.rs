//! Compares the database with executions and acknowledgements after the faults, when all work is done.
//!
//! - O1: every acknowledged run exists and completed with its predictable result, and there are no other runs.
//! - O2: each step and task has one result, and was executed.
//! - O3: of two steps between which the code chose by a mailbox poll, only one was ever executed.
//! - O4: all executions of one call have the same idempotency key, which no other call has.
//! - O5: each timer fired once, and none early by the clock of the database.
//! - O6: each acknowledged signal was received once and consumed once.
//! - O7: logs have no gap, and their times are of the clock of the database.
//! - O8: no timer, task, approval, outbox message or lease is left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use onward_core::{Event, Index, Log, Record, RunHead, Status, Timestamp};
use onward_store::conformance::block_on;
use onward_store::{RunQuery, Store};
use onward_store_postgres::{Options, PostgresStore};
use onward_testkit::Cluster;

use super::callers::{Acknowledged, ITEMS, PARTS};

/// A log by its run and generation.
type LogKey = (String, u32);

pub struct Oracle {
    heads: Vec<RunHead>,
    logs: BTreeMap<LogKey, Vec<Record>>,
    /// Idempotency keys of the executions of each call.
    deeds: BTreeMap<(LogKey, String), BTreeSet<String>>,
}

impl Oracle {
    /// Reads the database directly.
    pub fn read(cluster: &Cluster, side: &Path) -> Oracle {
        let store = block_on(PostgresStore::connect(&cluster.url("postgres"), Options::default())).unwrap();
        let (mut heads, mut logs, mut cursor) = (Vec::new(), BTreeMap::new(), None);
        loop {
            let page = block_on(store.list_runs(RunQuery { limit: 500, cursor: cursor.take(), ..RunQuery::default() })).unwrap();
            heads.extend(page.runs);
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        for head in &heads {
            for generation in 0..=head.generation {
                let log = block_on(store.read_log(head.key.clone(), Some(generation), Index(0), usize::MAX)).unwrap();
                logs.insert((head.key.id.to_string(), generation), log);
            }
        }
        let text = std::fs::read_to_string(side).unwrap_or_default();
        let mut deeds: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let ["did", run, generation, name, _, key] = words[..] else { panic!("not a deed: {line}") };
            let call = ((run.to_owned(), generation.parse().unwrap()), name.to_owned());
            deeds.entry(call).or_default().insert(key.to_owned());
        }
        Oracle { heads, logs, deeds }
    }

    pub fn check(&self, acknowledged: &Acknowledged, times: std::ops::Range<Timestamp>) {
        self.check_ends(acknowledged);
        for (key, log) in &self.logs {
            check_log(key, log, &times);
            self.check_results(key, log);
            check_timers(key, log);
        }
        self.check_looks(acknowledged);
        self.check_keys();
        self.check_signals(acknowledged);
    }

    /// O1
    fn check_ends(&self, acknowledged: &Acknowledged) {
        let mut expected: BTreeMap<String, u64> = acknowledged.loads.iter().map(|n| (format!("load-{n}"), n * PARTS)).collect();
        let gathered = (0..ITEMS).sum::<u64>() + 1;
        expected.extend(acknowledged.gathers.iter().map(|n| (format!("gather-{n}"), gathered)));
        assert_eq!(
            self.heads.len(),
            expected.len() + acknowledged.loads.len(),
            "O1: each load has one child, and there are no others"
        );
        for head in &self.heads {
            let id = head.key.id.to_string();
            let parent = head.parent.as_ref().map(|link| link.run.id.to_string());
            let result = match &parent {
                Some(parent) => expected[parent] / PARTS,
                None => *expected.get(&id).unwrap_or_else(|| panic!("O1: {id} was not acknowledged")),
            };
            assert_eq!((head.status, head.generation), (Status::Completed, u32::from(parent.is_some())), "O1: {id}");
            let last = self.events(&(id.clone(), head.generation)).last();
            let Some(Event::RunCompleted(end)) = last else { panic!("O1: {id} has no end") };
            assert_eq!(end.output.read::<u64>().unwrap(), result, "O1: {id}");
        }
    }

    /// O2
    fn check_results(&self, key: &LogKey, log: &[Record]) {
        let (mut steps, mut tasks) = (BTreeSet::new(), BTreeSet::new());
        for event in log.iter().flat_map(|record| &record.events) {
            match event {
                Event::StepCompleted(event) => {
                    assert!(steps.insert(event.call_id.clone()), "O2: {key:?} has two results of {}", event.name);
                    let call = (key.clone(), event.name.to_string());
                    assert!(self.deeds.contains_key(&call), "O2: {key:?} has a result of {} without an execution", event.name);
                }
                Event::TaskCompleted(event) => {
                    assert!(tasks.insert(event.call_id.clone()), "O2: {key:?} has two results of a task");
                    assert!(
                        self.deeds.contains_key(&(key.clone(), "task".to_owned())),
                        "O2: {key:?} has a task without an execution"
                    );
                }
                _ => {}
            }
        }
    }

    /// O3
    fn check_looks(&self, acknowledged: &Acknowledged) {
        for n in &acknowledged.loads {
            let did = |name: &str| self.deeds.contains_key(&((format!("load-{n}"), 0), name.to_owned()));
            assert!(did("saw") != did("missed"), "O3: load-{n} saw: {}, missed: {}", did("saw"), did("missed"));
        }
    }

    /// O4
    fn check_keys(&self) {
        let mut owners = BTreeMap::new();
        for (call, keys) in &self.deeds {
            assert_eq!(keys.len(), 1, "O4: {call:?} was done under {keys:?}");
            let before = owners.insert(keys.first(), call);
            assert!(before.is_none(), "O4: {call:?} and {before:?} have one key");
        }
    }

    /// O6
    fn check_signals(&self, acknowledged: &Acknowledged) {
        for (run, id) in &acknowledged.signals {
            let key = (run.clone(), 0);
            let is_it = |event: &&Event| matches!(event, Event::SignalReceived(event) if event.signal_id.as_ref() == Some(id));
            assert_eq!(self.events(&key).filter(is_it).count(), 1, "O6: signal {id} of {run}");
        }
        for key in self.logs.keys() {
            let count = |name: &str| self.events(key).filter(|event| event.name() == name).count();
            assert_eq!(count("signal_received"), count("signal_consumed"), "O6: {key:?}");
        }
    }

    fn events(&self, key: &LogKey) -> impl Iterator<Item = &Event> {
        self.logs.get(key).into_iter().flatten().flat_map(|record| &record.events)
    }
}

/// O7
fn check_log(key: &LogKey, log: &[Record], times: &std::ops::Range<Timestamp>) {
    let mut next = Index(0);
    let mut last = times.start;
    for record in log {
        assert_eq!(record.index, next, "O7: {key:?}");
        assert!((last..times.end).contains(&record.at), "O7: {key:?} has {:?} at {next:?}, after {last:?}", record.at);
        (next, last) = (record.next_index(), record.at);
    }
    Log::load(log.to_vec()).unwrap_or_else(|error| panic!("O7: {key:?}: {error}"));
}

/// O5
fn check_timers(key: &LogKey, log: &[Record]) {
    let mut due = BTreeMap::new();
    for record in log {
        for event in &record.events {
            match event {
                Event::TimerStarted(event) => drop(due.insert(event.call_id.clone(), event.due_at)),
                Event::StepFailed(event) => due.extend(event.retry_at.map(|at| (event.call_id.clone(), at))),
                Event::TimerFired(event) => {
                    let due_at =
                        due.remove(&event.call_id).unwrap_or_else(|| panic!("O5: {key:?} fired {} twice", event.call_id));
                    assert!(record.at >= due_at, "O5: {key:?} fired {} at {:?}, due at {due_at:?}", event.call_id, record.at);
                }
                _ => {}
            }
        }
    }
    assert!(due.is_empty(), "O5: {key:?} never fired {due:?}");
}

/// Lists unfinished work for debugging.
pub fn what_is_left(cluster: &Cluster) -> String {
    let query = |sql: &str| format!("{sql}\n{}\n", cluster.psql("postgres", sql).unwrap_or_else(|error| error.to_string()));
    [
        "SELECT id, status, worker, ready, generation, next FROM onward.runs WHERE status < 4 OR worker IS NOT NULL",
        "SELECT *, until - extract(epoch FROM clock_timestamp()) * 1000 FROM onward.sessions",
        "SELECT rk, call_id, due - extract(epoch FROM clock_timestamp()) * 1000, frozen FROM onward.timers",
        "SELECT rk, call_id, state, visible - extract(epoch FROM clock_timestamp()) * 1000 FROM onward.tasks",
        "SELECT ns, id, kind FROM onward.waits",
        "SELECT id, rk FROM onward.outbox",
        "SELECT id, url, until - extract(epoch FROM clock_timestamp()) * 1000 FROM onward.servers",
        "SELECT pid, state, wait_event, query FROM pg_stat_activity WHERE backend_type = 'client backend'",
    ]
    .map(query)
    .concat()
}

/// O8
pub fn check_nothing_is_left(cluster: &Cluster) {
    let count = |what: &str| cluster.psql("postgres", &format!("SELECT count(*) FROM onward.{what}")).unwrap();
    for what in ["timers", "tasks", "waits", "outbox", "runs WHERE worker IS NOT NULL OR ready IS NOT NULL"] {
        assert_eq!(count(what), "0", "O8: {what}");
    }
}
