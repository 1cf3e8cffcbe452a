//! L11, L12, L13, CE10, CE11: each input from outside is taken once, and each wait is answered once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onward_core::event::{ApprovalDecided, SignalReceived, UpdateReceived, WaitCanceled};
use onward_core::run::Input;
use onward_core::{CallId, Event, Index, Name, Payload};

use super::block_on;
use super::harness::{Harness, approval, call_id, completed, decision, key, refused, seconds, send_many, settled, signal};
use crate::StoreError;

pub async fn the_same_signal_id_is_one_input(mut harness: Harness) {
    harness.start("r").await;
    let first = harness.append("r", signal(Some("a"))).await.unwrap();
    assert!(!first.repeated);
    harness.append("r", signal(Some("b"))).await.unwrap();
    harness.pass(seconds(5));
    harness.reopen();
    let again = harness.append("r", signal(Some("a"))).await.unwrap();
    assert_eq!((again.index, again.at, again.repeated, again.woke), (first.index, first.at, true, false));
    assert_eq!(harness.log("r").await, ["run_started", "signal_received", "signal_received"]);
}

/// Returns the event of [`signal`].
fn received(id: Option<&str>) -> SignalReceived {
    match signal(id).event {
        Event::SignalReceived(signal) => signal,
        other => unreachable!("{other:?} is no signal"),
    }
}

/// Returns the opposite of [`decision`].
fn other_decision(ordinal: u32, decision_id: &str) -> Input {
    let (call_id, decision_id) = (call_id(ordinal), decision_id.to_owned());
    let event = ApprovalDecided {
        call_id: call_id.clone(),
        approved: false,
        feedback: None,
        decided_by: None,
        answer: None,
        decision_id: decision_id.clone(),
    };
    Input::answer(event, 0, &call_id, &decision_id)
}

pub async fn the_same_id_with_something_else_to_say_is_refused(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let signal_of =
        |amount: u32| Input::signal(SignalReceived { payload: Payload::json(&amount).unwrap(), ..received(Some("a")) });
    let named = |name: &str| Input::signal(SignalReceived { name: Name::new(name).unwrap(), ..received(Some("a")) });
    let first = harness.append("r", signal_of(1)).await.unwrap();
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![approval(0, None)]).await;
    let decided = harness.append("r", decision(0, 0, "anna")).await.unwrap();
    let update = |amount: u32| {
        let (update_id, name) = ("u".to_owned(), Name::new("grow").unwrap());
        Input::update(UpdateReceived { update_id, name, payload: Payload::json(&amount).unwrap() })
    };
    let updated = harness.append("r", update(1)).await.unwrap();
    harness.reopen();
    let (head, log) = (harness.head("r").await, harness.log("r").await);
    for (other, what, index) in [
        (signal_of(2), "signal `a`", first.index),
        (named("other"), "signal `a`", first.index),
        (other_decision(0, "anna"), "answer `anna`", decided.index),
        (update(2), "update `u`", updated.index),
    ] {
        match harness.append("r", other).await {
            Err(error @ StoreError::IdTaken { .. }) => {
                let message = error.to_string();
                assert!(message.contains(what) && message.contains(&index.to_string()), "{message}");
            }
            other => panic!("{what} was taken for a repeat: {other:?}"),
        }
    }
    // Nothing was written, and the first inputs are unchanged.
    assert_eq!((harness.head("r").await, harness.log("r").await), (head, log));
    for (again, index) in [(signal_of(1), first.index), (decision(0, 0, "anna"), decided.index), (update(1), updated.index)] {
        let again = harness.append("r", again).await.unwrap();
        assert_eq!((again.index, again.repeated), (index, true));
    }
}

pub async fn a_late_repeat_to_a_closed_run_is_still_a_repeat(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let first = harness.append("r", signal(Some("a"))).await.unwrap();
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
    harness.reopen();
    let again = harness.append("r", signal(Some("a"))).await.unwrap();
    assert_eq!((again.index, again.repeated), (first.index, true));
    refused(harness.append("r", signal(Some("b"))).await, "run_closed");
}

pub async fn signals_without_an_id_are_all_taken(harness: Harness) {
    harness.start("r").await;
    for index in 1..=3 {
        assert_eq!(harness.append("r", signal(None)).await.unwrap().index, Index(index));
    }
}

pub async fn a_signal_to_an_unknown_run_is_refused(harness: Harness) {
    refused(harness.append("r", signal(None)).await, "run_not_found");
    assert_eq!(harness.store().read_run(key("r"), None).await.unwrap(), None);
}

pub async fn an_answer_with_another_id_has_lost(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![approval(0, None)]).await;
    let won = harness.append("r", decision(0, 0, "anna")).await.unwrap();
    harness.reopen();
    let before = harness.head("r").await;
    check_lost(&harness, 0, "anna", won.index).await;
    assert_eq!(harness.head("r").await, before);
    assert!(harness.append("r", decision(0, 0, "anna")).await.unwrap().repeated);
    assert_eq!(harness.log("r").await, ["run_started", "approval_requested", "approval_decided"]);
}

