//! Compares what is on disk with what was executed and what was acknowledged.
//!
//! After each process:
//! - J1: every log is a continuation of its earlier state: no record is lost or changed.
//! - J2: nothing was executed whose result was in a log when the process started.
//! - J3: one process executes nothing twice.
//! - J4: every acknowledged write is recorded.
//!
//! At the end:
//! - J5: every run and every child is completed with its predictable result.
//! - J6: each step has exactly one result and was executed at least once.
//! - J7: of two steps between which the code chose by a mailbox poll, only one was ever executed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use onward_core::run::RunHead;
use onward_core::{Event, Index, Log, Record, RunKey, Status};
use onward_store::conformance::block_on;
use onward_store::{RunQuery, Store};
use onward_store_embedded::EmbeddedStore;

/// Number of parts of a load; each returns the run's number.
const PARTS: u64 = 13;

/// Names of the steps of a load, besides `saw` or `missed`.
const STEPS: [&str; 6] = ["first", "left", "right", "flaky", "large", "last"];

/// One log of one run: its id and generation.
type LogKey = (String, u32);

/// An execution: log, name and attempt.
type Deed = (LogKey, String, u32);

#[derive(Default)]
struct Snapshot {
    heads: Vec<RunHead>,
    logs: BTreeMap<LogKey, Vec<Record>>,
}

pub struct Judge {
    data: PathBuf,
    side: PathBuf,
    /// The state after the previous process.
    before: Snapshot,
    /// Number of lines of the side file that were checked.
    lines_seen: usize,
}

impl Judge {
    pub fn new(data: PathBuf, side: PathBuf) -> Judge {
        Judge { data, side, before: Snapshot::default(), lines_seen: 0 }
    }

    /// Checks the state after one process. A process that was killed early may have left no directory.
    pub fn look(&mut self, killed: bool) {
        let lines = self.lines();
        let Some(now) = Snapshot::read(&self.data) else {
            assert!(killed && lines.is_empty(), "there is no directory, but there are executions: {lines:?}");
            return;
        };
        self.check_growth(&now);
        let deeds: Vec<Deed> = lines[self.lines_seen..].iter().filter_map(|line| deed(line)).collect();
        self.check_deeds(&deeds);
        lines.iter().for_each(|line| check_acknowledged(line, &now));
        self.lines_seen = lines.len();
        self.before = now;
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.side).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn check_growth(&self, now: &Snapshot) {
        for (key, before) in &self.before.logs {
            let after = now.logs.get(key).unwrap_or_else(|| panic!("J1: the log of {key:?} is lost"));
            assert!(after.starts_with(before), "J1: the log of {key:?} has changed");
        }
    }

    fn check_deeds(&self, deeds: &[Deed]) {
        let recorded = recorded(&self.before);
        let mut done = BTreeSet::new();
        for deed in deeds {
            let (log, name, attempt) = deed;
            let known = recorded.get(&(log.clone(), name.clone())).copied().unwrap_or(0);
            assert!(*attempt > known, "J2: {deed:?} was executed although attempt {known} was recorded");
            assert!(done.insert(deed), "J3: {deed:?} was executed twice by one process");
        }
    }

    /// Checks the completed work.
    pub fn finish(&self, runs: u64) {
        let deeds: BTreeSet<Deed> = self.lines().iter().filter_map(|line| deed(line)).collect();
        let done: BTreeSet<(LogKey, String)> = deeds.into_iter().map(|(log, name, _)| (log, name)).collect();
        assert_eq!(self.before.heads.len() as u64, 2 * runs, "J5: each run has one child");
        for n in 1..=runs {
            let id = format!("load-{n}");
            self.check_end(&id, 0, n * PARTS);
            let child = self.child_of(&id);
            self.check_end(&child, 1, n);
            let looks = ["saw", "missed"].map(|name| done.contains(&((id.clone(), 0), name.to_owned())));
            assert!(looks[0] != looks[1], "J7: {id} saw and missed: {looks:?}");
            let look = if looks[0] { "saw" } else { "missed" };
            let mut expected: BTreeSet<&str> = STEPS.into_iter().chain([look]).collect();
            assert_eq!(self.steps(&id, 0), expected, "J6: {id}");
            expected.insert("task");
            for name in expected {
                assert!(
                    done.contains(&((id.clone(), 0), name.to_owned())),
                    "J6: {id} has a result of {name} without an execution"
                );
            }
            assert_eq!((self.steps(&child, 0), self.steps(&child, 1)), (["child"].into(), ["child"].into()), "J6: {child}");
        }
    }

