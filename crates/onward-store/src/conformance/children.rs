//! L19: a parent gets one result per child, and `on_parent_close` is applied once.

use onward_core::event::{OnParentClose, SignalSent};
use onward_core::run::{OutboxMessage, answer_to};
use onward_core::{Index, RunId, Status};

use super::harness::{Harness, HeldRun, call_id, child, completed, hand_over, json, key, name, new_run, terminate};
use crate::Delete;

pub async fn a_child_answers_its_parent_once(mut harness: Harness) {
    let mut parent = harness.start_held("p").await;
    harness.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel)]).await;
    harness.reopen();
    assert_eq!(harness.deliver().await, 1);
    let mut held = harness.claim_one("v").await;
    assert_eq!(held.key(), key("p/c"));
    harness.commit(&mut held, vec![completed()]).await;
    // The outbox dispatcher crashes between delivery and acknowledgment.
    let outbox = harness.store().outbox_messages(10).await.unwrap();
    hand_over(&*harness.store(), outbox[0].1.clone()).await;
    harness.reopen();
    harness.deliver().await;
    assert_eq!(harness.log("p").await, ["run_started", "child_started", "child_completed"]);
    assert_eq!(harness.store().outbox_messages(10).await.unwrap(), []);
}

pub async fn an_ended_parent_tells_each_child_what_was_agreed(mut harness: Harness) {
    let mut parent = harness.start_held("p").await;
    let agreed = [("p/a", OnParentClose::Abandon), ("p/c", OnParentClose::Cancel), ("p/t", OnParentClose::Terminate)];
    let children = agreed.into_iter().enumerate().map(|(ordinal, (id, close))| child(id, ordinal as u32, close)).collect();
    harness.commit(&mut parent, children).await;
    harness.deliver().await;
    harness.commit(&mut parent, vec![completed()]).await;
    harness.reopen();
    assert_eq!(harness.deliver().await, 3); // Two for the children, one from the terminated child to its parent.
    assert_eq!(harness.log("p/a").await, ["run_started"]);
    assert_eq!(harness.log("p/c").await, ["run_started", "cancel_requested"]);
    assert_eq!(harness.log("p/t").await, ["run_started", "terminate_requested"]);
    assert_eq!(harness.head("p/t").await.status, Status::Terminated);
    assert_eq!(harness.log("p").await.last(), Some(&"run_completed"));
}

pub async fn a_child_that_starts_after_its_parent_ended_is_told(harness: Harness) {
    let mut parent = harness.start_held("p").await;
    harness.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel), child("p/t", 1, OnParentClose::Terminate)]).await;
    // Before the outbox dispatcher runs.
    harness.append("p", terminate()).await.unwrap();
    harness.deliver().await;
    assert_eq!(harness.log("p/c").await, ["run_started", "cancel_requested"]);
    assert_eq!(harness.log("p/t").await, ["run_started", "terminate_requested"]);
}

pub async fn news_stay_until_they_are_finished(mut harness: Harness) {
    let mut parent = harness.start_held("p").await;
    harness.commit(&mut parent, vec![child("p/a", 0, OnParentClose::Cancel), child("p/b", 1, OnParentClose::Cancel)]).await;
    let first = harness.store().outbox_messages(1).await.unwrap();
    assert_eq!(first.len(), 1);
    harness.reopen();
    let all = harness.store().outbox_messages(10).await.unwrap();
    assert_eq!((all.len(), &all[0].1), (2, &first[0].1));
    harness.store().finish_deliveries(vec![all[0].0]).await.unwrap();
    harness.reopen();
    let rest = harness.store().outbox_messages(10).await.unwrap();
    assert_eq!(rest, all[1..]);
    harness.store().finish_deliveries(vec![rest[0].0, all[0].0]).await.unwrap();
    assert_eq!(harness.store().outbox_messages(10).await.unwrap(), []);
}

pub async fn a_signal_to_another_run_is_taken_once(harness: Harness) {
    harness.start("s").await;
    let mut held: HeldRun = harness.start_held("r").await;
    let sent = SignalSent { call_id: call_id(0), to: RunId::new("s").unwrap(), name: name("paid"), payload: json("1") };
    harness.commit(&mut held, vec![sent.into()]).await;
    let outbox = harness.store().outbox_messages(10).await.unwrap();
    hand_over(&*harness.store(), outbox[0].1.clone()).await;
    harness.deliver().await;
    assert_eq!(harness.log("s").await, ["run_started", "signal_received"]);
    assert_eq!(harness.head("s").await.next_index, Index(2));
}

/// R10: two successive runs with the same id each send and receive for themselves.
pub async fn a_namesake_of_a_deleted_run_is_not_taken_for_it(mut harness: Harness) {
    harness.start("s").await;
    let mut links = Vec::new();
    for incarnation in [1, 2] {
        let mut run = new_run("p");
        run.started.seed = incarnation;
        let mut parent = harness.start_held_as(run).await;
        let sent = SignalSent { call_id: call_id(1), to: RunId::new("s").unwrap(), name: name("paid"), payload: json("1") };
        harness.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel), sent.into()]).await;
        harness.reopen();
        let outbox = harness.store().outbox_messages(10).await.unwrap();
        links.extend(outbox.into_iter().filter_map(|(_, delivery)| match delivery {
            OutboxMessage::Start(child) => child.started.parent,
            OutboxMessage::Input { .. } | OutboxMessage::StartFromTemplate { .. } => None,
        }));
        harness.deliver().await;
        assert_eq!(harness.head("s").await.next_index, Index(1 + incarnation), "the signal of each incarnation is taken");
        if incarnation == 1 {
            harness.append("p/c", terminate()).await.unwrap();
            harness.append("p", terminate()).await.unwrap();
            harness.deliver().await;
            let gone = Delete::Run { key: key("p"), reason: String::new() };
            assert_eq!(harness.store().delete_runs(gone).await.unwrap(), 1);
        }
    }
    let [first, second] = &links[..] else { panic!("each incarnation starts its child: {links:?}") };
    let kept = harness.head("p/c").await.parent.unwrap();
    assert!(kept.is_same_call(first) && !kept.is_same_call(second), "the child records the incarnation of its parent");
    for (link, is_for_it) in [(first, false), (second, true)] {
        let OutboxMessage::Input { to, input } = answer_to(link, &key("p/c").id, Ok(json("1"))) else {
            panic!("an answer is an input")
        };
        let answer = harness.store().append_input(to, input).await;
        assert_eq!(answer.err().map(|error| error.code()), (!is_for_it).then_some("run_continued"));
    }
    assert_eq!(harness.log("p").await, ["run_started", "child_started", "signal_sent", "child_completed"]);
}