pub async fn a_repeated_answer_leaves_another_question_alone(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![approval(0, None), approval(1, None)]).await;
    let first = harness.append("r", decision(0, 0, "anna")).await.unwrap();
    let again = harness.append("r", decision(0, 0, "anna")).await.unwrap();
    assert_eq!((again.index, again.repeated), (first.index, true));
    assert_eq!(harness.waits().await, [call_id(1)]);
}

pub async fn an_answer_is_taken_whatever_else_is_appended(harness: Harness) {
    let mut held = harness.start_held("r").await;
    harness.commit(&mut held, vec![approval(0, None)]).await;
    let store = harness.store();
    let noise = std::thread::spawn(move || send_many(&*store, 50));
    let answer = harness.append("r", decision(0, 0, "anna")).await;
    noise.join().unwrap();
    assert!(!answer.unwrap().repeated);
    assert_eq!(harness.log("r").await.len(), 53);
}

pub async fn an_answer_needs_an_open_question(harness: Harness) {
    let mut held = harness.start_held("r").await;
    refused(harness.append("r", decision(0, 0, "anna")).await, "wait_not_found");
    harness.commit(&mut held, vec![approval(0, None)]).await;
    refused(harness.append("r", decision(0, 1, "anna")).await, "wait_not_found");
    // A refused decision has not used up the idempotency record.
    assert!(!harness.append("r", decision(0, 0, "anna")).await.unwrap().repeated);
    harness.read_on(&mut held).await;
    harness.commit(&mut held, vec![completed()]).await;
    refused(harness.append("r", decision(0, 1, "anna")).await, "run_closed");
}

pub async fn a_question_past_its_deadline_is_lost_to_the_timer(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let deadline = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![approval(0, Some(deadline))]).await;
    harness.clock.set(deadline);
    assert_eq!(harness.expire().await.timers_fired, 1);
    harness.reopen();
    assert_eq!(harness.waits().await, [] as [CallId; 0]);
    check_lost(&harness, 0, "expired", Index(2)).await;
    assert_eq!(harness.log("r").await, ["run_started", "approval_requested", "timer_fired"]);
}

pub async fn a_withdrawn_question_is_lost_to_the_code(harness: Harness) {
    let mut held = harness.start_held("r").await;
    let deadline = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![approval(0, Some(deadline)), approval(1, None)]).await;
    let won = harness.append("r", decision(0, 1, "anna")).await.unwrap();
    // The code withdraws both approvals without having seen the decision at 1.
    let withdrawn = |ordinal| Event::from(WaitCanceled { call_id: call_id(ordinal) });
    let index = harness.commit(&mut held, vec![withdrawn(0), withdrawn(1)]).await.index;
    check_lost(&harness, 0, "withdrawn", index).await;
    check_lost(&harness, 1, "anna", won.index).await;
    harness.clock.set(deadline);
    assert_eq!(harness.expire().await.timers_fired, 0);
}

pub async fn an_answered_question_has_no_timer_left(harness: Harness) {
    let mut held = harness.start_held("r").await;
    let deadline = harness.now().after(seconds(10));
    harness.commit(&mut held, vec![approval(0, Some(deadline))]).await;
    harness.append("r", decision(0, 0, "anna")).await.unwrap();
    harness.clock.set(deadline);
    assert_eq!(harness.expire().await.timers_fired, 0);
}

pub async fn every_accepted_signal_is_in_the_log_once(mut harness: Harness) {
    let mut held = harness.start_held("r").await;
    let taken = Arc::new(AtomicUsize::new(0));
    let senders: Vec<_> = (0..4)
        .map(|sender: usize| {
            let (store, taken) = (harness.store(), taken.clone());
            std::thread::spawn(move || {
                for number in 0..25 {
                    // Neighboring senders share half of their ids.
                    let id = format!("s{}", sender * 12 + number);
                    if !block_on(store.append_input(key("r"), signal(Some(&id)))).unwrap().repeated {
                        taken.fetch_add(1, Ordering::SeqCst);
                    }
                }
            })
        })
        .collect();
    for _ in 0..5 {
        harness.commit(&mut held, vec![settled()]).await;
    }
    senders.into_iter().for_each(|sender| sender.join().unwrap());
    harness.reopen();
    let signals = harness.log("r").await.into_iter().filter(|event| *event == "signal_received").count();
    assert_eq!((signals, taken.load(Ordering::SeqCst)), (61, 61));
}

async fn check_lost(harness: &Harness, ordinal: u32, winner: &str, index: Index) {
    match refused(harness.append("r", decision(0, ordinal, "late")).await, "signal_lost") {
        StoreError::SignalLost { winner: found, index: at, .. } => assert_eq!((found.as_str(), at), (winner, index)),
        other => unreachable!("{other}"),
    }
}
