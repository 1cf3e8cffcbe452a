//! Every cell of every table, and random bytes of the file, changed while the store is closed (F5, L2, I1, I2, I3).
//!
//! The oracle is an untouched copy with the same operations: each run ends with the same log in both, or reads of it fail with a
//! damage error. No other outcome is allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{ApprovalDecided, RunCompleted, SignalReceived, TaskAttemptEnded};
use onward_core::ledger::{SpendBy, SpendQuery, SpendRow};
use onward_core::run::{Commit, Input, OutboxMessage};
use onward_core::spend::{Spend, Tokens};
use onward_core::task::TaskReport;
use onward_core::{CallId, CommitId, Index, Record, RunKey, Timestamp};
use onward_store::conformance::block_on;
use onward_store::{ClaimRuns, ClaimTasks, Clock, ManualClock, RunQuery, Store, StoreError};
use onward_store_embedded::{EmbeddedStore, Options, WorkersInside};
use rusqlite::types::Value;

use crate::damage::{copy, is_named};
use crate::workload::{OUTSIDE, STEPS_PER_RUN, Workload, json, key, name, outside, worker};

/// Number of runs; run `n` stops after `n + 1` steps of the workload, so that every stage is present.
const RUNS: u64 = STEPS_PER_RUN;
const LEASE: Duration = Duration::from_secs(30);

/// Returns a directory with runs at every stage, and the time at which it was closed.
fn prepare() -> (tempfile::TempDir, Timestamp) {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = Workload::default();
    let options = Options { clock: workload.clock(), ..Options::default() };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    for run in 0..RUNS {
        for step in (0..=run).filter(|step| *step != OUTSIDE) {
            workload.perform(&store, run * STEPS_PER_RUN + step).unwrap();
        }
    }
    (0..3).for_each(|index| drop(block_on(store.start_run(outside(index), None)).unwrap()));
    let clock = workload.clock();
    for run in ["r2", "r5"] {
        block_on(store.append_input(key(run), attempt_ended())).unwrap();
    }
    // One run is paused, with all its open calls.
    block_on(store.append_input(key("r2"), pause())).unwrap();
    drop(store);
    let left = clock.now();
    (directory, left)
}

/// The final state of a store: the log of each run, or the error, and all errors on the way.
struct Outcome {
    logs: BTreeMap<RunKey, Result<Vec<Record>, StoreError>>,
    refusals: Vec<StoreError>,
    /// The ledger; `None` if the query failed.
    spend: Option<Vec<SpendRow>>,
    repaired: u64,
}

/// Performs every operation on the runs of a directory, until all of them have ended.
fn live_on(directory: &Path, left: Timestamp, keys: &BTreeSet<RunKey>, workers_inside: bool) -> Result<Outcome, StoreError> {
    let clock = Arc::new(ManualClock::default());
    clock.set(left);
    let workers_inside = if workers_inside { WorkersInside::All } else { WorkersInside::None };
    let options = Options { clock: clock.clone(), workers_inside, ..Options::default() };
    let store = EmbeddedStore::open(directory, options)?;
    let mut incarnation = Life { store: &store, refusals: Vec::new() };
    for round in 0..5 {
        clock.advance(Duration::from_secs(3_600));
        incarnation.let_time_pass();
        incarnation.deliver();
        incarnation.work_on_tasks();
        incarnation.decide();
        if round == 1 {
            incarnation.append(&key("r2"), Input::new(onward_core::event::RunResumed::default()));
        }
        if round == 2 {
            // The same id as in the workload: a repeat is recognized.
            keys.iter().for_each(|key| incarnation.append(key, signal(Some("s-1"))));
            keys.iter().for_each(|key| incarnation.append(key, signal(None)));
        }
        incarnation.end_runs();
    }
    let spend = incarnation.call(spend);
    let Life { refusals, .. } = incarnation;
    let listed = block_on(store.list_runs(RunQuery { limit: 1_000, ..RunQuery::default() }));
    let mut found: BTreeSet<RunKey> = keys.clone();
    found.extend(listed.into_iter().flat_map(|page| page.runs).map(|head| head.key));
    let logs = found.into_iter().map(|key| (key.clone(), read(&store, &key))).collect();
    Ok(Outcome { logs, refusals, spend, repaired: store.stats().repaired })
}

