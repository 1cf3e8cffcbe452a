//! Keys of promises: requests and releases are delivered once each, wherever the dispatcher is interrupted.

use std::collections::BTreeSet;

use onward_core::api::FindPromiseRequest;
use onward_core::event::{PromiseCreated, PromiseResolved, RunFailed, WaitCanceled};
use onward_core::reopen::Retry;
use onward_core::{Event, Failure, Timestamp};
use onward_runtime::{CallRef, StartRequest};
use onward_store::Clock;

use crate::faulty::{Happening, When};
use crate::kit::*;

/// Crash points of the dispatcher: before or after each of its calls to the store.
const STRIKES: [&str; 6] = ["deliveries", "start_run", "append_input", "finish_deliveries", "read_run", "delete_runs"];

/// Starts a run with a promise that has the key.
async fn create(kit: &Harness, id: &str) -> HeldRun {
    create_until(kit, id, None).await
}

async fn create_until(kit: &Harness, id: &str, deadline: Option<Timestamp>) -> HeldRun {
    let worker = kit.worker(id);
    let mut held = kit.start_held(&worker, id).await;
    let promise = PromiseCreated { call_id: at(0), name: name("paid"), deadline, key: Some("payment/42".to_owned()) };
    kit.commit(&mut held, vec![promise.into()]).await;
    held
}

/// Returns the run to which the key leads.
async fn found(kit: &Harness) -> Result<String, &'static str> {
    let request = FindPromiseRequest { namespace: key("a").namespace, key: "payment/42".to_owned() };
    kit.runtime.find_promise(request).await.map(|call| call.run.id.to_string()).map_err(|error| error.code())
}

fn promise_of(id: &str) -> CallRef {
    CallRef { run: key(id), generation: 0, call_id: at(0) }
}

/// Returns the code with which the promise of a run failed.
async fn failure(kit: &Harness, id: &str) -> Option<String> {
    let records = kit.runtime.read_log(&key(id), None, onward_core::Index(0), usize::MAX).await.unwrap();
    records.iter().flat_map(|record| &record.events).find_map(|event| match event {
        Event::PromiseResolved(PromiseResolved { result: Err(failure), .. }) => Some(failure.code.clone()),
        _ => None,
    })
}

/// Delivers everything. A process that an error has ended is replaced by another one over the same store.
async fn settle(kit: &mut Harness) {
    for _ in 0..20 {
        let tick = kit.runtime.tick().await;
        if tick.error.is_some() {
            kit.runtime = kit.other_runtime();
        } else if tick.counts == Default::default() {
            return;
        }
    }
    panic!("the runtime does not come to rest");
}

/// `a` has the key until its promise ends, `b` fails, and `c` has the key after that. Calls `strike` before each time that
/// messages are delivered; returns true if everything has happened that it requested.
async fn play(mut kit: Harness, ends_with_run: bool, strike: impl Fn(&Harness, usize)) -> bool {
    let mut has_happened = true;
    let mut deliver = async |kit: &mut Harness, number| {
        strike(kit, number);
        settle(kit).await;
        has_happened &= kit.store.is_exhausted();
        kit.store.clear();
    };
    assert_eq!(found(&kit).await, Err("promise_key_not_found"));
    create(&kit, "a").await;
    deliver(&mut kit, 0).await;
    assert_eq!(found(&kit).await.as_deref(), Ok("a"));
    create(&kit, "b").await;
    deliver(&mut kit, 1).await;
    assert_eq!((failure(&kit, "a").await, failure(&kit, "b").await.as_deref()), (None, Some("promise_key_taken")), "PK1");
    assert_eq!(found(&kit).await.as_deref(), Ok("a"));
    if ends_with_run {
        kit.runtime.terminate_run(&key("a"), "").await.unwrap();
    } else {
        kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap();
    }
    deliver(&mut kit, 2).await;
    assert_eq!(found(&kit).await.as_deref(), Ok("a"), "PK2");
    create(&kit, "c").await;
    deliver(&mut kit, 3).await;
    assert_eq!((failure(&kit, "c").await, found(&kit).await.as_deref()), (None, Ok("c")));
    for id in ["a", "b"] {
        assert_eq!(kit.head(id).await.memos, []);
    }
    has_happened
}

/// The process dies before or after each call to the store, and another one continues.
#[tokio::test(start_paused = true)]
async fn a_key_has_one_open_promise_wherever_the_process_dies() {
    let mut struck = BTreeSet::new();
    for (ends_with_run, operation) in [false, true].into_iter().flat_map(|ends| STRIKES.map(|operation| (ends, operation))) {
        for (at, nth) in (0..4).flat_map(|at| (0..4).map(move |nth| (at, nth))) {
            for when in [When::Before, When::After] {
                let strike = |kit: &Harness, now| {
                    if now == at {
                        (0..nth).for_each(|_| kit.store.once(operation, when, Happening::Do(Box::new(|_| {}))));
                        kit.store.fail_once(operation, when);
                    }
                };
                if play(Harness::new(), ends_with_run, strike).await {
                    struck.insert(operation);
                }
            }
        }
    }
    assert_eq!(struck.len(), STRIKES.len(), "every operation has failed: {struck:?}");
}

