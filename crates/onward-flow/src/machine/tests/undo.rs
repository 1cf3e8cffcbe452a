//! Compensation (FW6).

use serde_json::{Value, json};

use super::*;

const BOOKING: &str = "steps:
- { name: flight, task: book, store: f, on_failure: { task: unbook, with: { of: '{{ result }}', all: '{{ state.f }}' } } }
- { name: rooms, each: { in: [1, 2], concurrency: 2 }, task: book, on_failure: { task: unbook, with: { of: '{{ item }}' }, retry: 2 } }
- { name: pay, task: pay, on_failure: { action: print, with: { message: x } } }";

fn booked() -> Play {
    let mut play = play(BOOKING);
    play.ok("flight", json!("LH1"));
    play.ok("rooms[1]", json!("r2"));
    play.ok("rooms[0]", json!("r1"));
    play
}

#[test]
fn completed_steps_are_undone_latest_first() {
    let mut play = booked();
    play.fail("pay", "boom");
    assert!(play.last.undoes);
    let retry = Some(super::super::RetryRule { attempts: 2, backoff_ms: 1_000, backoff_max_ms: None });
    let request =
        CallRequest::Task { kind: "unbook".to_owned(), input: json!({ "of": 1 }), queue: None, retry, timeout_ms: None };
    assert_eq!(play.request("rooms[0].undo"), &request);
    play.ok("rooms[0].undo", Value::Null);
    assert!(!play.last.undoes);
    play.ok("rooms[1].undo", Value::Null);
    let CallRequest::Task { input, retry, .. } = play.request("flight.undo") else { panic!("a task") };
    assert_eq!(input, &json!({ "of": "LH1", "all": "LH1" }));
    assert_eq!(retry.as_ref().map(|retry| retry.attempts), Some(10));
    play.ok("flight.undo", Value::Null);
    assert_eq!((play.failure().code.as_str(), &play.failure().details), ("boom", &None));
}

#[test]
fn compensation_that_fails_is_listed_and_the_rest_runs() {
    let mut play = booked();
    play.fail("pay", "canceled");
    play.fail("rooms[0].undo", "down");
    play.ok("rooms[1].undo", Value::Null);
    play.fail("flight.undo", "gone");
    let failed = |step, code| json!({ "step": step, "code": code, "message": "it failed" });
    assert_eq!(play.failure().code, "canceled");
    assert_eq!(play.failure().details, Some(json!({ "compensation": [failed("rooms", "down"), failed("flight", "gone")] })));
}

#[test]
fn items_that_completed_are_undone_if_their_step_fails() {
    let mut play = play(BOOKING);
    play.ok("flight", json!("LH1"));
    play.ok("rooms[1]", json!("r2"));
    play.fail("rooms[0]", "boom");
    assert_eq!(play.open(), ["rooms[1].undo"]);
}

#[test]
fn a_flow_that_completes_or_catches_undoes_nothing() {
    let mut play = booked();
    play.ok("pay", json!(1));
    play.output();
}
