//! Changed bytes are detected and reported, without harm to other runs (F5, L2).

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use onward_core::event::{RunStarted, SignalReceived, TerminateRequested};
use onward_core::run::{Input, NewRun};
use onward_core::{Index, RunKey};
use onward_store::conformance::block_on;
use onward_store::{ClaimRuns, ClaimTasks, Delete, RunQuery, Store, StoreError};
use onward_store_embedded::EmbeddedStore;

use crate::cells::{attempt_ended, spend};
use crate::workload::{STEPS_PER_RUN, Workload, json, key, name, open, remember, worker};

const RUNS: u64 = 3;

/// Returns a directory with a few runs and an empty write-ahead log.
pub fn prepare_directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut workload = Workload::default();
    let options = onward_store_embedded::Options { clock: workload.clock(), ..Default::default() };
    let store = EmbeddedStore::open(directory.path(), options).unwrap();
    // The last run stays open, so that writes meet its damage, too.
    (0..RUNS * STEPS_PER_RUN - 1).for_each(|step| workload.perform(&store, step).unwrap());
    drop(store);
    directory
}

pub fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            std::fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
        }
    }
    to
}

fn signal() -> Input {
    Input::signal(SignalReceived { name: name("paid"), payload: json("1"), signal_id: None, sender: None })
}

fn read(store: &EmbeddedStore, key: &RunKey) -> Result<usize, StoreError> {
    block_on(store.read_log(key.clone(), None, Index(0), 1_000)).map(|records| records.len())
}

#[test]
fn a_flipped_byte_in_any_event_isolates_its_run_and_no_other() {
    let original = prepare_directory();
    let db = rusqlite::Connection::open(original.path().join("onward.db")).unwrap();
    let mut statement = db.prepare("SELECT e.seq, r.id, e.idx, length(e.body) FROM events e JOIN runs r USING (rk)").unwrap();
    let rows: Vec<(i64, String, i64, i64)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    drop(statement);
    drop(db);
    assert!(rows.len() > 20);
    for (seq, id, index, length) in rows {
        let directory = copy(original.path());
        let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
        let position = (seq * 7) % length;
        let body: Vec<u8> = db.query_row("SELECT body FROM events WHERE seq = ?1", [seq], |row| row.get(0)).unwrap();
        let mut changed = body;
        changed[position as usize] ^= 0x10;
        db.execute("UPDATE events SET body = ?2 WHERE seq = ?1", rusqlite::params![seq, changed]).unwrap();
        drop(db);

        let store = open(directory.path());
        match read(&store, &key(&id)).unwrap_err() {
            StoreError::LogCorrupt { key: found, index: at, .. } => assert_eq!((found, at), (key(&id), Index(index as u64))),
            other => panic!("{other}"),
        }
        let runs = block_on(store.list_runs(RunQuery::default())).unwrap().runs;
        for other in runs.iter().filter(|head| head.key != key(&id)) {
            read(&store, &other.key).unwrap();
        }
        give_up(&store, &key(&id), Index(index as u64));
        // Other runs take inputs; a closed one reports that it is closed.
        let answer = block_on(store.append_input(key("r0-child"), signal()));
        if id != "r0-child" {
            answer.unwrap();
        }
    }
}

/// Follows the hint of `log_corrupt`: the run can be terminated and deleted although its log is unreadable. An append to an open
/// run needs its last event and its last commit: if one of them is damaged, only a backup helps.
fn give_up(store: &EmbeddedStore, key: &RunKey, damaged: Index) {
    let hint = StoreError::LogCorrupt { key: key.clone(), index: damaged, why: String::new() }.hint().unwrap();
    assert!(hint.contains("a backup") && hint.contains("`onward run terminate`, then `onward run delete`"), "{hint}");
    let terminate = Input::new(TerminateRequested { reason: "damaged".to_owned(), reset_to: None });
    match block_on(store.append_input(key.clone(), terminate)) {
        Ok(_) => {}
        Err(error) if error.code() == "log_corrupt" => {
            let head =
                block_on(store.list_runs(RunQuery::default())).unwrap().runs.into_iter().find(|head| head.key == *key).unwrap();
            let last_commit = head.last_commit.map_or(Index(0), |last| last.index);
            assert!(!head.status.is_closed() && damaged >= last_commit, "event {damaged} of {head:?}");
            return;
        }
        Err(error) => assert!(["run_closed", "run_external"].contains(&error.code()), "{error}"),
    }
    match block_on(store.delete_runs(Delete::Run { key: key.clone(), reason: "damaged".to_owned() })) {
        Ok(deleted) => assert_eq!(deleted, 1),
        // It or its children have undelivered messages; it can be deleted later.
        Err(error) => assert_eq!(error.code(), "run_busy", "{error}"),
    }
}

