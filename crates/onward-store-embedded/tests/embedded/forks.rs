//! Forks of long conversations: a process is killed while it writes one, which is then complete or absent (Z6).

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use onward_core::event::{Checkpoint, RunContinued};
use onward_core::reopen::{self, Fork, Forked, OpenChildren};
use onward_core::run::Commit;
use onward_core::{CommitId, Event, Index, Log, Record, RunHead};
use onward_store::conformance::block_on;
use onward_store::{ClaimRuns, Delete, Restore, RestoreRun, Store};
use onward_store_embedded::EmbeddedStore;

use crate::crash::{run_child, start_child};
use crate::damage::copy;
use crate::workload::{json, key, name, new_run, open, remember, step_completed, worker};

const TURNS: u32 = 400;

fn checkpoint() -> Event {
    let (kept, keys, abandoned_children, tally) = Default::default();
    let (state, prelude, awaits, leaf, depth, handoff) = (json("1"), Some(0), None, None, 0, None);
    let checkpoint = Checkpoint { state, prelude, awaits, leaf, depth, kept, keys, handoff, abandoned_children, tally };
    RunContinued { input: json("null"), checkpoint: Some(Box::new(checkpoint)) }.into()
}

/// Returns a directory with a run of many turns, each with a large state.
fn talked() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path());
    let mut head = block_on(store.start_run(new_run("r"), Some(worker()))).unwrap().claimed.unwrap().head;
    for turn in 0..TURNS {
        let words = json(format!("\"turn {turn}: {}\"", "what was said ".repeat(1_000)));
        let commit = Commit {
            key: key("r"),
            generation: turn,
            epoch: head.epoch,
            n: 0,
            commit_id: CommitId(u64::from(turn) + 1),
            horizon: Index(0),
            events: vec![step_completed(0, words), checkpoint()],
            waits: false,
            end_over_unread: false,
            is_while_paused: false,
            carries: Default::default(),
        };
        block_on(store.commit(commit)).unwrap();
        let knows = Arc::new(BTreeMap::from([(name("order"), vec![None])]));
        let request = ClaimRuns { worker: worker(), namespace: Default::default(), knows, limit: 1 };
        head = block_on(store.claim_runs(request)).unwrap().remove(0).head;
    }
    directory
}

fn logs_of(store: &EmbeddedStore, id: &str, head: &RunHead) -> Vec<Vec<Record>> {
    let read = |generation| block_on(store.read_log(key(id), Some(generation), Index(0), usize::MAX)).unwrap();
    (0..=head.generation).map(read).collect()
}

fn forked(store: &EmbeddedStore) -> Forked {
    let head = block_on(store.read_run(key("r"), None)).unwrap().unwrap();
    let mut logs = logs_of(store, "r", &head);
    let records = logs.pop().unwrap();
    let fork = Fork {
        key: key("f"),
        index: None,
        is_reset: false,
        keep_signals: true,
        children: OpenChildren::Await,
        version: None,
        seed: 11,
        request_id: String::new(),
        reason: String::new(),
        include_outcome_unknown: false,
        caller: None,
        budget_max: None,
    };
    reopen::fork(&head, logs, &records, &fork, head.updated_at).unwrap()
}

/// Writes the fork, in the other process.
pub fn write_fork(store: &EmbeddedStore) {
    let Forked { logs, outbox } = forked(store);
    println!("child begins fork");
    std::io::stdout().flush().unwrap();
    block_on(store.restore_run(RestoreRun { key: key("f"), what: Restore::Run { logs }, outbox })).unwrap();
    println!("child finished");
}

/// Returns whether the fork exists, complete; the directory is intact either way.
fn survived(directory: &Path) -> bool {
    let store = open(directory);
    let found = remember(&store);
    assert_eq!(block_on(store.read_run(key("r"), None)).unwrap().unwrap().generation, TURNS);
    let Some(head) = block_on(store.read_run(key("f"), None)).unwrap() else {
        assert_eq!(found.runs.len(), 1);
        return false;
    };
    let logs = logs_of(&store, "f", &head);
    assert_eq!(logs, forked(&store).logs);
    logs.into_iter().for_each(|log| drop(Log::load(log).expect("the log is complete")));
    true
}

#[test]
fn a_fork_whose_process_is_killed_is_there_whole_or_not_at_all() {
    let original = talked();
    let (mut with, mut without) = (0, 0);
    for point in ["before_batch", "after_operation", "before_commit", "after_commit", "before_reply", "after_reply"] {
        let directory = copy(original.path());
        let ended = run_child("fork", directory.path(), &[("ONWARD_FAILPOINT", point)]);
        assert_eq!(ended.status.signal(), Some(9), "{point}: {}", ended.last_line);
        let is_there = survived(directory.path());
        assert_eq!(is_there, ["after_commit", "before_reply", "after_reply"].contains(&point), "{point}");
    }
    // Then at random times.
    let seed = std::env::var("ONWARD_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1_u64);
    println!("ONWARD_SEED={seed}");
    let directory = copy(original.path());
    let mut child = start_child("fork", directory.path());
    let began = Instant::now();
    assert!(child.wait().unwrap().success());
    let whole = began.elapsed();
    println!("{TURNS} turns take {whole:?}");
    for round in 0..12_u32 {
        let directory = copy(original.path());
        let mut child = start_child("fork", directory.path());
        let share = onward_core::random::derive(seed, &onward_core::CallId::root(round), 0) % 1_000;
        std::thread::sleep(whole * share as u32 / 1_000);
        // The process may have ended already.
        drop(child.kill());
        child.wait().unwrap();
        if survived(directory.path()) { with += 1 } else { without += 1 }
    }
    println!("{with} were there and {without} were not");
}

/// Deleting the original leaves its fork complete, including shared payloads.
#[test]
fn a_deleted_original_leaves_its_fork() {
    let directory = talked();
    let store = open(directory.path());
    write_fork(&store);
    let logs = forked(&store).logs;
    let input = onward_core::run::Input::new(onward_core::event::TerminateRequested { reason: String::new(), reset_to: None });
    block_on(store.append_input(key("r"), input)).unwrap();
    block_on(store.delete_runs(Delete::Run { key: key("r"), reason: String::new() })).unwrap();
    drop(store);
    let store = open(directory.path());
    let head = block_on(store.read_run(key("f"), None)).unwrap().unwrap();
    assert_eq!(logs_of(&store, "f", &head), logs);
    assert_eq!(block_on(store.read_run(key("r"), None)).unwrap(), None);
}
