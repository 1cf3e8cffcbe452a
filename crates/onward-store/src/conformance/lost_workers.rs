//! CW1 to CW5: a run that loses worker after worker is paused, and only such a run.

use onward_core::event::{PauseReason, RunPaused, StepCompleted};
use onward_core::run::lost_workers::PAUSE_AFTER_LOST_WORKERS;
use onward_core::{Epoch, Event, Index, Status};

use super::harness::{
    Harness, HeldRun, call_id, completed, json, key, name, new_run, pause, resume, seconds, settled, signal, timer,
};
use crate::SESSION_DEFAULT;

/// Claims the run `r` for a worker of its own, which is lost.
async fn lose(harness: &Harness, by: &str) -> HeldRun {
    let held = harness.claim_one(by).await;
    expire_sessions(harness).await;
    held
}

async fn expire_sessions(harness: &Harness) {
    harness.pass(SESSION_DEFAULT);
    harness.expire().await;
}

async fn count(harness: &Harness, id: &str) -> u32 {
    harness.head(id).await.lost_workers.map_or(0, |lost| lost.count)
}

fn step() -> Event {
    let (call_id, name, output) = (call_id(0), name("charge"), json("1"));
    StepCompleted { call_id, name, input_hash: None, output, attempt: 1, took_ms: 0, input: None }.into()
}

pub async fn a_run_that_loses_worker_after_worker_is_paused_and_the_others_go_on(mut harness: Harness) {
    harness.start("r").await;
    for n in 1..=PAUSE_AFTER_LOST_WORKERS {
        assert_eq!((harness.head("r").await.status, count(&harness, "r").await), (Status::Pending, n - 1));
        lose(&harness, &format!("w{n}")).await;
        harness.reopen();
    }
    let head = harness.head("r").await;
    let lost = head.crashed().expect("it is paused").clone();
    assert_eq!((lost.count, lost.last_index, lost.next_commit), (3, Index(0), 0));
    let named: Vec<&str> = lost.latest.iter().map(|lost| lost.worker.as_str()).collect();
    assert_eq!(named, ["w1", "w2", "w3"]);
    assert!(lost.latest.is_sorted_by(|one, next| one.at < next.at && one.epoch < next.epoch));
    assert_eq!(harness.log("r").await, ["run_started", "run_paused"]);
    let pause = RunPaused::because(PauseReason::WorkerCrashed, "");
    let records = harness.records("r").await;
    let Event::RunPaused(found) = &records[1].events[0] else { panic!("{records:?}") };
    assert_eq!(RunPaused { message: String::new(), ..found.clone() }, RunPaused { lost_workers: Some(lost), ..pause });
    assert_eq!(harness.claim("v").await, []);
    harness.start("s").await;
    let mut other = harness.claim_one("v").await;
    harness.commit(&mut other, vec![completed()]).await;
}

pub async fn a_resumed_run_may_lose_as_many_workers_again(harness: Harness) {
    harness.start("r").await;
    for round in 0..2 {
        for n in 1..=PAUSE_AFTER_LOST_WORKERS {
            lose(&harness, &format!("w{round}{n}")).await;
        }
        assert_eq!(harness.head("r").await.status, Status::Paused);
        harness.append("r", resume()).await.unwrap();
        assert_eq!((harness.head("r").await.status, count(&harness, "r").await), (Status::Pending, 0));
    }
    let mut held = harness.claim_one("v").await;
    harness.commit(&mut held, vec![completed()]).await;
}

pub async fn a_commit_ends_the_series_of_lost_workers(mut harness: Harness) {
    harness.start("r").await;
    for round in 0..3 {
        for n in 1..PAUSE_AFTER_LOST_WORKERS {
            lose(&harness, &format!("w{round}{n}")).await;
            assert_eq!(count(&harness, "r").await, n);
        }
        harness.reopen();
        let mut held = harness.claim_one(&format!("v{round}")).await;
        harness.commit(&mut held, vec![settled()]).await;
        harness.append("r", signal(None)).await.unwrap();
        harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
    }
    assert_eq!(harness.head("r").await.status, Status::Pending);
}

