//! Keys of promises: requests and releases are delivered once each, wherever the dispatcher is interrupted.

use onward_core::Event;
use onward_core::api::FindPromiseRequest;
use onward_core::event::{PromiseCreated, PromiseResolved};
use onward_runtime::{CallRef, StartRequest};

use crate::faulty::When;
use crate::kit::*;

/// Crash points of the dispatcher: before or after each of its calls to the store.
const STRIKES: [&str; 6] = ["deliveries", "start_run", "append_input", "finish_deliveries", "read_run", "delete_runs"];

/// Starts a run with a promise that has the key.
async fn create(kit: &Harness, id: &str) -> HeldRun {
    let worker = kit.worker(id);
    let mut held = kit.start_held(&worker, id).await;
    let promise = PromiseCreated { call_id: at(0), name: name("paid"), deadline: None, key: Some("payment/42".to_owned()) };
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

/// `a` has the key until its promise ends, `b` fails, and `c` has the key after that.
async fn play(kit: &Harness, ends_with_run: bool, strike: impl Fn(usize)) {
    let settle = async |number| {
        strike(number);
        kit.settle().await;
        kit.store.clear();
    };
    assert_eq!(found(kit).await, Err("promise_key_not_found"));
    create(kit, "a").await;
    settle(0).await;
    assert_eq!(found(kit).await.as_deref(), Ok("a"));
    create(kit, "b").await;
    settle(1).await;
    assert_eq!((failure(kit, "a").await, failure(kit, "b").await.as_deref()), (None, Some("promise_key_taken")), "PK1");
    assert_eq!(found(kit).await.as_deref(), Ok("a"));
    if ends_with_run {
        kit.runtime.terminate_run(&key("a"), "").await.unwrap();
    } else {
        kit.runtime.resolve_promise(&promise_of("a"), Ok(text("paid")), "x").await.unwrap();
    }
    settle(2).await;
    assert_eq!(found(kit).await.as_deref(), Ok("a"), "PK2");
    create(kit, "c").await;
    settle(3).await;
    assert_eq!((failure(kit, "c").await, found(kit).await.as_deref()), (None, Ok("c")));
    for id in ["a", "b"] {
        assert_eq!(kit.head(id).await.memos, []);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_has_one_open_promise_wherever_the_dispatcher_is_interrupted() {
    for ends_with_run in [false, true] {
        for operation in STRIKES {
            for (when, at) in (0..4).flat_map(|at| [(When::Before, at), (When::After, at)]) {
                let kit = Harness::new();
                let strike = |now| {
                    if now == at {
                        kit.store.fail_once(operation, when);
                    }
                };
                play(&kit, ends_with_run, strike).await;
            }
        }
    }
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
