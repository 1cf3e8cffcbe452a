//! Delivery of runs to workers, without losing an input on the way.

use std::sync::Arc;

use onward_core::event::SignalReceived;
use onward_core::run::Input;
use onward_core::{Payload, Status};
use onward_runtime::{BlockReason, StartRequest};
use onward_store::{MemoryStore, Store};

use crate::faulty::{Happening, When};
use crate::kit::*;

fn signal_at(memory: &MemoryStore, id: &str) {
    let signal = SignalReceived { name: name("x"), payload: Payload::null(), signal_id: None, sender: None };
    now(memory.append_input(key(id), Input::signal(signal))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_started_run_is_handed_to_the_worker_without_a_claim() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    assert!(waits(worker.next_runs(1)).await);
    let claims = kit.store.calls("claim_runs");
    for number in 0..50 {
        let started = kit.runtime.start_run(start(&format!("r{number}"))).await.unwrap();
        assert_eq!((started.head.status, started.claimed), (Status::Running, None));
        let runs = worker.next_runs(8).await;
        assert_eq!((runs.len(), runs[0].head.key.clone()), (1, key(&format!("r{number}"))));
        assert_eq!(runs[0].records.as_ref().unwrap().len(), 1);
    }
    assert_eq!(kit.store.calls("claim_runs"), claims);
}

#[tokio::test(start_paused = true)]
async fn an_idle_worker_polls_once_per_fallback_and_a_notification_wakes_it() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let other = kit.other_runtime();
    assert!(waits(worker.next_runs(1)).await);
    assert!(kit.store.calls("claim_runs") <= 101, "{}", kit.store.calls("claim_runs"));
    let begun = tokio::time::Instant::now();
    let late = async {
        tokio::task::yield_now().await;
        other.start_run(start("r")).await.unwrap();
    };
    let (runs, ()) = tokio::join!(worker.next_runs(1), late);
    assert_eq!((runs.len(), begun.elapsed()), (1, seconds(0)));
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_notifications_polls() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let other = kit.other_runtime();
    assert!(waits(worker.next_runs(1)).await);
    kit.store.go_deaf();
    other.start_run(start("r")).await.unwrap();
    assert_eq!(tokio::time::timeout(seconds(2), worker.next_runs(1)).await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_kind_or_version_the_worker_does_not_know_is_not_given_to_it() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.start_run(StartRequest { kind: name("unknown"), ..start("a") }).await.unwrap();
    kit.runtime.start_run(StartRequest { version: Some(name("v2")), ..start("b") }).await.unwrap();
    assert!(waits(worker.next_runs(1)).await);
    assert_eq!(kit.head("a").await.status, Status::Pending);
    assert_eq!(kit.head("b").await.status, Status::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_full_worker_gets_the_rest_when_it_has_room() {
    let kit = Harness::new();
    let worker = kit.runtime.join_worker(profile("w", 2));
    for id in ["a", "b", "c", "d"] {
        kit.start(id).await;
    }
    let runs: Vec<HeldRun> = worker.next_runs(8).await.iter().map(HeldRun::of).collect();
    assert_eq!(runs.len(), 2);
    assert_eq!(kit.head("c").await.status, Status::Pending);
    assert!(waits(worker.next_runs(8)).await);
    worker.release(runs[0].key.clone(), runs[0].epoch).await.unwrap();
    // The released run is pending again, after the one that has waited longer.
    assert_eq!(worker.next_runs(8).await[0].head.key, key("c"));
}

#[tokio::test(start_paused = true)]
async fn the_less_busy_of_two_workers_is_handed_the_run() {
    let kit = Harness::new();
    let (one, two) = (kit.worker("one"), kit.worker("two"));
    for id in ["a", "b"] {
        kit.start(id).await;
    }
    assert_eq!((one.next_runs(8).await.len(), two.next_runs(8).await.len()), (1, 1));
}

/// CE14, for a run that is started here.
#[tokio::test(start_paused = true)]
async fn inputs_between_the_start_and_the_open_inbox_are_kept_in_order() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.store.once("start_run", When::After, Happening::Do(Box::new(|memory| signal_at(memory, "r"))));
    kit.start("r").await;
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    let held = kit.next_held(&worker).await;
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    let diary = open_diary(&worker, &held);
    assert_eq!(diary.indexes(), [1, 2, 3]);
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!((diary.indexes(), diary.lost()), (vec![1, 2, 3, 4], 0));
}

/// CE14, for a run that is claimed: its key is not known before the store has leased it.
#[tokio::test(start_paused = true)]
async fn inputs_between_the_claim_and_its_answer_are_kept() {
    let kit = Harness::new();
    kit.start("r").await;
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    kit.store.once("claim_runs", When::After, Happening::Do(Box::new(|memory| signal_at(memory, "r"))));
    let worker = kit.worker("w");
    let runs = worker.next_runs(1).await;
    assert_eq!(runs[0].records.as_ref().unwrap().len(), 2);
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!(open_diary(&worker, &HeldRun::of(&runs[0])).indexes(), [2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_claim_among_too_many_inputs_leaves_the_log_to_be_read() {
    let kit = Harness::new();
    kit.start("r").await;
    let storm = |memory: &MemoryStore| (0..5_000).for_each(|_| signal_at(memory, "r"));
    kit.store.once("claim_runs", When::After, Happening::Do(Box::new(storm)));
    let worker = kit.worker("w");
    let runs = worker.next_runs(1).await;
    assert_eq!(runs[0].records, None);
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!(open_diary(&worker, &HeldRun::of(&runs[0])).indexes(), [5_001]);
}

#[tokio::test(start_paused = true)]
async fn commits_and_other_runs_inputs_are_not_pushed() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    kit.start("other").await;
    kit.runtime.signal_run(&key("other"), signal("x")).await.unwrap();
    kit.commit(&mut held, vec![awaited(0, "x")]).await;
    assert!(diary.indexes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_next_generation_is_not_pushed_into_the_old_ones_inbox() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    kit.commit(&mut held, vec![continued()]).await;
    for _ in 0..3 {
        kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    }
    assert!(diary.indexes().is_empty());
    let runs = worker.next_runs(1).await;
    assert_eq!((runs[0].head.generation, runs[0].records.as_ref().unwrap().len()), (1, 4));
    worker.close_inbox(&held.key, held.epoch);
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!(open_diary(&worker, &HeldRun::of(&runs[0])).indexes(), [4], "closing the old one leaves the new one");
}

#[tokio::test(start_paused = true)]
async fn a_start_with_a_dropped_request_still_runs() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    assert!(waits(worker.next_runs(1)).await);
    let _never = kit.store.stall_once("start_run", When::After);
    let waiting = tokio::spawn(async move { worker.next_runs(1).await });
    tokio::task::yield_now().await;
    let (begun, patience) = (tokio::time::Instant::now(), std::time::Duration::from_millis(300));
    assert!(tokio::time::timeout(patience, kit.runtime.start_run(start("r"))).await.is_err());
    assert_eq!(kit.head("r").await.status, Status::Running, "leased without the worker's knowledge");
    assert_eq!(waiting.await.unwrap()[0].head.key, key("r"));
    assert!(begun.elapsed() <= patience * 2, "found at once, not with the fallback");
}

#[tokio::test(start_paused = true)]
async fn a_start_whose_answer_was_lost_is_worked_on_all_the_same() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.store.fail_once("start_run", When::After);
    refused(kit.runtime.start_run(start("r")).await, "store_unavailable");
    assert_eq!(worker.next_runs(1).await[0].head.key, key("r"));
    let diary = open_diary(&worker, &HeldRun { epoch: kit.head("r").await.epoch, ..held_key("r") });
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!((diary.indexes(), diary.lost()), (vec![1], 0));
}

/// W1: the store has leased the run and the reply was lost; the worker's heartbeats would keep the lease forever.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_answer_was_lost_is_worked_on_all_the_same() {
    let kit = Harness::new();
    kit.start("r").await;
    let worker = kit.worker("w");
    kit.store.fail_once("claim_runs", When::After);
    let patience = std::time::Duration::from_millis(300);
    assert!(tokio::time::timeout(patience, worker.next_runs(1)).await.is_err());
    assert_eq!(kit.head("r").await.status, Status::Running, "leased without the worker's knowledge");
    let runs = tokio::time::timeout(seconds(5), worker.next_runs(1)).await.expect("it is found again");
    assert_eq!(runs[0].head.key, key("r"));
}

/// W1, for a claim of one specific run.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_taken_without_an_answer_is_free_again() {
    let kit = Harness::new();
    kit.start("r").await;
    let driver = kit.runtime.join_worker(profile("driver", 1));
    kit.store.fail_once("claim_run", When::After);
    refused(driver.claim_run(key("r"), onward_runtime::DriveInput::Nothing).await, "store_unavailable");
    let other = kit.other_runtime().join_worker(profile("w", 1));
    assert!(waits(other.next_runs(1)).await, "the driver has it and does not know");
    assert_eq!(tokio::time::timeout(seconds(5), driver.next_runs(1)).await.unwrap()[0].head.key, key("r"));
}

/// W1: the worker has released the run, and the store still has its lease.
#[tokio::test(start_paused = true)]
async fn a_release_that_did_not_come_through_is_made_up_for() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    kit.store.fail_once("release_run", When::Before);
    assert!(worker.release(held.key.clone(), held.epoch).await.is_err());
    assert_eq!(kit.head("r").await.status, Status::Running, "leased, but not held by any worker");
    let runs = tokio::time::timeout(seconds(5), worker.next_runs(1)).await.expect("it is free again");
    assert!(runs[0].head.epoch > held.epoch);
}