/// Returns the log of a run without its times and epochs.
fn read(store: &EmbeddedStore, key: &RunKey) -> Result<Vec<Record>, StoreError> {
    let mut records = block_on(store.read_log(key.clone(), None, Index(0), 1_000))?;
    for record in &mut records {
        record.at = Timestamp(0);
        if let Some(commit) = &mut record.commit {
            commit.epoch = Default::default();
            commit.commit_id = CommitId(0);
        }
    }
    Ok(records)
}

fn pause() -> Input {
    let (reason, message) = (onward_core::event::PauseReason::Requested, String::new());
    Input::new(onward_core::event::RunPaused::because(reason, message))
}

pub fn attempt_ended() -> Input {
    Input::attempt_ended(TaskAttemptEnded {
        call_id: CallId::root(90),
        generation: 0,
        attempt: 1,
        claim: 1,
        began_at: Timestamp(5),
        ledger_name: None,
        failure_code: None,
        spend: vec![Spend::on("small").tokens(Tokens { input: 7, ..Tokens::default() })],
    })
}

pub fn spend(store: &EmbeddedStore) -> Result<Vec<SpendRow>, StoreError> {
    block_on(store.spend(SpendQuery::by(SpendBy::Run)))
}

fn signal(id: Option<&str>) -> Input {
    let signal_id = id.map(str::to_owned);
    Input::signal(SignalReceived { name: name("paid"), payload: json("1"), signal_id, sender: None })
}

struct Life<'a> {
    store: &'a EmbeddedStore,
    refusals: Vec<StoreError>,
}

impl Life<'_> {
    fn note<T>(&mut self, answer: Result<T, StoreError>) -> Option<T> {
        answer.map_err(|error| self.refusals.push(error)).ok()
    }

    /// Calls `operation`, again after a possible repair by the writer.
    fn call<T>(&mut self, operation: impl Fn(&EmbeddedStore) -> Result<T, StoreError>) -> Option<T> {
        for _ in 0..2 {
            if let Some(answer) = self.note(operation(self.store)) {
                return Some(answer);
            }
            (0..2).for_each(|_| drop(block_on(self.store.finish_deliveries(Vec::new()))));
        }
        self.note(operation(self.store))
    }

    /// Appends an input; refusals by closed or missing runs are no damage.
    fn append(&mut self, key: &RunKey, input: Input) {
        self.call(|store| match block_on(store.append_input(key.clone(), input.clone())) {
            Err(error)
                if ["run_closed", "run_not_found", "wait_not_found", "run_not_paused", "run_external"]
                    .contains(&error.code()) =>
            {
                Ok(())
            }
            answer => answer.map(drop),
        });
    }

    fn let_time_pass(&mut self) {
        for _ in 0..2 {
            self.call(|store| block_on(store.expire(100)));
        }
    }

    fn deliver(&mut self) {
        for (id, delivery) in self.call(|store| block_on(store.outbox_messages(100))).unwrap_or_default() {
            match delivery {
                OutboxMessage::Start(run) | OutboxMessage::StartFromTemplate { run, .. } => {
                    drop(self.call(|store| block_on(store.start_run(run.clone(), None))))
                }
                OutboxMessage::Input { to, input } => self.append(&to, input),
            }
            self.call(|store| block_on(store.finish_deliveries(vec![id])));
        }
    }

    fn work_on_tasks(&mut self) {
        for _ in 0..2 {
            let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
            let namespace = Default::default();
            let request = ClaimTasks { worker: worker(), namespace, queues, kinds, limit: 10, lease: LEASE };
            for task in self.call(|store| block_on(store.claim_tasks(request.clone()))).unwrap_or_default() {
                let done = TaskReport::Completed(json("\"sent\""));
                self.call(|store| block_on(store.report_task(task.id.clone(), task.claim, done.clone(), LEASE)));
            }
        }
    }

    fn decide(&mut self) {
        for wait in self.call(|store| block_on(store.list_waits(Default::default()))).unwrap_or_default() {
            let decided = ApprovalDecided {
                call_id: wait.call_id.clone(),
                approved: true,
                feedback: None,
                decided_by: None,
                answer: None,
                decision_id: "d-1".to_owned(),
            };
            self.append(&wait.run, Input::answer(decided, wait.generation, &wait.call_id, "d-1"));
        }
    }

    /// Ends every pending run.
    fn end_runs(&mut self) {
        for _ in 0..2 {
            let knows = [("order", vec![None]), ("parcel", vec![None])].map(|(kind, versions)| (name(kind), versions));
            let request =
                ClaimRuns { worker: worker(), namespace: Default::default(), knows: Arc::new(knows.into()), limit: 100 };
            let claimed = self.call(|store| block_on(store.claim_runs(request.clone()))).unwrap_or_default();
            for head in claimed.into_iter().map(|claimed| claimed.head) {
                let commit = Commit {
                    key: head.key.clone(),
                    generation: 0,
                    epoch: head.epoch,
                    n: head.next_commit,
                    commit_id: CommitId(head.next_commit + 1),
                    horizon: Index(head.next_index.0 - 1),
                    events: vec![RunCompleted { output: json("\"done\""), attempts: None }.into()],
                    waits: false,
                    end_over_unread: false,
                    is_while_paused: false,
                    carries: Default::default(),
                };
                if self.call(|store| block_on(store.commit(commit.clone()))).is_none() {
                    self.call(|store| block_on(store.release_run(head.key.clone(), head.epoch)));
                }
            }
        }
    }
}

