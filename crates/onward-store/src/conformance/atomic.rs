//! L3, L5: of commits with the same number one is taken, whole or not at all, and its repeat gets the first reply.

use onward_core::event::SignalSent;
use onward_core::task::TaskOptions;
use onward_core::{CallId, CommitId, RunId};

use super::block_on;
use super::harness::{Harness, approval, call_id, completed, key, name, refused, seconds, settled, signal, task, timer};

pub async fn of_two_commits_with_one_number_one_is_taken(harness: Harness) {
    let held = harness.start_held("r").await;
    let first = held.commit(vec![settled()]);
    let mut second = held.commit(vec![completed()]);
    second.commit_id = CommitId(99);
    harness.store().commit(first).await.unwrap();
    refused(harness.store().commit(second).await, "lease_lost");
    assert_eq!(harness.log("r").await, ["run_started", "run_suspended"]);
}

pub async fn of_many_concurrent_commits_one_is_taken(harness: Harness) {
    let mut held = harness.start_held("r").await;
    for _ in 0..10 {
        let racers: Vec<_> = (0..4)
            .map(|racer| {
                let (store, mut commit) = (harness.store(), held.commit(vec![settled()]));
                commit.commit_id = CommitId(commit.commit_id.0.wrapping_add(racer));
                std::thread::spawn(move || block_on(store.commit(commit)))
            })
            .collect();
        let answers: Vec<_> = racers.into_iter().map(|racer| racer.join().unwrap()).collect();
        let taken: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        assert_eq!(taken.len(), 1, "{answers:?}");
        held.advance(1, *taken[0]);
    }
    assert_eq!(harness.log("r").await.len(), 11);
}

pub async fn a_repeated_commit_gets_its_first_answer(mut harness: Harness) {
    let held = harness.start_held("r").await;
    let commit = held.commit(vec![task(0, TaskOptions::default()), settled()]);
    let first = harness.store().commit(commit.clone()).await.unwrap();
    harness.pass(seconds(1));
    harness.append("r", signal(None)).await.unwrap();
    harness.reopen();
    let again = harness.store().commit(commit).await.unwrap();
    assert_eq!((again.index, again.at), (first.index, first.at));
    assert_eq!(harness.log("r").await.len(), 4);
    assert_eq!(harness.claim_tasks("t", 10).await.len(), 1);
}

pub async fn a_repeated_last_commit_of_a_closed_run_gets_its_first_answer(harness: Harness) {
    let held = harness.start_held("r").await;
    let commit = held.commit(vec![completed()]);
    let first = harness.store().commit(commit.clone()).await.unwrap();
    assert_eq!(harness.store().commit(commit).await.unwrap(), first);
    assert_eq!(harness.log("r").await, ["run_started", "run_completed"]);
}

pub async fn a_refused_commit_leaves_nothing_behind(mut harness: Harness) {
    let old = harness.start_held("r").await;
    harness.store().release_run(key("r"), old.head.epoch).await.unwrap();
    let held = harness.claim_one("v").await;
    let before = harness.head("r").await;
    let all = vec![task(0, TaskOptions::default()), timer(1, harness.now()), approval(2, None), to("s", 3)];
    refused(harness.store().commit(old.commit(all.clone())).await, "lease_lost");
    let mut early = held.commit(all);
    early.n += 1;
    refused(harness.store().commit(early).await, "lease_lost");
    assert_eq!(harness.head("r").await, before);
    harness.reopen();
    assert_eq!(harness.log("r").await, ["run_started"]);
    assert_eq!(harness.claim_tasks("t", 10).await, []);
    assert_eq!(harness.waits().await, [] as [CallId; 0]);
    assert_eq!(harness.expire().await.timers_fired, 0);
    assert_eq!(harness.store().outbox_messages(10).await.unwrap(), []);
}

pub async fn a_commit_and_what_follows_from_it_are_one_write(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let all = vec![task(0, TaskOptions::default()), timer(1, harness.now()), approval(2, None), to("s", 3)];
    harness.commit(&mut held, all).await;
    harness.reopen();
    assert_eq!(harness.log("r").await.len(), 5);
    assert_eq!(harness.waits().await, [call_id(2)]);
    assert_eq!(harness.claim_tasks("t", 10).await.len(), 1);
    assert_eq!(harness.store().outbox_messages(10).await.unwrap().len(), 1);
    assert_eq!(harness.expire().await.timers_fired, 1);
}

fn to(id: &str, ordinal: u32) -> onward_core::Event {
    let (to, payload) = (RunId::new(id).unwrap(), super::harness::json("1"));
    SignalSent { call_id: call_id(ordinal), to, name: name("paid"), payload }.into()
}
