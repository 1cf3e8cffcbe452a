//! L17, CE12: exactly one event ends a run, and no accepted signal is lost by it.

use onward_core::task::TaskOptions;
use onward_core::{CallId, Status};

use super::block_on;
use super::harness::{Harness, approval, completed, key, pause, refused, settled, signal, task, terminate};

pub async fn of_terminate_and_complete_the_first_wins(harness: Harness) {
    let held = harness.start_held("a").await;
    harness.append("a", terminate()).await.unwrap();
    refused(harness.store().commit(held.commit(vec![completed()])).await, "run_closed");
    assert_eq!(harness.log("a").await, ["run_started", "terminate_requested"]);

    harness.complete("b").await;
    refused(harness.append("b", terminate()).await, "run_closed");
    assert_eq!(harness.log("b").await, ["run_started", "run_completed"]);
}

pub async fn of_concurrent_ends_one_is_taken(harness: Harness) {
    for round in 0..20 {
        let id = format!("r{round}");
        let held = harness.start_held(&id).await;
        let mut commit = held.commit(vec![completed()]);
        commit.end_over_unread = true;
        let (store, run) = (harness.store(), key(&id));
        let racer = std::thread::spawn(move || block_on(store.append_input(run, terminate())).is_ok());
        let completed = harness.store().commit(commit).await.is_ok();
        assert!(completed != racer.join().unwrap());
        assert_eq!(harness.log(&id).await.len(), 2);
    }
}

pub async fn a_run_does_not_end_over_an_unread_signal(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.append("r", signal(None)).await.unwrap();
    refused(harness.store().commit(held.commit(vec![completed()])).await, "inputs_unread");
    assert_eq!(harness.log("r").await, ["run_started", "signal_received"]);
    // After enough attempts the worker ends the run anyway; the signal stays in the log.
    let mut commit = held.commit(vec![completed()]);
    commit.end_over_unread = true;
    let committed = harness.store().commit(commit).await.unwrap();
    held.advance(1, committed);
    assert_eq!(committed.status, Status::Completed);
    harness.reopen();
    assert_eq!(harness.log("r").await, ["run_started", "signal_received", "run_completed"]);
}

pub async fn a_closed_run_takes_nothing_more(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    let before = harness.head("r").await;
    assert_eq!((before.status, before.ended_at), (Status::Completed, Some(harness.now())));
    refused(harness.append("r", signal(None)).await, "run_closed");
    refused(harness.append("r", pause()).await, "run_closed");
    refused(harness.store().commit(held.commit(vec![settled()])).await, "run_closed");
    assert_eq!(harness.claim("v").await, []);
    assert_eq!(harness.head("r").await, before);
}

pub async fn an_ended_run_leaves_no_tasks_and_no_questions(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![task(0, TaskOptions::default()), approval(1, None)]).await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    assert_eq!(harness.waits().await, [] as [CallId; 0]);
}
