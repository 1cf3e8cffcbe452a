//! Delayed starts: a run begins once, wherever the store fails, and absurd times are refused.

use onward_core::{Status, Timestamp};
use onward_runtime::{RuntimeError, Signal, StartRequest};

use crate::faulty::When;
use crate::kit::*;

/// Operations of the store that a delayed run needs: each fails before and after its call.
const STRIKES: [&str; 4] = ["start_run", "append_input", "expire", "claim_runs"];

fn delayed(id: &str) -> StartRequest {
    StartRequest { start_after_ms: Some(10_000), ..start(id) }
}

/// DS1, DS2
#[tokio::test(start_paused = true)]
async fn a_delayed_run_begins_once_wherever_the_store_fails() {
    for operation in STRIKES {
        for (when, strike_at) in (0..4).flat_map(|at| [(When::Before, at), (When::After, at)]) {
            let kit = Harness::new();
            let worker = kit.worker("w");
            let strike = |now: u32| {
                if now == strike_at {
                    kit.store.fail_once(operation, when);
                }
            };
            strike(0);
            while kit.runtime.start_run(delayed("r")).await.is_err() {}
            strike(1);
            while kit.runtime.signal_run(&key("r"), Signal { signal_id: Some("s".to_owned()), ..signal("paid") }).await.is_err() {}
            strike(2);
            kit.advance(seconds(9));
            kit.settle().await;
            assert_eq!(kit.head("r").await.status, Status::Waiting, "{operation} {when:?} {strike_at}");
            strike(3);
            kit.advance(seconds(1));
            kit.settle().await;
            kit.store.clear();
            kit.settle().await;
            let mut held = kit.next_held(&worker).await;
            kit.complete(&mut held).await;
            let log = ["run_started", "signal_received", "run_begun", "run_completed"];
            assert_eq!(kit.log("r").await, log, "{operation} {when:?} {strike_at}");
        }
    }
}

/// DS2
#[tokio::test(start_paused = true)]
async fn two_runtimes_with_one_store_begin_a_run_once() {
    let kit = Harness::new();
    let other = kit.other_runtime();
    for number in 0..10 {
        kit.runtime.start_run(delayed(&format!("r{number}"))).await.unwrap();
    }
    kit.advance(seconds(10));
    let (first, second) = tokio::join!(kit.runtime.tick(), other.tick());
    assert!(first.error.is_none() && second.error.is_none());
    kit.settle().await;
    for number in 0..10 {
        assert_eq!(kit.log(&format!("r{number}")).await, ["run_started", "run_begun"]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_absurd_start_time_is_refused_and_a_time_that_has_passed_is_not() {
    let kit = Harness::new();
    kit.advance(seconds(1_000));
    let at = |at: u64| StartRequest { start_at: Some(Timestamp(at)), ..start("r") };
    let both = StartRequest { start_at: Some(Timestamp(0)), ..delayed("r") };
    let far = StartRequest { start_after_ms: Some(u64::MAX), ..start("r") };
    for absurd in [both, far, at(u64::MAX), at(253_402_300_800_000)] {
        let error: RuntimeError = kit.runtime.start_run(absurd).await.unwrap_err();
        assert_eq!(error.code(), "start_time_invalid", "{error}");
        assert!(error.hint().is_some());
        assert!(kit.runtime.read_head(&key("r")).await.is_err(), "nothing was started");
    }
    let started = kit.runtime.start_run(at(5)).await.unwrap();
    assert_eq!((started.head.status, started.head.starts_at), (Status::Pending, None));
    let last = StartRequest { start_at: Some(Timestamp(253_402_300_799_999)), ..start("last") };
    assert_eq!(kit.runtime.start_run(last).await.unwrap().head.status, Status::Waiting);
}