/// PK1: one dispatcher delivers the release of a promise and the request of the next one.
#[tokio::test(start_paused = true)]
async fn a_key_is_released_before_the_next_promise_requests_it() {
    let kit = Harness::new();
    create(&kit, "a").await;
    kit.settle().await;
    kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap();
    create(&kit, "c").await;
    kit.settle().await;
    assert_eq!((failure(&kit, "c").await, found(&kit).await.as_deref()), (None, Ok("c")));
}

/// PK1: the promise is over when its request is delivered; the key does not stay with it.
#[tokio::test(start_paused = true)]
async fn a_promise_that_ends_before_it_has_its_key_leaves_it_to_others() {
    let kit = Harness::new();
    create(&kit, "a").await;
    kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap();
    kit.settle().await;
    assert_eq!(found(&kit).await.as_deref(), Ok("a"), "a late repeat is a repeat");
    create(&kit, "c").await;
    kit.settle().await;
    assert_eq!((failure(&kit, "c").await, found(&kit).await.as_deref()), (None, Ok("c")));
}

/// PK2: the id of the run belongs to another run.
#[tokio::test(start_paused = true)]
async fn a_key_does_not_lead_to_a_later_run_of_the_same_id() {
    let kit = Harness::new();
    create(&kit, "a").await;
    kit.settle().await;
    kit.runtime.terminate_run(&key("a"), "").await.unwrap();
    kit.settle().await;
    kit.runtime.delete_run(&key("a"), "").await.unwrap();
    assert_eq!(found(&kit).await, Err("promise_key_not_found"));
    kit.runtime.start_run(StartRequest { seed: 8, ..start("a") }).await.unwrap();
    assert_eq!(found(&kit).await, Err("promise_key_not_found"));
}

/// PK1: a promise that is no longer awaited leaves the key to others; PK2: until then the key leads to it.
#[tokio::test(start_paused = true)]
async fn a_deadline_and_a_withdrawal_release_the_key() {
    for is_deadline in [true, false] {
        let kit = Harness::new();
        let mut held = create_until(&kit, "a", is_deadline.then(|| kit.clock.now().after(seconds(10)))).await;
        kit.settle().await;
        if is_deadline {
            kit.advance(seconds(10));
        } else {
            kit.commit(&mut held, vec![WaitCanceled { call_id: at(0) }.into()]).await;
        }
        kit.settle().await;
        assert_eq!((kit.head("a").await.memos, found(&kit).await.as_deref()), (vec![], Ok("a")));
        let late = kit.runtime.resolve_promise(&promise_of("a"), Ok(text("late")), "x").await.unwrap_err();
        assert_eq!(late.code(), "signal_lost");
        create(&kit, "c").await;
        kit.settle().await;
        assert_eq!((failure(&kit, "c").await, found(&kit).await.as_deref()), (None, Ok("c")));
    }
}

/// PK2: the dispatcher delivers the request again after the promise has ended, because it died before each acknowledgment.
#[tokio::test(start_paused = true)]
async fn a_key_stays_with_its_promise_when_nothing_is_acknowledged_before_its_end() {
    let kit = Harness::new();
    create(&kit, "a").await;
    for _ in 0..2 {
        kit.store.fail_once("finish_deliveries", When::Before);
        kit.runtime.tick().await.error.expect("nothing is acknowledged");
    }
    assert_eq!(kit.log("a").await.last(), Some(&"memo_answered"), "it has its key");
    kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap();
    kit.store.fail_once("finish_deliveries", When::Before);
    kit.runtime.tick().await.error.expect("nothing is acknowledged");
    kit.settle().await;
    assert_eq!(found(&kit).await.as_deref(), Ok("a"));
    assert!(kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap().repeated);
}

/// PK2: the promise of a retried run is the same one, and open again.
#[tokio::test(start_paused = true)]
async fn a_retried_run_keeps_its_key_until_another_promise_has_it() {
    for is_taken in [false, true] {
        let kit = Harness::new();
        let mut held = create(&kit, "a").await;
        kit.settle().await;
        kit.commit(&mut held, vec![RunFailed { failure: Failure::fatal("f"), attempts: None }.into()]).await;
        kit.settle().await;
        kit.runtime.retry_run(&key("a"), &Retry::new("again")).await.unwrap();
        if is_taken {
            create(&kit, "b").await;
        }
        kit.settle().await;
        assert_eq!(found(&kit).await.as_deref(), Ok(if is_taken { "b" } else { "a" }));
        kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap();
        kit.settle().await;
        assert_eq!(found(&kit).await.as_deref(), Ok(if is_taken { "b" } else { "a" }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_no_promise_can_have_is_refused() {
    let kit = Harness::new();
    for key in [String::new(), "k".repeat(1_025)] {
        let request = FindPromiseRequest { namespace: super::kit::key("a").namespace, key };
        assert_eq!(kit.runtime.find_promise(request).await.unwrap_err().code(), "memo_key_invalid");
    }
    let request = FindPromiseRequest { namespace: super::kit::key("a").namespace, key: "k".repeat(1_024) };
    assert_eq!(kit.runtime.find_promise(request).await.unwrap_err().code(), "promise_key_not_found");
}
