//! L19: a parent gets one result per child, and `on_parent_close` is applied once.

use onward_core::event::{OnParentClose, SignalSent};
use onward_core::run::{OutboxMessage, answer_to};
use onward_core::{Index, RunId, Status};

use super::kit::{HeldRun, Kit, child, completed, hand_over, json, key, name, new_run, call_id, terminate};
use crate::Delete;

pub async fn a_child_answers_its_parent_once(mut kit: Kit) {
    let mut parent = kit.start_held("p").await;
    kit.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel)]).await;
    kit.reopen();
    assert_eq!(kit.deliver().await, 1);
    let mut held = kit.claim_one("v").await;
    assert_eq!(held.key(), key("p/c"));
    kit.commit(&mut held, vec![completed()]).await;
    // The outbox dispatcher crashes between delivery and acknowledgment.
    let outbox = kit.store().outbox_messages(10).await.unwrap();
    hand_over(&*kit.store(), outbox[0].1.clone()).await;
    kit.reopen();
    kit.deliver().await;
    assert_eq!(kit.log("p").await, ["run_started", "child_started", "child_completed"]);
    assert_eq!(kit.store().outbox_messages(10).await.unwrap(), []);
}

pub async fn an_ended_parent_tells_each_child_what_was_agreed(mut kit: Kit) {
    let mut parent = kit.start_held("p").await;
    let agreed = [("p/a", OnParentClose::Abandon), ("p/c", OnParentClose::Cancel), ("p/t", OnParentClose::Terminate)];
    let children = agreed.into_iter().enumerate().map(|(ordinal, (id, close))| child(id, ordinal as u32, close)).collect();
    kit.commit(&mut parent, children).await;
    kit.deliver().await;
    kit.commit(&mut parent, vec![completed()]).await;
    kit.reopen();
    assert_eq!(kit.deliver().await, 3); // Two for the children, one from the terminated child to its parent.
    assert_eq!(kit.log("p/a").await, ["run_started"]);
    assert_eq!(kit.log("p/c").await, ["run_started", "cancel_requested"]);
    assert_eq!(kit.log("p/t").await, ["run_started", "terminate_requested"]);
    assert_eq!(kit.head("p/t").await.status, Status::Terminated);
    assert_eq!(kit.log("p").await.last(), Some(&"run_completed"));
}

pub async fn a_child_that_starts_after_its_parent_ended_is_told(kit: Kit) {
    let mut parent = kit.start_held("p").await;
    kit.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel), child("p/t", 1, OnParentClose::Terminate)]).await;
    // Before the outbox dispatcher runs.
    kit.append("p", terminate()).await.unwrap();
    kit.deliver().await;
    assert_eq!(kit.log("p/c").await, ["run_started", "cancel_requested"]);
    assert_eq!(kit.log("p/t").await, ["run_started", "terminate_requested"]);
}

pub async fn news_stay_until_they_are_finished(mut kit: Kit) {
    let mut parent = kit.start_held("p").await;
    kit.commit(&mut parent, vec![child("p/a", 0, OnParentClose::Cancel), child("p/b", 1, OnParentClose::Cancel)]).await;
    let first = kit.store().outbox_messages(1).await.unwrap();
    assert_eq!(first.len(), 1);
    kit.reopen();
    let all = kit.store().outbox_messages(10).await.unwrap();
    assert_eq!((all.len(), &all[0].1), (2, &first[0].1));
    kit.store().finish_deliveries(vec![all[0].0]).await.unwrap();
    kit.reopen();
    let rest = kit.store().outbox_messages(10).await.unwrap();
    assert_eq!(rest, all[1..]);
    kit.store().finish_deliveries(vec![rest[0].0, all[0].0]).await.unwrap();
    assert_eq!(kit.store().outbox_messages(10).await.unwrap(), []);
}

pub async fn a_signal_to_another_run_is_taken_once(kit: Kit) {
    kit.start("s").await;
    let mut held: HeldRun = kit.start_held("r").await;
    let sent = SignalSent { call_id: call_id(0), to: RunId::new("s").unwrap(), name: name("paid"), payload: json("1") };
    kit.commit(&mut held, vec![sent.into()]).await;
    let outbox = kit.store().outbox_messages(10).await.unwrap();
    hand_over(&*kit.store(), outbox[0].1.clone()).await;
    kit.deliver().await;
    assert_eq!(kit.log("s").await, ["run_started", "signal_received"]);
    assert_eq!(kit.head("s").await.next_index, Index(2));
}

/// R10: two successive runs with the same id each send and receive for themselves.
pub async fn a_namesake_of_a_deleted_run_is_not_taken_for_it(mut kit: Kit) {
    kit.start("s").await;
    let mut links = Vec::new();
    for incarnation in [1, 2] {
        let mut run = new_run("p");
        run.started.seed = incarnation;
        let mut parent = kit.start_held_as(run).await;
        let sent = SignalSent { call_id: call_id(1), to: RunId::new("s").unwrap(), name: name("paid"), payload: json("1") };
        kit.commit(&mut parent, vec![child("p/c", 0, OnParentClose::Cancel), sent.into()]).await;
        kit.reopen();
        let outbox = kit.store().outbox_messages(10).await.unwrap();
        links.extend(outbox.into_iter().filter_map(|(_, delivery)| match delivery {
            OutboxMessage::Start(child) => child.started.parent,
            OutboxMessage::Input { .. } => None,
        }));
        kit.deliver().await;
        assert_eq!(kit.head("s").await.next_index, Index(1 + incarnation), "the signal of each incarnation is taken");
        if incarnation == 1 {
            kit.append("p/c", terminate()).await.unwrap();
            kit.append("p", terminate()).await.unwrap();
            kit.deliver().await;
            let gone = Delete::Run { key: key("p"), reason: String::new() };
            assert_eq!(kit.store().delete_runs(gone).await.unwrap(), 1);
        }
    }
    let [first, second] = &links[..] else { panic!("each incarnation starts its child: {links:?}") };
    let kept = kit.head("p/c").await.parent.unwrap();
    assert!(kept.is_same_call(first) && !kept.is_same_call(second), "the child records the incarnation of its parent");
    for (link, is_for_it) in [(first, false), (second, true)] {
        let OutboxMessage::Input { to, input } = answer_to(link, &key("p/c").id, Ok(json("1"))) else { panic!("an answer is an input") };
        let answer = kit.store().append_input(to, input).await;
        assert_eq!(answer.err().map(|error| error.code()), (!is_for_it).then_some("run_continued"));
    }
    assert_eq!(kit.log("p").await, ["run_started", "child_started", "signal_sent", "child_completed"]);
}