    fn child_of(&self, id: &str) -> String {
        let head = self.before.heads.iter().find(|head| head.parent.as_ref().is_some_and(|parent| parent.run.id.as_str() == id));
        head.unwrap_or_else(|| panic!("J5: {id} has no child")).key.id.to_string()
    }

    fn check_end(&self, id: &str, generation: u32, expected: u64) {
        let head = self.before.heads.iter().find(|head| head.key.id.as_str() == id).unwrap_or_else(|| panic!("J5: no {id}"));
        assert_eq!((head.status, head.generation), (Status::Completed, generation), "J5: {id}");
        let Some(Event::RunCompleted(end)) = self.before.events(id, generation).last() else { panic!("J5: {id} has no end") };
        assert_eq!(end.output.read::<u64>().unwrap(), expected, "J5: {id}");
    }

    /// Returns the names of steps with a result. Panics if one has two.
    fn steps(&self, id: &str, generation: u32) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        for event in self.before.events(id, generation) {
            if let Event::StepCompleted(event) = event {
                assert!(names.insert(event.name.as_str()), "J6: {id} has two results of {}", event.name);
            }
        }
        names
    }
}

impl Snapshot {
    /// Reads the whole directory; `None` if it does not exist yet.
    fn read(data: &std::path::Path) -> Option<Snapshot> {
        let store: Arc<dyn Store> = match EmbeddedStore::open_read_only(data) {
            Ok(store) => Arc::new(store),
            Err(error) if error.code() == "directory_foreign" => return None,
            Err(error) => panic!("{error}"),
        };
        let heads = block_on(store.list_runs(RunQuery { limit: 10_000, ..RunQuery::default() })).unwrap().runs;
        let mut logs = BTreeMap::new();
        for head in &heads {
            for generation in 0..=head.generation {
                logs.insert((head.key.id.to_string(), generation), read_log(&store, &head.key, generation));
            }
        }
        Some(Snapshot { heads, logs })
    }

    fn events(&self, id: &str, generation: u32) -> impl Iterator<Item = &Event> {
        let records = self.logs.get(&(id.to_owned(), generation));
        records.into_iter().flatten().flat_map(|record| &record.events)
    }
}

fn read_log(store: &Arc<dyn Store>, key: &RunKey, generation: u32) -> Vec<Record> {
    let records = block_on(store.read_log(key.clone(), Some(generation), Index(0), usize::MAX)).unwrap();
    Log::load(records.clone()).expect("the log is whole");
    records
}

/// Returns the last recorded attempt of each step and task.
fn recorded(snapshot: &Snapshot) -> BTreeMap<(LogKey, String), u32> {
    let mut recorded = BTreeMap::new();
    for (log, records) in &snapshot.logs {
        for event in records.iter().flat_map(|record| &record.events) {
            let (name, attempt) = match event {
                Event::StepCompleted(event) => (event.name.to_string(), u32::MAX),
                Event::StepFailed(event) => (event.name.to_string(), event.attempt),
                Event::TaskCompleted(_) => ("task".to_owned(), u32::MAX),
                _ => continue,
            };
            recorded.insert((log.clone(), name), attempt);
        }
    }
    recorded
}

/// Parses `did RUN GENERATION NAME ATTEMPT KEY`.
fn deed(line: &str) -> Option<Deed> {
    let words: Vec<&str> = line.split(' ').collect();
    let ["did", run, generation, name, attempt, _key] = words[..] else { return None };
    Some(((run.to_owned(), generation.parse().unwrap()), name.to_owned(), attempt.parse().unwrap()))
}

/// Checks a line `ack WHAT RUN`.
fn check_acknowledged(line: &str, now: &Snapshot) {
    let words: Vec<&str> = line.split(' ').collect();
    let ["ack", what, run] = words[..] else { return };
    let is_it = |event: &Event| match what {
        "start" => matches!(event, Event::RunStarted(_)),
        "signal" => matches!(event, Event::SignalReceived(event) if event.signal_id.as_deref() == Some("outside-1")),
        "decide" => matches!(event, Event::ApprovalDecided(_)),
        other => panic!("an acknowledgement of {other}"),
    };
    let count = now.events(run, 0).filter(|event| is_it(event)).count();
    assert_eq!(count, 1, "J4: {line}");
}
