//! Z6: a fork of a later turn has the logs of the turns before it, and nothing in them is executed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::event::{Checkpoint, RunContinued};
use onward_core::reopen::{self, Fork, Forked};
use onward_core::task::TaskOptions;
use onward_core::{Event, Index, Payload, Record, Status};

use super::block_on;
use super::harness::{
    Harness, approval, completed, decision, json, key, new_run, refused, resume, seconds, settled, signal, task, terminate, timer,
};
use super::restoring::fork;
use crate::{Delete, Restore, RestoreRun, Retention, StoreError};

/// Returns the event that ends a turn.
pub(super) fn checkpoint(state: Payload) -> Event {
    let (kept, keys, abandoned_children, tally) = Default::default();
    let (prelude, awaits, leaf, depth, handoff) = (Some(0), None, None, 0, None);
    let checkpoint = Checkpoint { state, prelude, awaits, leaf, depth, kept, keys, handoff, abandoned_children, tally };
    RunContinued { input: json("null"), checkpoint: Some(Box::new(checkpoint)) }.into()
}

async fn log_of(harness: &Harness, id: &str, generation: u32) -> Result<Vec<Record>, StoreError> {
    harness.store().read_log(key(id), Some(generation), Index(0), usize::MAX).await
}

/// Forks the run at the last commit of its current turn.
pub(super) async fn forked(harness: &Harness, id: &str, wanted: &str) -> Forked {
    let (head, records) = (harness.head(id).await, harness.records(id).await);
    let mut earlier = Vec::new();
    for generation in 0..head.generation {
        earlier.push(log_of(harness, id, generation).await.unwrap());
    }
    reopen::fork(&head, earlier, &records, &Fork { index: None, ..fork(wanted, 0, false) }, harness.now()).unwrap()
}

pub(super) async fn put(harness: &Harness, id: &str, forked: Forked) {
    let what = Restore::Run { logs: forked.logs };
    harness.store().restore_run(RestoreRun { key: key(id), what, outbox: forked.outbox }).await.unwrap();
}

/// Starts a run and brings it to its third turn; each turn has a task, a timer and an approval.
async fn start_third_turn(harness: &Harness, id: &str) {
    let mut run = new_run(id);
    run.started.seed = 7;
    let mut held = harness.start_held_as(run).await;
    for turn in 0..3 {
        let due = harness.now().after(seconds(60));
        harness
            .commit(&mut held, vec![task(0, TaskOptions::default()), timer(1, due), approval(2, None), approval(3, None)])
            .await;
        harness.append(id, signal(Some(&format!("s-{turn}")))).await.unwrap();
        harness.append(id, decision(turn, 3, "anna")).await.unwrap();
        harness.read_on(&mut held).await;
        if turn < 2 {
            harness.store().commit(held.commit(vec![checkpoint(json(&turn.to_string()))])).await.unwrap();
            held = harness.claim_one("w").await;
        } else {
            harness.commit(&mut held, vec![settled()]).await;
        }
    }
}

pub async fn a_fork_of_a_later_turn_has_the_logs_before_it(mut harness: Harness) {
    start_third_turn(&harness, "r").await;
    let (before, claimed) = (harness.records("r").await, harness.claim_tasks("t", 10).await);
    assert_eq!(claimed.len(), 1);
    harness.pass(seconds(20));
    let wanted = forked(&harness, "r", "f").await;
    put(&harness, "f", wanted).await;
    harness.reopen();
    let head = harness.head("f").await;
    // Z8: an approval of the turn is requested again.
    assert_eq!((head.generation, head.status, head.created_at), (2, Status::Paused, harness.now()));
    assert_eq!(harness.claim_tasks("t", 10).await.len(), 0);
    refused(harness.append("f", resume()).await, "approval_needed");
    harness.append("f", decision(2, 3, "again")).await.unwrap();
    harness.append("f", resume()).await.unwrap();
    assert_eq!(harness.head("f").await.status, Status::Pending);
    assert_eq!(head.origin_incarnation(), Some(11), "all its logs have the incarnation of the fork");
    for generation in 0..2 {
        let (theirs, own) = (log_of(&harness, "r", generation).await.unwrap(), log_of(&harness, "f", generation).await.unwrap());
        assert_eq!(own[1..], theirs[1..], "the records are those of the original");
        let past = harness.store().read_run(key("f"), Some(generation)).await.unwrap().unwrap();
        assert_eq!((past.generation, past.status, past.parent), (generation, Status::Completed, None));
        assert_eq!(own[0].started().unwrap().origin_seed(), Some(11));
    }
    harness.check_run(&key("f")).await;
    assert_eq!(harness.records("r").await, before, "Z3");
    // Only what was open in the forked turn is open.
    let tasks = harness.claim_tasks("t", 10).await;
    let tasks: Vec<_> = tasks.into_iter().filter(|task| task.id.run == key("f")).map(|task| task.id.generation).collect();
    assert_eq!(tasks, [2]);
    let waits = harness.store().list_waits(Default::default()).await.unwrap();
    let waits: Vec<_> = waits.iter().filter(|wait| wait.run == key("f")).map(|wait| wait.generation).collect();
    assert_eq!(waits, [2]);
    // Idempotency records are copied: repeats of signals and decisions are recognized.
    for turn in 0..3 {
        assert!(harness.append("f", signal(Some(&format!("s-{turn}")))).await.unwrap().repeated);
        match turn {
            2 => drop(refused(harness.append("f", decision(turn, 3, "anna")).await, "signal_lost")),
            _ => assert!(harness.append("f", decision(turn, 3, "anna")).await.unwrap().repeated),
        }
        refused(harness.append("f", decision(turn, 3, "ben")).await, "signal_lost");
    }
    harness.pass(seconds(40));
    harness.expire().await;
    assert!(!harness.log("f").await.contains(&"timer_fired"), "the timer keeps its remaining time");
    harness.pass(seconds(20));
    harness.expire().await;
    assert_eq!(harness.log("f").await.iter().filter(|name| **name == "timer_fired").count(), 1);
}