/// A worker keeps the leases that it knows of, whether the run is idle, on its way or about to be started.
#[tokio::test(start_paused = true)]
async fn comparing_leases_takes_nothing_from_a_worker_that_knows() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    kit.start("s").await;
    kit.store.fail_once("release_run", When::Before);
    assert!(worker.release(key("nobody"), held.epoch).await.is_err());
    let runs = worker.next_runs(2).await;
    assert_eq!(runs[0].head.key, key("s"));
    assert!(waits(worker.next_runs(1)).await);
    assert_eq!((kit.store.calls("list_leases"), diary.lost()), (1, 0));
    for id in ["r", "s"] {
        assert_eq!(kit.head(id).await.status, Status::Running, "{id}");
    }
}

/// Replies of one of several databases can be lost unnoticed, and requests can be applied late: so leases are compared
/// regularly.
#[tokio::test(start_paused = true)]
async fn leases_of_a_shared_store_are_compared_at_times() {
    let kit = Harness::new();
    kit.store.share();
    let worker = kit.worker("w");
    assert!(waits(worker.next_runs(1)).await);
    let started = onward_core::event::RunStarted::new(name("order"), text("in"), 7);
    let late = onward_core::run::NewRun { key: key("r"), started, signal: None };
    kit.store.memory.start_run(late, Some(worker.id().clone())).await.unwrap();
    assert!(waits(worker.next_runs(1)).await, "no comparison is due");
    kit.advance(kit.runtime.options().lease);
    assert_eq!(tokio::time::timeout(seconds(5), worker.next_runs(1)).await.unwrap()[0].head.key, key("r"));
}