// A worker that has many idle runs in memory casts no suspicion on them.
pub async fn a_run_that_waits_counts_no_lost_worker(harness: Harness) {
    for n in 0..20 {
        harness.start(&format!("r{n}")).await;
    }
    for round in 0..=PAUSE_AFTER_LOST_WORKERS {
        for claimed in harness.claim(&format!("w{round}")).await {
            let mut held = HeldRun::new(&claimed);
            harness.commit(&mut held, vec![settled()]).await;
        }
        expire_sessions(&harness).await;
        for n in 0..20 {
            let head = harness.head(&format!("r{n}")).await;
            assert_eq!((head.status, head.lost_workers), (Status::Waiting, None));
            harness.append(&format!("r{n}"), signal(None)).await.unwrap();
        }
    }
    // Nor does the pause of a person.
    let held = harness.claim("w").await;
    assert_eq!(held.len(), 20);
    harness.append("r0", pause()).await.unwrap();
    expire_sessions(&harness).await;
    assert_eq!((count(&harness, "r0").await, count(&harness, "r1").await), (0, 1));
}

pub async fn a_release_counts_no_lost_worker(harness: Harness) {
    harness.start("r").await;
    for n in 0..=PAUSE_AFTER_LOST_WORKERS {
        let held = harness.claim_one(&format!("w{n}")).await;
        harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
        expire_sessions(&harness).await;
    }
    let head = harness.head("r").await;
    assert_eq!((head.status, head.lost_workers), (Status::Pending, None));
}

pub async fn a_worker_that_is_reported_lost_counts_at_once_and_once(harness: Harness) {
    let store = harness.store();
    store.lose_run(key("nobody"), Epoch(1)).await.unwrap();
    let held = harness.start_held("r").await;
    for _ in 0..5 {
        store.lose_run(key("r"), held.head.epoch).await.unwrap();
        assert_eq!(count(&harness, "r").await, 1);
    }
    let next = harness.claim_one("v").await;
    store.lose_run(key("r"), held.head.epoch).await.unwrap();
    assert_eq!(harness.claim("u").await, [], "the lease of another claim stays");
    store.lose_run(key("r"), next.head.epoch).await.unwrap();
    assert_eq!(count(&harness, "r").await, 2);
    let last = harness.claim_one("u").await;
    store.lose_run(key("r"), last.head.epoch).await.unwrap();
    assert_eq!(harness.head("r").await.status, Status::Paused);
}

// Its connection was broken, or the servers were: the count survives a restart, and the worker takes its part back.
pub async fn a_worker_that_comes_back_does_not_count(mut harness: Harness) {
    harness.start("r").await;
    for n in 0..2 * PAUSE_AFTER_LOST_WORKERS {
        let held = lose(&harness, &format!("w{n}")).await;
        harness.reopen();
        assert_eq!(count(&harness, "r").await, 1);
        harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
        harness.reopen();
        assert_eq!(count(&harness, "r").await, 0);
    }
    // Also while another worker has the run, which keeps it.
    let lost = lose(&harness, "w").await;
    let mut held = harness.claim_one("v").await;
    harness.store().release_run(lost.key(), lost.head.epoch).await.unwrap();
    assert_eq!((count(&harness, "r").await, harness.claim("u").await), (0, vec![]));
    harness.commit(&mut held, vec![completed()]).await;
}

pub async fn a_run_that_is_paused_by_lost_workers_keeps_its_timers(harness: Harness) {
    let mut held = harness.start_held_as(new_run("r")).await;
    let due = harness.now().after(SESSION_DEFAULT * (PAUSE_AFTER_LOST_WORKERS + 1));
    harness.commit(&mut held, vec![timer(1, due), step()]).await;
    harness.store().release_run(held.key(), held.head.epoch).await.unwrap();
    for n in 1..=PAUSE_AFTER_LOST_WORKERS {
        lose(&harness, &format!("w{n}")).await;
    }
    assert_eq!(harness.head("r").await.status, Status::Paused);
    harness.pass(SESSION_DEFAULT * 10);
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.append("r", resume()).await.unwrap();
    harness.pass(SESSION_DEFAULT - seconds(1));
    assert_eq!(harness.expire().await.timers_fired, 0);
    harness.pass(seconds(1));
    assert_eq!(harness.expire().await.timers_fired, 1);
}
