//! L7: after a new claim, nothing with an older epoch is taken.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_core::run::Input;
use onward_core::{Epoch, Status};

use super::block_on;
use super::harness::{Harness, HeldRun, completed, key, name, pause, refused, seconds, settled, signal, terminate, worker};
use crate::{ClaimRuns, SESSION_DEFAULT};

pub async fn a_claim_raises_the_epoch_and_fences_the_holder_before(mut harness: Harness) {
    let old = harness.start_held("r").await;
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    let new = harness.claim_one("v").await;
    assert!(new.head.epoch > old.head.epoch);
    harness.reopen();
    refused(harness.store().commit(old.commit(vec![completed()])).await, "lease_lost");
    let mut new = harness.regain(&new).await;
    harness.commit(&mut new, vec![completed()]).await;
}

pub async fn a_worker_keeps_its_lease_over_commits_and_waits(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![settled()]).await;
    assert_eq!(harness.head("r").await.status, Status::Waiting);
    assert!(harness.append("r", signal(None)).await.unwrap().woke);
    assert_eq!(harness.claim("v").await, []);
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
}

pub async fn a_released_run_is_claimed_again(harness: Harness) {
    let held = harness.start_held("r").await;
    assert_eq!(harness.claim("v").await, []);
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    let claimed = harness.claim("v").await;
    assert_eq!(claimed.len(), 1);
    if let Some(records) = &claimed[0].records {
        assert_eq!(*records, harness.records("r").await);
    }
}

pub async fn a_worker_is_told_which_runs_it_holds(harness: Harness) {
    let (first, second) = (harness.start_held("r").await, harness.start_held("s").await);
    harness.start("t").await;
    let store = harness.store();
    let leases = async |of: &str| {
        let mut leases = store.list_leases(worker(of)).await.unwrap();
        leases.sort();
        leases
    };
    let claims = [&first, &second].map(|held| (held.key(), held.head.epoch));
    assert_eq!((leases("w").await, leases("v").await), (claims.to_vec(), Vec::new()));
    store.release_run(key("r"), first.head.epoch).await.unwrap();
    harness.append("s", terminate()).await.unwrap();
    assert_eq!(leases("w").await, []);
    let new = harness.claim("v").await.into_iter().find(|run| run.head.key == key("r")).expect("it was released");
    assert!(leases("v").await.contains(&(key("r"), new.head.epoch)));
}

pub async fn a_late_release_changes_nothing(harness: Harness) {
    harness.store().release_run(key("nobody"), Epoch(1)).await.unwrap();
    let old = harness.start_held("r").await;
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    harness.claim_one("v").await;
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    assert_eq!(harness.claim("u").await, []);
}

pub async fn a_silent_worker_loses_its_runs(harness: Harness) {
    let store = harness.store();
    store.heartbeat(worker("w"), seconds(10)).await.unwrap();
    let old = harness.start_held("r").await;
    harness.pass(seconds(9));
    assert!(store.heartbeat(worker("w"), seconds(10)).await.unwrap());
    harness.pass(seconds(9));
    assert_eq!(harness.expire().await.workers_lost, 0);
    assert_eq!(harness.claim("v").await, []);
    harness.pass(seconds(1));
    assert_eq!(harness.expire().await.workers_lost, 1);
    let mut new = harness.claim_one("v").await;
    refused(store.commit(old.commit(vec![completed()])).await, "lease_lost");
    harness.commit(&mut new, vec![completed()]).await;
}

pub async fn a_worker_without_a_heartbeat_has_the_default_session(harness: Harness) {
    harness.start_held("r").await;
    let end = harness.now().after(SESSION_DEFAULT);
    assert_eq!(harness.expire().await.next_due, Some(end));
    harness.clock.set(end);
    let expired = harness.expire().await;
    assert_eq!((expired.workers_lost, expired.next_due), (1, None));
    harness.claim_one("v").await;
}

pub async fn a_heartbeat_says_whether_the_worker_was_known(harness: Harness) {
    let store = harness.store();
    assert!(!store.heartbeat(worker("w"), seconds(10)).await.unwrap());
    assert!(store.heartbeat(worker("w"), seconds(10)).await.unwrap());
    harness.pass(seconds(10));
    harness.expire().await;
    assert!(!store.heartbeat(worker("w"), seconds(10)).await.unwrap());
}

pub async fn concurrent_claims_never_share_a_run(harness: Harness) {
    for run in 0..40 {
        harness.start(&format!("r{run}")).await;
    }
    let knows = Arc::new(BTreeMap::from([(name("order"), vec![None])]));
    let workers: Vec<_> = (0..4)
        .map(|id| {
            let (store, knows) = (harness.store(), knows.clone());
            std::thread::spawn(move || {
                let mut keys = Vec::new();
                loop {
                    let (worker, namespace) = (worker(&format!("w{id}")), Default::default());
                    let request = ClaimRuns { worker, namespace, knows: knows.clone(), limit: 3 };
                    let claimed = block_on(store.claim_runs(request)).unwrap();
                    assert!(claimed.len() <= 3);
                    if claimed.is_empty() {
                        return keys;
                    }
                    keys.extend(claimed.into_iter().map(|run| run.head.key));
                }
            })
        })
        .collect();
    let mut keys: Vec<_> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
    assert_eq!(keys.len(), 40);
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 40);
}

pub async fn a_held_run_shows_as_running(harness: Harness) {
    let started = harness.start("r").await;
    assert_eq!(started.head.status, Status::Pending);
    let mut held = harness.claim_one("w").await;
    assert_eq!(held.head.status, Status::Running);
    assert_eq!(harness.head("r").await.status, Status::Running);
    harness.commit(&mut held, vec![settled()]).await;
    assert_eq!(harness.head("r").await.status, Status::Waiting);
    harness.append("r", signal(None)).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Running);
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Pending);
}

pub async fn pending_runs_are_claimed_oldest_first(harness: Harness) {
    for id in ["c", "a", "b"] {
        harness.start(id).await;
        harness.pass(seconds(1));
    }
    // An input does not move a run that is already pending to the back of the queue.
    harness.append("c", signal(None)).await.unwrap();
    let ids: Vec<String> = harness.claim("w").await.into_iter().map(|run| run.head.key.id.to_string()).collect();
    assert_eq!(ids, ["c", "a", "b"]);
}

pub async fn an_epoch_never_goes_back(mut harness: Harness) {
    harness.start("r").await;
    let mut last = Epoch(0);
    for _ in 0..3 {
        let held: HeldRun = harness.claim_one("w").await;
        assert!(held.head.epoch > last);
        last = held.head.epoch;
        harness.store().release_run(key("r"), last).await.unwrap();
        harness.reopen();
    }
}

/// An input from the holder of a run, such as a pause with a report, is fenced like a commit, in the same write.
pub async fn what_a_holder_says_is_refused_after_another_claim(mut harness: Harness) {
    let by = |held: &HeldRun| Input::by_holder(pause().event, held.head.generation, held.head.epoch);
    let old = harness.start_held("r").await;
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    harness.reopen();
    let new = harness.claim_one("v").await;
    refused(harness.append("r", by(&old)).await, "lease_lost");
    assert_eq!(harness.head("r").await.status, Status::Running);
    harness.append("r", by(&new)).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Paused);
    assert_eq!(harness.log("r").await, ["run_started", "run_paused"]);
}
