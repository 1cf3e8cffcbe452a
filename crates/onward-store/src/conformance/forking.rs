//! Z6: a fork of a later turn has the logs of the turns before it, and nothing in them is executed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use onward_core::event::{Checkpoint, RunContinued};
use onward_core::reopen::{self, Fork, Forked};
use onward_core::task::TaskOptions;
use onward_core::{Event, Index, Payload, Record, Status};

use super::block_on;
use super::kit::{
    Kit, approval, completed, decision, json, key, new_run, refused, resume, seconds, settled, signal, task, terminate, timer,
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

async fn log_of(kit: &Kit, id: &str, generation: u32) -> Result<Vec<Record>, StoreError> {
    kit.store().read_log(key(id), Some(generation), Index(0), usize::MAX).await
}

/// Forks the run at the last commit of its current turn.
pub(super) async fn forked(kit: &Kit, id: &str, wanted: &str) -> Forked {
    let (head, records) = (kit.head(id).await, kit.records(id).await);
    let mut earlier = Vec::new();
    for generation in 0..head.generation {
        earlier.push(log_of(kit, id, generation).await.unwrap());
    }
    reopen::fork(&head, earlier, &records, &Fork { index: None, ..fork(wanted, 0, false) }, kit.now()).unwrap()
}

pub(super) async fn put(kit: &Kit, id: &str, forked: Forked) {
    let what = Restore::Run { logs: forked.logs };
    kit.store().restore_run(RestoreRun { key: key(id), what, outbox: forked.outbox }).await.unwrap();
}

/// Starts a run and brings it to its third turn; each turn has a task, a timer and an approval.
async fn talking(kit: &Kit, id: &str) {
    let mut run = new_run(id);
    run.started.seed = 7;
    let mut held = kit.start_held_as(run).await;
    for turn in 0..3 {
        let due = kit.now().after(seconds(60));
        kit.commit(&mut held, vec![task(0, TaskOptions::default()), timer(1, due), approval(2, None), approval(3, None)]).await;
        kit.append(id, signal(Some(&format!("s-{turn}")))).await.unwrap();
        kit.append(id, decision(turn, 3, "anna")).await.unwrap();
        kit.read_on(&mut held).await;
        if turn < 2 {
            kit.store().commit(held.commit(vec![checkpoint(json(&turn.to_string()))])).await.unwrap();
            held = kit.claim_one("w").await;
        } else {
            kit.commit(&mut held, vec![settled()]).await;
        }
    }
}

pub async fn a_fork_of_a_later_turn_has_the_logs_before_it(mut kit: Kit) {
    talking(&kit, "r").await;
    let (before, claimed) = (kit.records("r").await, kit.claim_tasks("t", 10).await);
    assert_eq!(claimed.len(), 1);
    kit.pass(seconds(20));
    let wanted = forked(&kit, "r", "f").await;
    put(&kit, "f", wanted).await;
    kit.reopen();
    let head = kit.head("f").await;
    // Z8: an approval of the turn is requested again.
    assert_eq!((head.generation, head.status, head.created_at), (2, Status::Paused, kit.now()));
    assert_eq!(kit.claim_tasks("t", 10).await.len(), 0);
    refused(kit.append("f", resume()).await, "approval_needed");
    kit.append("f", decision(2, 3, "again")).await.unwrap();
    kit.append("f", resume()).await.unwrap();
    assert_eq!(kit.head("f").await.status, Status::Pending);
    assert_eq!(head.origin_incarnation(), Some(11), "all its logs have the incarnation of the fork");
    for generation in 0..2 {
        let (theirs, own) = (log_of(&kit, "r", generation).await.unwrap(), log_of(&kit, "f", generation).await.unwrap());
        assert_eq!(own[1..], theirs[1..], "the records are those of the original");
        let past = kit.store().read_run(key("f"), Some(generation)).await.unwrap().unwrap();
        assert_eq!((past.generation, past.status, past.parent), (generation, Status::Completed, None));
        assert_eq!(own[0].started().unwrap().origin_seed(), Some(11));
    }
    kit.check_run(&key("f")).await;
    assert_eq!(kit.records("r").await, before, "Z3");
    // Only what was open in the forked turn is open.
    let tasks = kit.claim_tasks("t", 10).await;
    let tasks: Vec<_> = tasks.into_iter().filter(|task| task.id.run == key("f")).map(|task| task.id.generation).collect();
    assert_eq!(tasks, [2]);
    let asked = kit.store().list_waits(Default::default()).await.unwrap();
    let asked: Vec<_> = asked.iter().filter(|wait| wait.run == key("f")).map(|wait| wait.generation).collect();
    assert_eq!(asked, [2]);
    // Idempotency records are copied: repeats of signals and decisions are recognized.
    for turn in 0..3 {
        assert!(kit.append("f", signal(Some(&format!("s-{turn}")))).await.unwrap().repeated);
        match turn {
            2 => drop(refused(kit.append("f", decision(turn, 3, "anna")).await, "signal_lost")),
            _ => assert!(kit.append("f", decision(turn, 3, "anna")).await.unwrap().repeated),
        }
        refused(kit.append("f", decision(turn, 3, "ben")).await, "signal_lost");
    }
    kit.pass(seconds(40));
    kit.expire().await;
    assert!(!kit.log("f").await.contains(&"timer_fired"), "the timer keeps its remaining time");
    kit.pass(seconds(20));
    kit.expire().await;
    assert_eq!(kit.log("f").await.iter().filter(|name| **name == "timer_fired").count(), 1);
}

pub async fn a_fork_of_a_later_turn_needs_no_original(mut kit: Kit) {
    talking(&kit, "r").await;
    let wanted = forked(&kit, "r", "f").await;
    put(&kit, "f", wanted).await;
    let logs = [log_of(&kit, "f", 0).await.unwrap(), log_of(&kit, "f", 1).await.unwrap(), kit.records("f").await];
    kit.append("r", terminate()).await.unwrap();
    let delete = |id: &str| Delete::Run { key: key(id), reason: String::new() };
    kit.store().delete_runs(delete("r")).await.unwrap();
    kit.reopen();
    for (generation, log) in (0..).zip(&logs) {
        assert_eq!(log_of(&kit, "f", generation).await.unwrap(), *log);
    }
    // The fork continues, is forked itself, and is deleted as a whole after its retention.
    kit.append("f", decision(2, 3, "again")).await.unwrap(); // Z8
    kit.append("f", resume()).await.unwrap();
    let mut held = kit.claim_one("v").await;
    assert_eq!(held.key(), key("f"));
    held.horizon = kit.records("f").await.last().unwrap().last_index();
    kit.store().commit(held.commit(vec![checkpoint(json("2"))])).await.unwrap();
    let mut held = kit.claim_one("v").await;
    kit.commit(&mut held, vec![settled()]).await;
    let wanted = forked(&kit, "f", "g").await;
    assert_eq!(wanted.logs.len(), 4);
    put(&kit, "g", Forked { outbox: Vec::new(), ..wanted }).await;
    kit.commit(&mut held, vec![completed()]).await;
    kit.reopen();
    let retention = Retention { default: seconds(0), ..Retention::default() };
    assert_eq!(kit.store().delete_runs(Delete::Expired { retention, limit: 10 }).await.unwrap(), 1);
    for generation in [0, 1, 2, 3] {
        assert_eq!(kit.store().read_run(key("f"), Some(generation)).await.unwrap(), None);
        refused(log_of(&kit, "f", generation).await, "run_not_found");
        assert!(log_of(&kit, "g", generation).await.is_ok());
    }
    kit.check_run(&key("g")).await;
}

/// Z6, F27: a fork of several hundred large turns is visible as a whole or not at all.
pub async fn a_long_fork_is_there_whole_or_not_at_all(mut kit: Kit) {
    const TURNS: u32 = 400;
    let words = json(&format!("\"{}\"", "what was said ".repeat(1_500)));
    let held = kit.start_held("r").await;
    kit.store().commit(held.commit(vec![checkpoint(words.clone())])).await.unwrap();
    let mut held = kit.claim_one("w").await;
    kit.commit(&mut held, vec![settled()]).await;
    let short = forked(&kit, "r", "f").await;
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
    let (store, seen_over) = (kit.store(), over.clone());
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
    put(&kit, "f", Forked { logs: logs.clone(), outbox: Vec::new() }).await;
    over.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    kit.reopen();
    for (generation, log) in (0..).zip(&logs) {
        assert_eq!(log_of(&kit, "f", generation).await.unwrap(), *log);
    }
}