#[test]
fn damage_in_any_page_is_an_error_with_a_name_and_never_a_panic_or_other_data() {
    let original = prepare_directory();
    let whole = remember(&open(original.path()));
    let length = std::fs::metadata(original.path().join("onward.db")).unwrap().len();
    let pages = length / 8192;
    for page in 1..pages {
        // Three offsets in each page: header, middle, end.
        for offset in [3, 4_000, 8_100] {
            let directory = copy(original.path());
            let path = directory.path().join("onward.db");
            let mut bytes = std::fs::read(&path).unwrap();
            let at = (page * 8192 + offset) as usize;
            bytes[at..at + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
            std::fs::write(&path, bytes).unwrap();
            let store = match EmbeddedStore::open(directory.path(), Default::default()) {
                Ok(store) => store,
                Err(error) => {
                    assert_eq!(error.code(), "store_corrupt", "{error}");
                    continue;
                }
            };
            for error in call_every_operation(&store) {
                assert!(is_named(&error), "page {page} at {offset}: {error}");
            }
            for (head, records) in &whole.runs {
                match block_on(store.read_log(head.key.clone(), None, Index(0), 1_000)) {
                    Ok(mut found) => {
                        found
                            .iter_mut()
                            .filter_map(|record| record.commit.as_mut())
                            .for_each(|commit| commit.epoch = Default::default());
                        assert_eq!(&found, records, "page {page} at {offset}");
                    }
                    Err(error) => assert!(is_named(&error), "page {page} at {offset}: {error}"),
                }
                if let Err(error) = block_on(store.append_input(head.key.clone(), signal())) {
                    let expected = ["run_closed", "run_external"].contains(&error.code());
                    assert!(is_named(&error) || expected, "page {page} at {offset}: {error}");
                }
            }
        }
    }
}

/// Returns whether an error reports damage, or a repair after which to retry.
pub fn is_named(error: &StoreError) -> bool {
    ["log_corrupt", "store_corrupt"].contains(&error.code()) || error.to_string().contains("rebuilt, retry")
}

/// Calls every operation that does not name a run; returns the errors.
fn call_every_operation(store: &EmbeddedStore) -> Vec<StoreError> {
    let knows = [("order", vec![None]), ("parcel", vec![None])].map(|(kind, versions)| (name(kind), versions));
    let runs = ClaimRuns { worker: worker(), namespace: Default::default(), knows: Arc::new(knows.into()), limit: 10 };
    let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
    let tasks =
        ClaimTasks { worker: worker(), namespace: Default::default(), queues, kinds, limit: 10, lease: Duration::from_secs(30) };
    let expired = Delete::Expired { retention: Default::default(), limit: 10 };
    let answers = [
        block_on(store.list_runs(RunQuery::default())).map(drop),
        block_on(store.list_waits(Default::default())).map(drop),
        block_on(store.outbox_messages(100)).map(drop),
        block_on(store.claim_runs(runs)).map(drop),
        block_on(store.claim_tasks(tasks)).map(drop),
        block_on(store.expire(100)).map(drop),
        block_on(store.delete_runs(expired)).map(drop),
    ];
    answers.into_iter().filter_map(Result::err).collect()
}

/// The first use of a damaged index fails with a transient error, and never as if the store were beyond repair.
#[test]
fn a_damaged_index_is_a_transient_error_once_and_none_after_that() {
    let original = prepare_directory();
    let db = rusqlite::Connection::open(original.path().join("onward.db")).unwrap();
    let mut statement = db.prepare("SELECT name, rootpage FROM sqlite_schema WHERE type = 'index'").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    let roots: Vec<(String, i64)> = rows.collect::<Result<_, _>>().unwrap();
    drop(statement);
    drop(db);
    let mut met = 0;
    for (name, root) in roots {
        let directory = copy(original.path());
        crate::flips::flip(&directory.path().join("onward.db"), (root as usize - 1) * 8192 + 4_000, 1);
        let store = open(directory.path());
        for round in 0..4 {
            for error in call_every_operation(&store) {
                assert_eq!(error.code(), "store_unavailable", "{name}, round {round}: {error}");
                assert!(round < 3, "{name}: {error}");
                met += 1;
            }
        }
    }
    assert!(met > 3, "{met}");
}

/// A run's row is only a view: it is rebuilt from the log.
#[test]
fn a_damaged_row_of_a_run_is_read_from_its_log_instead() {
    let directory = prepare_directory();
    let whole = remember(&open(directory.path()));
    let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
    db.execute("UPDATE runs SET head = zeroblob(40)", []).unwrap();
    drop(db);
    let store = open(directory.path());
    assert_eq!(remember(&store), whole);
    block_on(store.append_input(key("r2"), signal())).unwrap();
    // It is an open external run and may be deleted: the log identifies it.
    let delete = Delete::Run { key: key("outside"), reason: String::new() };
    assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
}

/// LG4: it cannot be rebuilt, and another run with that id does not remove it.
#[test]
fn a_damaged_row_of_the_ledger_of_a_run_that_is_gone_stays_and_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for seed in [1, 2] {
        let started = RunStarted::new(name("order"), json("1"), seed);
        block_on(store.start_run(NewRun { key: key("r"), started, signal: None }, None)).unwrap();
        block_on(store.append_input(key("r"), attempt_ended())).unwrap();
        if seed == 1 {
            block_on(store.append_input(key("r"), Input::new(TerminateRequested { reason: String::new(), reset_to: None })))
                .unwrap();
            block_on(store.delete_runs(Delete::Run { key: key("r"), reason: String::new() })).unwrap();
        }
    }
    let whole = spend(&store).unwrap();
    drop(store);
    for (row, is_repaired) in [(2, true), (1, false)] {
        let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
        assert_eq!(db.execute("UPDATE ledger SET sum = zeroblob(9) WHERE seq = ?1", [row]).unwrap(), 1);
        drop(db);
        for _ in 0..3 {
            let store = open(directory.path());
            let query = |_| {
                let answer = spend(&store);
                block_on(store.append_input(key("r"), signal())).unwrap(); // damage is repaired with the next write
                answer
            };
            let answers: Vec<_> = (0..3).map(query).collect();
            match is_repaired {
                true => assert_eq!(answers[2].as_ref().ok(), Some(&whole), "{answers:?}"),
                false => assert!(answers.iter().all(Result::is_err), "{answers:?}"),
            }
        }
    }
}