/// Compares a damaged directory with the untouched one; returns the damaged runs.
fn compare(what: &str, found: &Outcome, expected: &Outcome) -> BTreeSet<RunKey> {
    for error in &found.refusals {
        assert!(is_named(error), "{what}: {error}");
    }
    assert!(found.spend.is_none() || found.spend == expected.spend, "{what}: {:?}", found.spend);
    let mut damaged = BTreeSet::new();
    for (key, log) in &expected.logs {
        let log = log.as_ref().unwrap();
        match found.logs.get(key) {
            Some(Ok(found)) if found == log => {}
            Some(Err(error)) if is_named(error) => drop(damaged.insert(key.clone())),
            other => drop(damaged.insert(expect_reported(what, key, other, log, found))),
        }
    }
    for key in found.logs.keys() {
        assert!(expected.logs.contains_key(key), "{what}: {key} did not exist before");
    }
    damaged
}

/// Checks a run with a different log: it may have stopped, not exist yet, or lack an input, if an error named the damage: a page
/// that it needs is unreadable, or its idempotency record, its outbox messages or its parent's are lost. Any other difference is
/// silent damage.
fn expect_reported(
    what: &str,
    key: &RunKey,
    log: Option<&Result<Vec<Record>, StoreError>>,
    expected: &[Record],
    found: &Outcome,
) -> RunKey {
    let is_reported = found.refusals.iter().any(|error| matches!(error.code(), "log_corrupt" | "store_corrupt"));
    let same = |log: &[Record]| log.iter().zip(expected).take_while(|(found, expected)| found == expected).count();
    let stands_still = match log {
        // Inputs since then are present; the code has committed nothing.
        Some(Ok(log)) => log.len() < expected.len() || log[same(log)..].iter().all(|record| record.commit.is_none()),
        Some(Err(error)) => error.code() == "run_not_found",
        None => true,
    };
    assert!(
        is_reported && stands_still,
        "{what}: {key} is silently different: {log:?}, instead of {expected:?}, {:?}",
        found.refusals
    );
    key.clone()
}

fn keys_of(directory: &Path) -> BTreeSet<RunKey> {
    let store = crate::workload::open(directory);
    let page = block_on(store.list_runs(RunQuery { limit: 1_000, ..RunQuery::default() })).unwrap();
    page.runs.into_iter().map(|head| head.key).collect()
}

/// Returns another value of the same type.
fn changed(value: Value) -> Value {
    match value {
        Value::Null => Value::Integer(1),
        Value::Integer(number) => Value::Integer(number ^ 1),
        Value::Real(number) => Value::Real(number + 1.0),
        Value::Text(text) if text.is_empty() => Value::Text("x".to_owned()),
        Value::Text(text) => {
            let mut bytes = text.into_bytes();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            Value::Text(String::from_utf8(bytes).unwrap())
        }
        Value::Blob(mut bytes) => {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            Value::Blob(bytes)
        }
    }
}

/// Returns all columns of all tables.
fn columns(db: &rusqlite::Connection) -> Vec<(String, String)> {
    let sql =
        "SELECT t.name, c.name FROM sqlite_schema t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY 1, c.cid";
    let mut statement = db.prepare(sql).unwrap();
    statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().collect::<Result<_, _>>().unwrap()
}