pub async fn a_fork_of_a_later_turn_needs_no_original(mut harness: Harness) {
    start_third_turn(&harness, "r").await;
    let wanted = forked(&harness, "r", "f").await;
    put(&harness, "f", wanted).await;
    let logs = [log_of(&harness, "f", 0).await.unwrap(), log_of(&harness, "f", 1).await.unwrap(), harness.records("f").await];
    harness.append("r", terminate()).await.unwrap();
    let delete = |id: &str| Delete::Run { key: key(id), reason: String::new() };
    harness.store().delete_runs(delete("r")).await.unwrap();
    harness.reopen();
    for (generation, log) in (0..).zip(&logs) {
        assert_eq!(log_of(&harness, "f", generation).await.unwrap(), *log);
    }
    // The fork continues, is forked itself, and is deleted as a whole after its retention.
    harness.append("f", decision(2, 3, "again")).await.unwrap(); // Z8
    harness.append("f", resume()).await.unwrap();
    let mut held = harness.claim_one("v").await;
    assert_eq!(held.key(), key("f"));
    held.horizon = harness.records("f").await.last().unwrap().last_index();
    harness.store().commit(held.commit(vec![checkpoint(json("2"))])).await.unwrap();
    let mut held = harness.claim_one("v").await;
    harness.commit(&mut held, vec![settled()]).await;
    let wanted = forked(&harness, "f", "g").await;
    assert_eq!(wanted.logs.len(), 4);
    put(&harness, "g", Forked { outbox: Vec::new(), ..wanted }).await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    let retention = Retention { default: seconds(0), ..Retention::default() };
    assert_eq!(harness.store().delete_runs(Delete::Expired { retention, limit: 10 }).await.unwrap(), 1);
    for generation in [0, 1, 2, 3] {
        assert_eq!(harness.store().read_run(key("f"), Some(generation)).await.unwrap(), None);
        refused(log_of(&harness, "f", generation).await, "run_not_found");
        assert!(log_of(&harness, "g", generation).await.is_ok());
    }
    harness.check_run(&key("g")).await;
}

/// Z6, F27: a fork of several hundred large turns is visible as a whole or not at all.
pub async fn a_long_fork_is_there_whole_or_not_at_all(mut harness: Harness) {
    const TURNS: u32 = 400;
    let words = json(&format!("\"{}\"", "what was said ".repeat(1_500)));
    let held = harness.start_held("r").await;
    harness.store().commit(held.commit(vec![checkpoint(words.clone())])).await.unwrap();
    let mut held = harness.claim_one("w").await;
    harness.commit(&mut held, vec![settled()]).await;
    let short = forked(&harness, "r", "f").await;
    // The turns in between are copies of the first.
    let [first, last] = &short.logs[..] else { panic!("it has two turns") };
    let turn = |generation: u32, log: &[Record]| {
        let mut log = log.to_vec();
        if let Some(Event::RunStarted(started)) = log[0].events.first_mut() {
            started.generation = generation;
            started.first_seed = (generation > 0).then_some(11);
            started.checkpoint = last[0].started().unwrap().checkpoint.clone().filter(|_| generation > 0);
        }
        log
    };
    let mut logs: Vec<_> = (0..TURNS).map(|generation| turn(generation, first)).collect();
    logs.push(turn(TURNS, last));
    let over = Arc::new(AtomicBool::new(false));
    let (store, seen_over) = (harness.store(), over.clone());
    let reader = std::thread::spawn(move || {
        let mut seen = 0;
        while !seen_over.load(Ordering::SeqCst) || seen == 0 {
            let Some(head) = block_on(store.read_run(key("f"), None)).unwrap() else { continue };
            assert_eq!(head.generation, TURNS);
            for generation in [0, 1, TURNS / 2, TURNS - 1, TURNS] {
                let log = block_on(store.read_log(key("f"), Some(generation), Index(0), usize::MAX)).unwrap();
                assert!(generation == TURNS || log.last().unwrap().ends_log(), "{generation}");
            }
            seen += 1;
        }
    });
    put(&harness, "f", Forked { logs: logs.clone(), outbox: Vec::new() }).await;
    over.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    harness.reopen();
    for (generation, log) in (0..).zip(&logs) {
        assert_eq!(log_of(&harness, "f", generation).await.unwrap(), *log);
    }
}
