//! S40: remains of a deleted run in the files of a directory.

use std::path::Path;
use std::time::{Duration, Instant};

use onward_core::event::{AttributeSet, RunContinued, RunFailed, SignalReceived, TaskScheduled};
use onward_core::run::{Commit, Input, NewRun};
use onward_core::task::{TaskOptions, TaskReport};
use onward_core::{AttributeValue, CallId, CommitId, Event, Failure, Hash, Index, Payload, RunHead};
use onward_store::conformance::block_on;
use onward_store::{ClaimRuns, ClaimTasks, Delete, Store};
use onward_store_embedded::EmbeddedStore;

use crate::damage::copy;
use crate::workload::{json, key, name, new_run, open, step_completed, worker};

/// Text in every payload of the deleted run, and in no other.
const CANARY: &str = "canary-4711";

/// Time within which the store must truncate its log.
const DEADLINE: Duration = Duration::from_secs(300);

fn commit(store: &EmbeddedStore, head: &RunHead, n: u64, at: u64, events: Vec<Event>) {
    let commit = Commit {
        key: head.key.clone(),
        generation: head.generation,
        epoch: head.epoch,
        n,
        commit_id: CommitId(n + 1),
        horizon: Index(at),
        waits: !events.iter().any(Event::ends_log),
        events,
        end_over_unread: true,
        is_while_paused: false,
        carries: Default::default(),
    };
    block_on(store.commit(commit)).unwrap();
}

/// Returns a payload with the canary: a small one, or one that is stored apart for its size.
fn payload(what: &str, bytes: usize) -> Payload {
    json(format!(r#"{{"what":"{what}","canary":"{CANARY}","fill":"{}"}}"#, "x".repeat(bytes)))
}

/// Creates a run with the canary in everything that it can hold, in two generations.
fn live(store: &EmbeddedStore, id: &str, bytes: usize) {
    let mut new = new_run(id);
    new.started.input = payload("input", bytes);
    let head = block_on(store.start_run(new, Some(worker()))).unwrap().claimed.unwrap().head;
    let signal = |what: &str| SignalReceived {
        name: name("s"),
        payload: payload(what, bytes),
        signal_id: Some(CANARY.to_owned()),
        sender: None,
    };
    block_on(store.append_input(key(id), Input::signal(signal("signal")))).unwrap();
    let task = TaskScheduled {
        call_id: CallId::root(1),
        kind: name("mail"),
        input_hash: Hash::of(&payload("task", bytes)),
        input: payload("task", bytes),
        options: TaskOptions::default(),
    };
    let value = Some(AttributeValue::Text(CANARY.to_owned()));
    let attribute = AttributeSet { call_id: CallId::root(2), name: name("attribute"), value };
    commit(store, &head, 0, 1, vec![step_completed(0, payload("step", bytes)), task.into(), attribute.into()]);
    let claim = ClaimTasks {
        worker: worker(),
        namespace: Default::default(),
        queues: vec![None],
        kinds: std::sync::Arc::new(vec![name("mail")]),
        limit: 1,
        lease: DEADLINE,
    };
    let task = block_on(store.claim_tasks(claim)).unwrap().remove(0);
    let progress = TaskReport::Heartbeat { progress: Some(payload("progress", bytes)) };
    block_on(store.report_task(task.id.clone(), task.claim, progress, DEADLINE)).unwrap();
    let completed = TaskReport::Completed(payload("result", bytes));
    block_on(store.report_task(task.id, task.claim, completed, DEADLINE)).unwrap();
    let next = block_on(store.read_run(key(id), None)).unwrap().unwrap();
    commit(
        store,
        &next,
        1,
        next.next_index.0 - 1,
        vec![RunContinued { input: payload("continued", bytes), checkpoint: None }.into()],
    );
    let knows = std::sync::Arc::new([(head.kind.clone(), vec![None])].into());
    let claim = ClaimRuns { worker: worker(), namespace: Default::default(), knows, limit: 1 };
    let head = block_on(store.claim_runs(claim)).unwrap().remove(0).head;
    let failure = Failure::fatal(format!("{CANARY} {}", "x".repeat(bytes.min(1_000)))).with_details(payload("details", bytes));
    let ended = head.next_index.0 - 1;
    commit(store, &head, head.next_commit, ended, vec![RunFailed { failure, attempts: None }.into()]);
}

/// Returns a run of another kind, so that it is not claimed in place of the deleted one.
fn beside(id: &str) -> NewRun {
    let mut run = new_run(id);
    run.started.kind = name("beside");
    run
}

/// Returns the files of the directory that contain the canary, each with its first offset.
fn found(directory: &Path) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let call_id = bytes.windows(CANARY.len()).position(|window| window == CANARY.as_bytes());
        found.extend(call_id.map(|call_id| (path.file_name().unwrap().to_string_lossy().into_owned(), call_id)));
    }
    found
}

fn until_erased(directory: &Path) {
    let begun = Instant::now();
    while !found(directory).is_empty() {
        assert!(begun.elapsed() < DEADLINE, "still there: {:?}", found(directory));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn no_file_holds_what_a_deleted_run_held() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let sizes = [10, 700, 5_000, 300_000];
    for (number, bytes) in sizes.into_iter().enumerate() {
        // Other runs beside it, so that pages are shared, split and joined.
        for other in 0..20 {
            block_on(store.start_run(beside(&format!("before-{number}-{other}")), None)).unwrap();
        }
        live(&store, &format!("r{number}"), bytes);
        for other in 0..20 {
            block_on(store.start_run(beside(&format!("after-{number}-{other}")), None)).unwrap();
        }
    }
    assert!(!found(directory.path()).is_empty(), "the canary is present before");
    for number in 0..sizes.len() {
        let delete = Delete::Run { key: key(&format!("r{number}")), reason: "asked for".to_owned() };
        assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
    }
    until_erased(directory.path());
    drop(store);
    assert_eq!(found(directory.path()), []);
    // The log was truncated midway, which is no damage.
    let store = open(directory.path());
    assert!(block_on(store.read_run(key("after-0-0"), None)).unwrap().is_some());
    assert!(block_on(store.read_run(key("r0"), None)).unwrap().is_none());
}

/// A process that is killed before it truncates its log leaves that to the next one.
#[test]
fn what_a_killed_process_deleted_is_erased_by_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    for (number, bytes) in [10, 5_000].into_iter().enumerate() {
        live(&store, &format!("r{number}"), bytes);
    }
    // A reader keeps the log from being truncated.
    let reader = rusqlite::Connection::open(directory.path().join("onward.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM runs;").unwrap();
    for number in 0..2 {
        let delete = Delete::Run { key: key(&format!("r{number}")), reason: "asked for".to_owned() };
        assert_eq!(block_on(store.delete_runs(delete)).unwrap(), 1);
    }
    let killed = copy(directory.path());
    drop(store);
    assert!(!found(killed.path()).is_empty(), "the canary is in the log");
    let store = open(killed.path());
    until_erased(killed.path());
    assert!(block_on(store.read_run(key("r0"), None)).unwrap().is_none());
    block_on(store.start_run(beside("after"), None)).unwrap();
    // Killed again: a log that was truncated is no damage.
    let again = copy(killed.path());
    assert!(EmbeddedStore::examine(again.path()).unwrap().is_none());
    assert!(block_on(open(again.path()).read_run(key("after"), None)).unwrap().is_some());
}
