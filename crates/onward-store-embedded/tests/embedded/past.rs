//! Runs with many generations: what is kept of earlier ones, that all are found, and that damage does not hide them (I4).

use std::path::Path;

use onward_core::event::{AttributeSet, RunContinued};
use onward_core::run::Commit;
use onward_core::{AttributeValue, CallId, CommitId, Index, Namespace, Record, RunKey};
use onward_store::conformance::block_on;
use onward_store::{Delete, Restore, RestoreRun, RunQuery, Store, StoreError};
use onward_store_embedded::EmbeddedStore;
use rusqlite::Connection;

use crate::damage::{copy, is_named};
use crate::workload::{json, key, name, new_run, open, worker};

const GENERATIONS: u32 = 6;
const RUNS: [&str; 2] = ["a", "b"];

/// Returns a directory with two runs that continued as new in turns, with an attribute each.
fn prepare() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut heads: Vec<_> = RUNS
        .iter()
        .map(|run| {
            let mut new = new_run(run);
            new.started.seed = u64::from(run.as_bytes()[0]);
            block_on(store.start_run(new, Some(worker()))).unwrap().claimed.unwrap().head
        })
        .collect();
    for generation in 0..GENERATIONS - 1 {
        for head in &mut heads {
            let (call_id, value) = (CallId::root(0), Some(AttributeValue::Text(format!("at {generation}"))));
            let events = vec![
                AttributeSet { call_id, name: name("call_id"), value }.into(),
                RunContinued { input: json(generation.to_string()), checkpoint: None }.into(),
            ];
            block_on(store.commit(Commit {
                key: head.key.clone(),
                generation,
                epoch: head.epoch,
                n: head.next_commit,
                commit_id: CommitId(u64::from(generation) + 1),
                horizon: Index(head.next_index.0 - 1),
                events,
                waits: false,
                end_over_unread: false,
                is_while_paused: false,
                carries: Default::default(),
            }))
            .unwrap();
            let knows = std::sync::Arc::new([(head.kind.clone(), vec![None])].into());
            let claim = onward_store::ClaimRuns { worker: worker(), namespace: Default::default(), knows, limit: 1 };
            *head = block_on(store.claim_runs(claim)).unwrap().remove(0).head;
        }
    }
    drop(store);
    directory
}

fn log(store: &EmbeddedStore, run: &str, generation: u32) -> Result<Vec<Record>, StoreError> {
    block_on(store.read_log(key(run), Some(generation), Index(0), 100))
}

/// Returns the logs of all generations, read again after a repair if one failed.
fn logs(store: &EmbeddedStore) -> Vec<Result<Vec<Record>, String>> {
    let all = || RUNS.into_iter().flat_map(|run| (0..GENERATIONS).map(move |generation| log(store, run, generation)));
    if all().any(|log| log.is_err()) {
        (0..2).for_each(|_| drop(block_on(store.finish_deliveries(Vec::new()))));
    }
    all().map(|log| log.map_err(|error| if is_named(&error) { error.to_string() } else { panic!("{error}") })).collect()
}

fn count(directory: &Path, table: &str) -> u32 {
    let db = Connection::open(directory.join("onward.db")).unwrap();
    db.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn a_generation_between_the_first_and_the_current_one_is_the_number_of_its_log_and_nothing_else() {
    let directory = prepare();
    let counted = ["runs", "past", "attributes"].map(|table| count(directory.path(), table));
    assert_eq!(counted, [4, 2 * (GENERATIONS - 2), 2], "rows");
    let store = open(directory.path());
    for (run, generation) in RUNS.into_iter().flat_map(|run| (0..GENERATIONS).map(move |generation| (run, generation))) {
        let records = log(&store, run, generation).unwrap();
        assert_eq!(records[0].started().unwrap().generation, generation);
        let head = block_on(store.read_run(key(run), Some(generation))).unwrap().unwrap();
        assert_eq!((head.generation, head.status.is_closed()), (generation, generation + 1 < GENERATIONS));
    }
    assert_eq!(log(&store, "a", GENERATIONS).unwrap_err().code(), "run_not_found");
    let reader = EmbeddedStore::open_read_only(directory.path()).unwrap();
    assert_eq!(logs(&reader), logs(&store));
}

fn terminate(store: &EmbeddedStore, run: &str) {
    let terminate =
        onward_core::run::Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None });
    block_on(store.append_input(key(run), terminate)).unwrap();
}

#[test]
fn a_run_that_goes_takes_all_its_generations_along() {
    let directory = prepare();
    let store = open(directory.path());
    terminate(&store, "a");
    block_on(store.delete_runs(Delete::Run { key: key("a"), reason: String::new() })).unwrap();
    assert_eq!(log(&store, "a", 2).unwrap_err().code(), "run_not_found");
    assert_eq!(log(&store, "b", 2).unwrap().len(), 2);
    drop(store);
    let counted = ["runs", "past", "attributes"].map(|table| count(directory.path(), table));
    assert_eq!(counted, [2, GENERATIONS - 2, 1]);
    let events = 2 * (GENERATIONS - 1) + 1;
    assert_eq!(count(directory.path(), "events"), events, "the other run's");
}