fn held_key(id: &str) -> HeldRun {
    HeldRun { key: key(id), generation: 0, epoch: onward_core::Epoch(0), n: 0 }
}

/// The start is given up before it reaches the store, and reaches it later.
#[tokio::test(start_paused = true)]
async fn a_start_that_comes_through_late_is_worked_on_all_the_same() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.store.fail_once("start_run", When::Before);
    refused(kit.runtime.start_run(start("r")).await, "store_unavailable");
    assert!(waits(worker.next_runs(1)).await);
    let started = onward_core::event::RunStarted::new(name("order"), text("in"), 7);
    let late = onward_core::run::NewRun { key: key("r"), started, signal: None };
    kit.store.memory.start_run(late, Some(worker.id().clone())).await.unwrap();
    assert_eq!(worker.next_runs(1).await[0].head.key, key("r"));
}

#[tokio::test(start_paused = true)]
async fn a_refused_start_takes_no_room() {
    let kit = Harness::new();
    let worker = kit.runtime.join_worker(profile("w", 1));
    kit.closed("r").await;
    let held = kit.next_held(&worker).await;
    worker.close_inbox(&held.key, held.epoch);
    refused(kit.runtime.start_run(StartRequest { input: text("other"), ..start("r") }).await, "run_exists");
    assert!(!kit.runtime.start_run(start("r")).await.unwrap().created);
    assert_eq!(kit.start("s").await.status, Status::Running);
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_runs_that_is_given_up_loses_none() {
    let kit = Harness::new();
    kit.start("r").await;
    let gate = kit.store.stall_once("claim_runs", When::After);
    let worker = kit.worker("w");
    assert!(waits(worker.next_runs(1)).await);
    assert_eq!(kit.head("r").await.status, Status::Running);
    gate.notify_one();
    assert_eq!(worker.next_runs(1).await[0].head.key, key("r"));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_failed_is_tried_again() {
    let kit = Harness::new();
    kit.start("r").await;
    kit.store.fail_once("claim_runs", When::Before);
    let worker = kit.worker("w");
    let begun = tokio::time::Instant::now();
    assert_eq!(worker.next_runs(1).await.len(), 1);
    assert_eq!(begun.elapsed(), seconds(1), "not at once: a store in trouble is not to be pressed");
}

#[tokio::test(start_paused = true)]
async fn two_starts_of_one_run_at_the_same_time_hand_it_over_once() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let gate = kit.store.stall_once("start_run", When::Before);
    let first = tokio::spawn({
        let runtime = kit.runtime.clone();
        async move { runtime.start_run(start("r")).await.unwrap().created }
    });
    tokio::task::yield_now().await;
    assert!(kit.runtime.start_run(start("r")).await.unwrap().created);
    let held = kit.next_held(&worker).await;
    let diary = open_diary(&worker, &held);
    gate.notify_one();
    assert!(!first.await.unwrap());
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!((diary.indexes(), diary.lost()), (vec![1], 0));
    assert!(waits(worker.next_runs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn leaving_gives_back_what_was_on_its_way() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.start("r").await;
    assert_eq!(kit.head("r").await.status, Status::Running);
    worker.leave().await;
    assert_eq!(kit.head("r").await.status, Status::Pending);
    assert_eq!(kit.start("s").await.status, Status::Pending, "a worker that has left gets nothing");
}

#[tokio::test(start_paused = true)]
async fn leaving_gives_back_what_a_claim_under_way_brings() {
    let kit = Harness::new();
    kit.start("r").await;
    let gate = kit.store.stall_once("claim_runs", When::After);
    let worker = kit.worker("w");
    assert!(waits(worker.next_runs(1)).await);
    worker.leave().await;
    assert_eq!(kit.head("r").await.status, Status::Running);
    gate.notify_one();
    tokio::task::yield_now().await;
    assert_eq!(kit.head("r").await.status, Status::Pending);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_port_is_dropped_has_left() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.start("r").await;
    drop(worker.clone());
    assert_eq!(kit.start("s").await.status, Status::Running, "a clone is still there");
    drop(worker);
    tokio::task::yield_now().await;
    assert_eq!(kit.head("r").await.status, Status::Pending);
    assert_eq!(kit.start("t").await.status, Status::Pending);
}

#[tokio::test(start_paused = true)]
async fn an_inbox_for_a_claim_that_is_gone_is_lost_at_once() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    worker.release(held.key.clone(), held.epoch).await.unwrap();
    assert_eq!(open_diary(&worker, &held).lost(), 1);
}

#[tokio::test]
async fn a_listener_does_not_keep_its_store() {
    let kit = Harness::new();
    let store: std::sync::Weak<crate::faulty::FaultyStore> = Arc::downgrade(&kit.store);
    drop(kit);
    assert!(store.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_given_up_and_made_again_is_worked_on() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    assert!(waits(worker.next_runs(1)).await);
    let _never = kit.store.stall_once("start_run", When::After);
    assert!(waits(kit.runtime.start_run(start("r"))).await);
    let gate = kit.store.stall_once("start_run", When::After);
    let again = tokio::spawn({
        let runtime = kit.runtime.clone();
        async move { runtime.start_run(start("r")).await.unwrap().created }
    });
    assert!(waits(worker.next_runs(1)).await, "the owner of the claim is not known yet");
    gate.notify_one();
    let begun = tokio::time::Instant::now();
    assert_eq!(worker.next_runs(1).await[0].head.key, key("r"));
    assert_eq!((again.await.unwrap(), begun.elapsed()), (false, seconds(0)));
}

#[tokio::test(start_paused = true)]
async fn a_pending_run_reports_whether_a_worker_could_take_it() {
    let kit = Harness::new();
    let head = kit.runtime.start_run(start("r")).await.unwrap().head;
    assert_eq!(kit.runtime.pending_reason(&head).await, Some(BlockReason::NoWorker));
    let worker = kit.worker("w");
    assert_eq!(kit.runtime.pending_reason(&head).await, Some(BlockReason::Queued));
    let blocker = kit.runtime.blocked_on(&key("r")).await.unwrap().remove(0);
    assert_eq!((blocker.task, &blocker.kind, blocker.why), (None, &head.kind, BlockReason::Queued));
    assert_eq!(worker.next_runs(1).await.len(), 1);
    let head = kit.runtime.read_head(&key("r")).await.unwrap();
    assert_eq!((head.status, kit.runtime.pending_reason(&head).await), (Status::Running, None));
    drop(worker);
    let head = kit.runtime.start_run(start("s")).await.unwrap().head;
    assert_eq!(kit.runtime.pending_reason(&head).await, Some(BlockReason::NoWorker));
}
