//! The outbox: children, their results and policies, signals; delivered once each, wherever a crash happens.

use onward_core::event::{ChildCanceled, OnParentClose, RunFailed};
use onward_core::{Event, Failure, Index, RunId, Status};
use onward_runtime::StartRequest;

use crate::faulty::When;
use crate::kit::*;

/// Crash points of the outbox dispatcher: before or after each of its calls to the store.
const STRIKES: [(&str, When); 8] = [
    ("deliveries", When::Before),
    ("deliveries", When::After),
    ("start_run", When::Before),
    ("start_run", When::After),
    ("append_input", When::Before),
    ("append_input", When::After),
    ("finish_deliveries", When::Before),
    ("finish_deliveries", When::After),
];

/// Returns a parent that a worker holds, with a child `c` requested at call id 0.
async fn parent(kit: &Harness, policy: OnParentClose) -> HeldRun {
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "p").await;
    kit.commit(&mut held, vec![child(0, "c", policy)]).await;
    worker.leave().await;
    held
}

async fn take_child(kit: &Harness) -> HeldRun {
    let worker = kit.worker("child worker");
    let held = kit.next_held(&worker).await;
    assert_eq!(held.key, key("c"));
    worker.leave().await;
    held
}

#[tokio::test(start_paused = true)]
async fn a_child_starts_once_and_answers_once_wherever_the_courier_is_struck() {
    for (operation, when) in STRIKES {
        for strikes_in_the_second_half in [false, true] {
            let kit = Harness::new();
            let _held = parent(&kit, OnParentClose::Cancel).await;
            if !strikes_in_the_second_half {
                kit.store.fail_once(operation, when);
            }
            kit.settle().await;
            assert_eq!(kit.log("c").await, ["run_started"], "{operation} {when:?}");
            let mut child = take_child(&kit).await;
            kit.complete(&mut child).await;
            if strikes_in_the_second_half {
                kit.store.fail_once(operation, when);
            }
            kit.settle().await;
            assert_eq!(kit.log("p").await, ["run_started", "child_started", "child_completed"], "{operation} {when:?}");
            // A dispatcher that crashed after a delivery delivers again, without effect.
            kit.settle().await;
            assert_eq!(kit.head("p").await.next_index, Index(3));
            assert_eq!(kit.head("c").await.next_index, Index(2));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_fails_or_is_terminated_fails_its_call() {
    for terminate in [false, true] {
        let kit = Harness::new();
        let _held = parent(&kit, OnParentClose::Cancel).await;
        kit.settle().await;
        if terminate {
            kit.runtime.terminate_run(&key("c"), "").await.unwrap();
        } else {
            let mut child = take_child(&kit).await;
            kit.commit(&mut child, vec![RunFailed { failure: Failure::fatal("no"), attempts: None }.into()]).await;
        }
        kit.settle().await;
        assert_eq!(kit.log("p").await, ["run_started", "child_started", "child_failed"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_whose_id_is_taken_fails_its_call() {
    // By a run with another input, and by one that only looks the same.
    for input in [text("other"), text("in")] {
        for strike in [None, Some(When::Before), Some(When::After)] {
            let kit = Harness::new();
            kit.runtime.start_run(StartRequest { input: input.clone(), ..start("c") }).await.unwrap();
            kit.runtime.terminate_run(&key("c"), "").await.unwrap();
            let _held = parent(&kit, OnParentClose::Cancel).await;
            if let Some(when) = strike {
                kit.store.fail_once("append_input", when);
            }
            kit.settle().await;
            assert!(kit.store.is_exhausted());
            let records = kit.runtime.read_log(&key("p"), None, Index(2), 10).await.unwrap();
            let [record] = &records[..] else { panic!("{records:?}") };
            let Event::ChildFailed(event) = &record.events[0] else { panic!("{record:?}") };
            assert_eq!((event.failure.code.as_str(), event.failure.retryable), ("run_exists", false));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_ends_applies_the_policy_to_its_child() {
    for (policy, log) in [
        (OnParentClose::Cancel, &["run_started", "cancel_requested"][..]),
        (OnParentClose::Terminate, &["run_started", "terminate_requested"][..]),
        (OnParentClose::Abandon, &["run_started"][..]),
    ] {
        for (operation, when) in STRIKES {
            for child_first in [false, true] {
                let kit = Harness::new();
                let mut held = parent(&kit, policy).await;
                if child_first {
                    kit.settle().await;
                }
                kit.store.fail_once(operation, when);
                kit.complete(&mut held).await;
                kit.settle().await;
                kit.settle().await;
                assert_eq!(kit.log("c").await, log, "{policy:?}, {operation} {when:?}, child first: {child_first}");
                assert_eq!(kit.head("p").await.status, Status::Completed);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancellation_does_not_overtake_the_start_it_is_about() {
    for (operation, when) in STRIKES {
        let kit = Harness::new();
        let mut held = parent(&kit, OnParentClose::Abandon).await;
        let canceled = ChildCanceled { call_id: at(0), child: RunId::new("c").unwrap() };
        kit.commit(&mut held, vec![canceled.into()]).await;
        kit.store.fail_once(operation, when);
        kit.settle().await;
        assert_eq!(kit.log("c").await, ["run_started", "cancel_requested"], "{operation} {when:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_from_run_to_run_arrives_once_with_its_sender() {
    for (operation, when) in STRIKES {
        let kit = Harness::new();
        let worker = kit.worker("w");
        let mut held = kit.start_held(&worker, "p").await;
        kit.start("q").await;
        kit.commit(&mut held, vec![sent(0, "q"), sent(1, "q")]).await;
        kit.store.fail_once(operation, when);
        kit.settle().await;
        assert_eq!(kit.log("q").await, ["run_started", "signal_received", "signal_received"], "{operation} {when:?}");
        let records = kit.runtime.read_log(&key("q"), None, Index(1), 1).await.unwrap();
        let Event::SignalReceived(signal) = &records[0].events[0] else { panic!("{records:?}") };
        assert_eq!((signal.sender.clone(), signal.signal_id.as_deref()), (Some(key("p")), Some("p~0~0~0000000000000007")));
    }
}

#[tokio::test(start_paused = true)]
async fn an_undeliverable_signal_is_counted_and_finished() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    kit.closed("closed").await;
    let mut held = kit.next_held(&worker).await;
    assert_eq!(held.key, key("closed"));
    kit.start("p").await;
    held = kit.next_held(&worker).await;
    kit.commit(&mut held, vec![sent(0, "closed"), sent(1, "nobody")]).await;
    let tick = kit.runtime.tick().await;
    assert_eq!((tick.counts.messages_undeliverable, tick.counts.messages_delivered), (2, 0));
    assert_eq!(kit.runtime.counts().signals_dropped.value(), 2, "D3");
    kit.settle().await;
    assert_eq!(kit.log("closed").await, ["run_started", "terminate_requested"]);
}

#[tokio::test(start_paused = true)]
async fn one_receiver_that_must_wait_does_not_hold_up_the_others() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "p").await;
    for id in ["a", "b", "c"] {
        kit.start(id).await;
    }
    kit.commit(&mut held, vec![sent(0, "a"), sent(1, "b"), sent(2, "c")]).await;
    kit.store.fail_once("append_input", When::Before);
    let tick = kit.runtime.tick().await;
    assert_eq!((tick.counts.messages_delivered, tick.error.unwrap().code()), (2, "store_unavailable"));
    kit.settle().await;
    for id in ["a", "b", "c"] {
        assert_eq!(kit.log(id).await, ["run_started", "signal_received"]);
    }
}

#[tokio::test(start_paused = true)]
async fn very_many_news_go_in_several_passes_of_one_tick() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "p").await;
    kit.start("q").await;
    kit.commit(&mut held, (0..500).map(|call_id| sent(call_id, "q")).collect()).await;
    assert_eq!(kit.runtime.tick().await.counts.messages_delivered, 500);
    assert!(kit.store.calls("deliveries") >= 4);
    let records = kit.runtime.read_log(&key("q"), None, Index(1), 1_000).await.unwrap();
    let ids = records.iter().map(|record| match &record.events[0] {
        Event::SignalReceived(signal) => signal.signal_id.clone().unwrap(),
        event => panic!("{event:?}"),
    });
    assert!(ids.eq((0..500).map(|call_id| format!("p~0~{call_id}~0000000000000007"))), "in the order they were sent");
}

#[tokio::test(start_paused = true)]
async fn a_child_is_handed_to_a_worker_of_this_process_at_its_start() {
    let kit = Harness::new();
    let worker = kit.worker("w");
    let mut held = kit.start_held(&worker, "p").await;
    let claims = kit.store.calls("claim_runs");
    kit.commit(&mut held, vec![child(0, "c", OnParentClose::Cancel)]).await;
    kit.runtime.tick().await;
    assert_eq!(kit.head("c").await.status, Status::Running);
    assert_eq!(worker.next_runs(1).await[0].head.key, key("c"));
    assert_eq!(kit.store.calls("claim_runs"), claims);
}

#[tokio::test(start_paused = true)]
async fn two_couriers_at_the_same_time_deliver_once() {
    let kit = Harness::new();
    let other = kit.other_runtime();
    let _held = parent(&kit, OnParentClose::Cancel).await;
    let gate = kit.store.stall_once("start_run", When::Before);
    let slow = tokio::spawn({
        let runtime = kit.runtime.clone();
        async move { runtime.tick().await }
    });
    while kit.store.calls("start_run") < 2 {
        tokio::task::yield_now().await;
    }
    other.tick().await;
    let mut child = take_child(&kit).await;
    kit.complete(&mut child).await;
    other.tick().await;
    gate.notify_one();
    slow.await.unwrap();
    kit.settle().await;
    assert_eq!(kit.log("c").await, ["run_started", "run_completed"]);
    assert_eq!(kit.log("p").await, ["run_started", "child_started", "child_completed"]);
}

/// R10, L19: a run under the id of a deleted run gets a result for its own child, and its signals are delivered.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_deleted_and_started_again_is_another_run() {
    for child_is_gone in [false, true] {
        let kit = Harness::new();
        kit.start("q").await;
        for seed in [7, 8] {
            kit.runtime.start_run(StartRequest { seed, ..start("p") }).await.unwrap();
            let worker = kit.worker("w");
            let mut parent = kit.next_held(&worker).await;
            while parent.key != key("p") {
                parent = kit.next_held(&worker).await;
            }
            kit.commit(&mut parent, vec![child(0, "c", OnParentClose::Cancel), sent(1, "q")]).await;
            kit.settle().await;
            if seed == 7 || child_is_gone {
                kit.runtime.terminate_run(&key("c"), "").await.unwrap();
            }
            kit.settle().await;
            assert_eq!(kit.log("p").await, ["run_started", "child_started", "signal_sent", "child_failed"], "{seed}");
            if seed == 7 {
                kit.runtime.terminate_run(&key("p"), "").await.unwrap();
                kit.settle().await;
                for gone in ["p", "c"].into_iter().filter(|id| *id == "p" || child_is_gone) {
                    kit.runtime.delete_run(&key(gone), "again").await.unwrap();
                }
            }
        }
        let records = kit.runtime.read_log(&key("p"), None, Index(3), 10).await.unwrap();
        let Event::ChildFailed(event) = &records[0].events[0] else { panic!("{records:?}") };
        assert_eq!(event.failure.code, if child_is_gone { "terminated" } else { "run_exists" });
        let words = event.failure.message.contains("a child of a deleted run with the id p");
        assert_eq!(words, !child_is_gone, "{}", event.failure.message);
        assert_eq!(kit.log("q").await, ["run_started", "signal_received", "signal_received"]);
    }
}