#[test]
fn whatever_becomes_of_the_rows_of_the_past_their_logs_are_found_again() {
    let original = prepare();
    let expected = logs(&open(original.path()));
    let changes = [
        "DELETE FROM past WHERE rowid = (SELECT rowid FROM past LIMIT 1 OFFSET 3)",
        "DELETE FROM past",
        "UPDATE past SET root = root + 1000 WHERE generation = 2",
        "UPDATE past SET generation = 77 WHERE generation = 3",
        "UPDATE past SET crc = crc + 1",
        "UPDATE past SET rk = rk + 1000",
        "UPDATE past SET rk = -1 WHERE rowid = (SELECT max(rowid) FROM past)",
    ];
    for change in changes {
        let directory = copy(original.path());
        Connection::open(directory.path().join("onward.db")).unwrap().execute_batch(change).unwrap();
        let store = open(directory.path());
        let first: Vec<_> = RUNS.into_iter().flat_map(|run| (0..GENERATIONS).map(move |generation| (run, generation))).collect();
        let first: Vec<_> = first.into_iter().map(|(run, generation)| log(&store, run, generation).unwrap()).collect();
        assert_eq!(first, expected.iter().map(|log| log.clone().unwrap()).collect::<Vec<_>>(), "at once: {change}");
        assert_eq!(logs(&EmbeddedStore::open_read_only(directory.path()).unwrap()), expected, "by a read-only store: {change}");
        (0..2).for_each(|_| drop(block_on(store.finish_deliveries(Vec::new()))));
        assert!(store.stats().repaired > 0, "{change}");
        let listed = block_on(store.list_runs(RunQuery::default())).unwrap();
        assert_eq!(listed.runs.len(), RUNS.len(), "{change}");
        drop(store);
        assert_eq!(logs(&open(directory.path())), expected, "{change}");
    }
}

#[test]
fn a_run_that_goes_takes_along_what_no_row_leads_to() {
    let directory = prepare();
    Connection::open(directory.path().join("onward.db")).unwrap().execute_batch("DELETE FROM past WHERE generation = 2").unwrap();
    let store = open(directory.path());
    terminate(&store, "a");
    let delete = || block_on(store.delete_runs(Delete::Run { key: key("a"), reason: String::new() }));
    delete().or_else(|_| delete()).unwrap(); // an index was rebuilt
    drop(store);
    assert_eq!(count(directory.path(), "events"), 2 * (GENERATIONS - 1) + 1, "the other run's");
}

/// A run imported into another namespace has the incarnation of the run it is a copy of, and its logs contain only that.
#[test]
fn a_copy_of_a_run_in_another_namespace_keeps_its_generations_when_damaged_rows_of_the_other_are_replaced() {
    let directory = prepare();
    let copied = RunKey::new(Namespace::new("other").unwrap(), key("a").id);
    let store = open(directory.path());
    terminate(&store, "a");
    let logs: Vec<Vec<Record>> = (0..GENERATIONS).map(|generation| log(&store, "a", generation).unwrap()).collect();
    let restore = RestoreRun { key: copied.clone(), what: Restore::Run { logs: logs.clone() }, outbox: Vec::new() };
    assert!(block_on(store.restore_run(restore)).unwrap().created);
    drop(store);
    let db = Connection::open(directory.path().join("onward.db")).unwrap();
    db.execute_batch("DELETE FROM past WHERE generation = 2 AND root = (SELECT min(root) FROM past)").unwrap();
    drop(db);
    let store = open(directory.path());
    let delete = || block_on(store.delete_runs(Delete::Run { key: key("a"), reason: String::new() }));
    delete().or_else(|_| delete()).unwrap(); // an index was rebuilt
    for (generation, expected) in (0..).zip(&logs) {
        let kept = block_on(store.read_log(copied.clone(), Some(generation), Index(0), 100)).unwrap();
        assert_eq!(kept, *expected, "generation {generation} of the copy");
    }
}

/// A log whose run is unknown stays, and reads of it fail with a damage error.
#[test]
fn a_generation_that_cannot_be_found_again_is_named() {
    let directory = prepare();
    let db = Connection::open(directory.path().join("onward.db")).unwrap();
    db.execute_batch("DELETE FROM events WHERE idx = 0 AND rk = (SELECT max(rk) FROM past); DELETE FROM past;").unwrap();
    drop(db);
    let found = logs(&open(directory.path()));
    let lost: Vec<_> = found.iter().filter_map(|log| log.as_ref().err()).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
    assert!(lost[0].contains("run b"), "{lost:?}");
}
