//! A single run is claimed by key, with an input, by one worker at a time.

use onward_core::Status;

use super::block_on;
use super::harness::{Harness, key, pause, refused, signal, terminate, worker};

pub async fn a_run_is_taken_by_its_name_with_what_is_brought(mut harness: Harness) {
    harness.start("a").await;
    harness.start("b").await;
    harness.reopen();
    let taken = harness.store().claim_run(key("b"), worker("w"), Some(signal(Some("s")))).await.unwrap();
    let claimed = taken.claimed.unwrap();
    assert_eq!((claimed.head.key.clone(), claimed.head.status, taken.head.status), (key("b"), Status::Running, Status::Running));
    assert_eq!(taken.appended.unwrap().index.0, 1);
    assert_eq!(harness.log("b").await, ["run_started", "signal_received"]);
    // The other run is still claimable, the claimed one is not.
    let rest: Vec<String> = harness.claim("v").await.iter().map(|run| run.head.key.id.to_string()).collect();
    assert_eq!(rest, ["a"]);
    harness.store().release_run(key("b"), claimed.head.epoch).await.unwrap();
    // A repeated input is not appended twice.
    let again = harness.store().claim_run(key("b"), worker("w"), Some(signal(Some("s")))).await.unwrap();
    assert!(again.appended.unwrap().repeated && again.claimed.unwrap().head.epoch > claimed.head.epoch);
    assert_eq!(harness.log("b").await, ["run_started", "signal_received"]);
}

pub async fn a_held_run_is_busy_and_takes_nothing(harness: Harness) {
    let held = harness.start_held("r").await;
    for by in ["w", "v"] {
        refused(harness.store().claim_run(key("r"), worker(by), Some(signal(None))).await, "run_busy");
    }
    assert_eq!(harness.log("r").await, ["run_started"]);
    harness.store().release_run(key("r"), held.head.epoch).await.unwrap();
    assert!(harness.store().claim_run(key("r"), worker("v"), None).await.unwrap().claimed.is_some());
    refused(harness.store().claim_run(key("nobody"), worker("w"), None).await, "run_not_found");
}

pub async fn a_run_with_nothing_to_do_is_not_leased(harness: Harness) {
    harness.start("paused").await;
    harness.store().append_input(key("paused"), pause()).await.unwrap();
    harness.start("closed").await;
    harness.store().append_input(key("closed"), terminate()).await.unwrap();
    for (id, status) in [("paused", Status::Paused), ("closed", Status::Terminated)] {
        let taken = harness.store().claim_run(key(id), worker("w"), None).await.unwrap();
        assert_eq!((taken.head.status, taken.claimed), (status, None));
    }
    refused(harness.store().claim_run(key("closed"), worker("w"), Some(signal(None))).await, "run_closed");
}

pub async fn concurrent_claims_of_a_run_have_one_winner(harness: Harness) {
    harness.start("r").await;
    let store = harness.store();
    let wants = |number: u32| {
        let store = store.clone();
        std::thread::spawn(move || block_on(store.claim_run(key("r"), worker(&format!("w{number}")), None)))
    };
    let threads: Vec<_> = (0..8).map(wants).collect();
    let answers: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(answers.iter().filter(|answer| answer.as_ref().is_ok_and(|taken| taken.claimed.is_some())).count(), 1);
    assert_eq!(answers.into_iter().filter_map(Result::err).map(|error| error.code()).collect::<Vec<_>>(), ["run_busy"; 7]);
}