#[test]
fn a_changed_cell_of_any_table_is_repaired_or_named_and_other_runs_go_on_to_their_end() {
    let (original, left) = prepare();
    let keys = keys_of(original.path());
    let untouched = copy(original.path());
    let expected = live_on(untouched.path(), left, &keys, false).unwrap();
    assert!(expected.refusals.is_empty(), "{:?}", expected.refusals);
    assert_eq!(expected.spend.as_ref().map(Vec::len), Some(2));
    let ends = |log: &Vec<Record>| log.last().unwrap().events.last().unwrap().ends_log();
    let own = expected.logs.iter().filter(|(run, _)| **run != key("outside"));
    assert!(own.into_iter().all(|(_, log)| log.as_ref().is_ok_and(ends)));
    let db = rusqlite::Connection::open(original.path().join("onward.db")).unwrap();
    let columns = columns(&db);
    assert!(columns.len() > 60, "{columns:?}");
    let (mut cases, mut repaired, mut damaged_runs) = (0, 0, 0);
    for (number, (table, column)) in (0..).zip(columns) {
        let rows: i64 = db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap();
        // Two rows, different ones for each column.
        let chosen = BTreeSet::from([number % rows.max(1), (number * 7 + rows - 1) % rows.max(1)]);
        for row in chosen.into_iter().filter(|row| (0..rows).contains(row)) {
            let what = format!("{table}.{column} of row {row}");
            let directory = copy(original.path());
            if !change_cell(directory.path(), &table, &column, row) {
                continue;
            }
            cases += 1;
            let found = match live_on(directory.path(), left, &keys, false) {
                Ok(found) => found,
                Err(error) => panic!("{what}: one damaged cell must not prevent opening: {error}"),
            };
            let damaged = compare(&what, &found, &expected);
            // A row belongs to one run, whose parent or child may wait for it; a large payload belongs to all runs that have it.
            let touched = if ["blobs", "payloads"].contains(&table.as_str()) { 4 } else { 2 };
            assert!(damaged.len() <= touched, "{what}: {damaged:?} {:?}", found.refusals);
            repaired += u64::from(found.repaired > 0);
            damaged_runs += damaged.len();
        }
    }
    println!("{cases} cells changed, {repaired} repairs, {damaged_runs} runs damaged");
    assert!(cases > 100 && repaired > 30, "{cases} {repaired}");
}

/// Changes one cell by plain SQL; returns whether it was changed.
fn change_cell(directory: &Path, table: &str, column: &str, row: i64) -> bool {
    let db = rusqlite::Connection::open(directory.join("onward.db")).unwrap();
    let read = format!("SELECT rowid, {column} FROM {table} LIMIT 1 OFFSET ?1");
    let (rowid, value): (i64, Value) = db.query_row(&read, [row], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    // The change is refused if it violates NOT NULL or a unique index.
    let sql = format!("UPDATE {table} SET {column} = ?2 WHERE rowid = ?1");
    db.execute(&sql, rusqlite::params![rowid, changed(value)]).is_ok_and(|changed| changed == 1)
}

#[test]
fn a_changed_byte_anywhere_in_the_file_is_repaired_or_named_and_never_other_data() {
    let seed = std::env::var("ONWARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as u64);
    println!("ONWARD_SEED={seed}");
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        onward_core::random::derive(state, &onward_core::CallId::root(0), 0)
    };
    let (original, left) = prepare();
    let keys = keys_of(original.path());
    let untouched = copy(original.path());
    let expected = live_on(untouched.path(), left, &keys, true).unwrap();
    let length = std::fs::metadata(original.path().join("onward.db")).unwrap().len();
    let (mut refused, mut damaged, mut repaired) = (0, 0, 0);
    const FLIPS: usize = 120;
    for _ in 0..FLIPS {
        let (at, bit) = (random() % length, random() % 8);
        let what = format!("seed {seed}, byte {at}, bit {bit}");
        let directory = copy(original.path());
        let path = directory.path().join("onward.db");
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at as usize] ^= 1 << bit;
        std::fs::write(&path, bytes).unwrap();
        match live_on(directory.path(), left, &keys, true) {
            Ok(found) => {
                damaged += compare(&what, &found, &expected).len();
                repaired += u64::from(found.repaired > 0);
            }
            Err(error) => {
                let named = ["store_corrupt", "directory_foreign", "directory_newer"];
                assert!(named.contains(&error.code()), "{what}: {error}");
                refused += 1;
            }
        }
    }
    println!("{FLIPS} flips: {refused} directories refused, {repaired} repaired, {damaged} runs damaged");
    assert!(refused * 5 < FLIPS && damaged < FLIPS * keys.len() / 4, "most runs continue");
}
