//! Heartbeats, lost leases and zombies.

use onward_core::Status;
use onward_core::event::{PauseReason, RunPaused};

use crate::faulty::When;
use crate::kit::*;

#[tokio::test(start_paused = true)]
async fn a_worker_with_heartbeats_keeps_its_runs() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    for _ in 0..20 {
        kit.runtime.tick().await;
        kit.advance(seconds(10));
    }
    assert_eq!((kit.head("r").await.status, diary.lost()), (Status::Running, 0));
}

#[tokio::test(start_paused = true)]
async fn heartbeats_come_three_to_a_lease() {
    let kit = Harness::new();
    let _worker = kit.worker("w");
    for _ in 0..60 {
        let tick = kit.runtime.tick().await;
        assert!(tick.next_due.is_some());
        kit.advance(seconds(1));
    }
    assert_eq!(kit.store.calls("heartbeat"), 6);
}

/// F13: a worker hangs past its lease, another one finishes its run, then the first one wakes up.
#[tokio::test(start_paused = true)]
async fn a_stale_worker_is_refused_with_lease_lost() {
    let kit = Harness::new();
    let zombie = kit.worker("zombie");
    kit.runtime.tick().await;
    let mut stale = kit.start_held(&zombie, "r").await;
    let diary = open_diary(&zombie, &stale);

    let other = kit.other_runtime();
    let heir = other.join_worker(profile("heir", 10));
    kit.advance(seconds(31));
    assert_eq!(other.tick().await.counts.workers_lost, 1);
    let mut held = kit.next_held(&heir).await;
    assert!(held.epoch > stale.epoch);
    kit.commit(&mut held, vec![awaited(0, "x")]).await;

    let error = kit.try_commit(&mut stale, vec![completed()]).await.unwrap_err();
    assert_eq!(error.code(), "lease_lost");
    let report = RunPaused::because(PauseReason::Diverged, "mine differs");
    assert_eq!(zombie.pause(stale.key.clone(), stale.generation, stale.epoch, report).await.unwrap_err().code(), "lease_lost");
    zombie.release(stale.key.clone(), stale.epoch).await.unwrap();
    assert_eq!(diary.lost(), 0, "it has closed the inbox itself");
    assert_eq!(kit.log("r").await, ["run_started", "signal_awaited"]);
    kit.complete(&mut held).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_the_store_has_forgotten_loses_its_runs_with_its_next_heartbeat() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    kit.start("on its way").await;
    kit.advance(seconds(31));
    assert_eq!(kit.other_runtime().tick().await.counts.workers_lost, 1);
    assert_eq!(diary.lost(), 0);
    kit.runtime.tick().await;
    assert_eq!(diary.lost(), 1);
    let again = worker.next_runs(8).await;
    assert_eq!(again.len(), 2, "it goes on as a new worker would");
    assert!(again[0].head.epoch > held.epoch);
}

#[tokio::test(start_paused = true)]
async fn an_input_under_a_newer_claim_notifies_the_old_holder() {
    let kit = Harness::new();
    let zombie = kit.worker("zombie");
    kit.runtime.tick().await;
    let stale = kit.start_held(&zombie, "r").await;
    let diary = open_diary(&zombie, &stale);
    let other = kit.other_runtime();
    let heir = other.join_worker(profile("heir", 10));
    kit.advance(seconds(31));
    other.tick().await;
    kit.next_held(&heir).await;
    kit.runtime.signal_run(&key("r"), signal("x")).await.unwrap();
    assert_eq!((diary.lost(), diary.indexes()), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_reach_the_store_stops_before_its_lease_ends() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    kit.store.set_down(true);
    kit.advance(seconds(19));
    assert!(kit.runtime.tick().await.error.is_some());
    assert_eq!(diary.lost(), 0);
    kit.advance(seconds(3));
    kit.runtime.tick().await;
    assert_eq!(diary.lost(), 1, "at two thirds of the lease, give or take a heartbeat");
    kit.store.set_down(false);
    assert_eq!(kit.start("s").await.status, Status::Pending, "a disconnected worker gets nothing");
    kit.advance(seconds(3));
    kit.runtime.tick().await;
    assert_eq!(kit.start("t").await.status, Status::Running, "it is back");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_never_returns_counts_as_none() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    kit.advance(seconds(20));
    let _never = kit.store.stall_once("heartbeat", crate::faulty::When::Before);
    kit.runtime.tick().await;
    assert_eq!(diary.lost(), 1);
}

#[tokio::test(start_paused = true)]
async fn who_has_left_sends_no_more_heartbeats() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.runtime.tick().await;
    worker.leave().await;
    let before = kit.store.calls("heartbeat");
    kit.advance(seconds(31));
    assert_eq!(kit.runtime.tick().await.counts.workers_lost, 1);
    assert_eq!(kit.store.calls("heartbeat"), before);
}

/// The store does not know a worker at its first heartbeat. Regression: a run that was started while the reply was on its way
/// was taken from the worker but stayed leased to it, so that no worker executed it again.
#[tokio::test(start_paused = true)]
async fn the_first_heartbeat_takes_nothing_that_was_claimed_meanwhile() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let answer = kit.store.stall_once("heartbeat", When::After);
    let runtime = kit.runtime.clone();
    let beating = tokio::spawn(async move { runtime.tick().await });
    while kit.store.calls("heartbeat") == 0 {
        tokio::task::yield_now().await;
    }
    let held = kit.start_held(&worker, "r").await;
    let diary = open_diary(&worker, &held);
    answer.notify_one();
    beating.await.unwrap();
    assert_eq!(diary.lost(), 0);
}