/// A bug in a worker must not stop the store.
#[test]
fn a_commit_that_breaks_an_invariant_harms_no_other_run() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let started = block_on(store.start_run(crate::workload::new_run("r"), Some(worker()))).unwrap();
    let head = started.claimed.unwrap().head;
    let commit = |horizon| onward_core::run::Commit {
        key: head.key.clone(),
        generation: 0,
        epoch: head.epoch,
        n: 0,
        commit_id: onward_core::CommitId(1),
        horizon: Index(horizon),
        events: vec![crate::workload::step_completed(0, json("1"))],
        waits: false,
        end_over_unread: false,
        is_while_paused: false,
        carries: Default::default(),
    };
    assert!(block_on(store.commit(commit(99))).is_err());
    assert_eq!(block_on(store.commit(commit(0))).unwrap().index, Index(1));
    assert_eq!(store.stopped(), None);
}

/// This also holds for claims of one task at a time.
#[test]
fn a_task_whose_input_is_damaged_is_not_in_the_way_of_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for (id, bytes) in [("damaged", 70_000), ("whole", 10)] {
        let head = block_on(store.start_run(crate::workload::new_run(id), Some(worker()))).unwrap().head;
        let input = onward_core::Payload::binary("text/plain", vec![7; bytes]);
        let scheduled = onward_core::event::TaskScheduled {
            call_id: onward_core::CallId::root(0),
            kind: name("mail"),
            input_hash: onward_core::Hash::of(&input),
            input,
            options: Default::default(),
        };
        let commit = onward_core::run::Commit {
            key: head.key,
            generation: 0,
            epoch: head.epoch,
            n: 0,
            commit_id: onward_core::CommitId(1),
            horizon: Index(0),
            events: vec![scheduled.into()],
            waits: true,
            end_over_unread: false,
            is_while_paused: false,
            carries: Default::default(),
        };
        block_on(store.commit(commit)).unwrap();
    }
    drop(store);
    let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
    assert_eq!(db.execute("UPDATE payloads SET data = zeroblob(length(data))", []).unwrap(), 1);
    drop(db);
    let store = open(directory.path());
    let claim = || {
        let (queues, kinds) = (vec![None], Arc::new(vec![name("mail")]));
        let namespace = Default::default();
        let lease = Duration::from_secs(30);
        block_on(store.claim_tasks(ClaimTasks { worker: worker(), namespace, queues, kinds, limit: 1, lease })).unwrap()
    };
    let claimed: Vec<_> = (0..2).flat_map(|_| claim()).map(|task| task.id.run).collect();
    assert_eq!(claimed, [key("whole")]);
    assert_eq!(read(&store, &key("damaged")).unwrap_err().code(), "log_corrupt");
}

#[test]
fn a_damaged_large_payload_is_found_by_its_hash() {
    let directory = prepare_directory();
    let db = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
    let changed = db.execute("UPDATE payloads SET data = zeroblob(length(data))", []).unwrap();
    assert!(changed > 0);
    drop(db);
    let store = open(directory.path());
    assert_eq!(read(&store, &key("r0")).unwrap_err().code(), "log_corrupt");
    // A damaged run can still be deleted, with its references.
    let outbox = block_on(store.outbox_messages(100));
    let done = outbox.unwrap().into_iter().map(|(id, _)| id).collect();
    block_on(store.finish_deliveries(done)).unwrap();
    let terminate = Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None });
    block_on(store.append_input(key("r0-child"), terminate)).unwrap();
    let done = block_on(store.outbox_messages(100)).unwrap().into_iter().map(|(id, _)| id).collect();
    block_on(store.finish_deliveries(done)).unwrap();
    let delete = Delete::Run { key: key("r0"), reason: "damaged".to_owned() };
    assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
}
