//! Retries and time limits of the machine.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_child_is_attempted_again_after_a_backoff_that_doubles() {
    let mut play = play("steps:\n- { name: a, child: other, retry: { attempts: 4, backoff: 2s, backoff_max: 7s } }");
    for ms in [2_000, 4_000, 7_000] {
        play.fail("a", "boom");
        assert_eq!(play.request("a.retry"), &CallRequest::Sleep { ms });
        play.ok("a.retry", Value::Null);
    }
    play.fail("a", "boom");
    assert_eq!(play.failure().code, "boom");
}

#[test]
fn failures_that_may_not_be_attempted_again_are_not() {
    let steps = "steps:\n- { name: a, child: other, retry: { attempts: 3, on: [boom, timeout] } }";
    let mut other = play(steps);
    other.fail("a", "other");
    assert_eq!(other.failure().code, "other");
    let mut permanent = play(steps);
    permanent.answer("a", Err(FlowFailure::permanent("boom", "it failed")));
    assert_eq!(permanent.failure().code, "boom");
    let mut canceled = play(steps);
    canceled.fail("a", "canceled");
    assert_eq!(canceled.failure().code, "canceled");
    let mut timeout = play(steps);
    timeout.fail("a", "timed_out");
    assert_eq!(timeout.open(), ["a.retry"]);
}

#[test]
fn the_machine_retries_a_task_whose_retry_is_restricted() {
    let mut play = play("steps:\n- { name: a, task: work, retry: { attempts: 2, on: [boom] } }");
    assert!(matches!(play.request("a"), CallRequest::Task { retry: None, .. }));
    play.fail("a", "boom");
    play.ok("a.retry", Value::Null);
    play.ok("a", json!(1));
    play.output();
}

#[test]
fn a_sleep_beside_the_call_limits_each_attempt() {
    let mut play = play("steps:\n- { name: a, child: other, timeout: 5s, retry: { attempts: 2, backoff: 1s } }");
    assert_eq!(play.open(), ["a", "a.timeout"]);
    play.ok("a.timeout", Value::Null);
    assert_eq!((play.last.cancels.as_slice(), play.open()), ([0].as_slice(), vec!["a.retry"]));
    play.ok("a.retry", Value::Null);
    assert_eq!(play.open(), ["a", "a.timeout"]);
    play.ok("a", json!(1));
    assert_eq!(play.last.cancels, [4], "the sleep is canceled");
    play.output();
}

#[test]
fn a_time_limit_fails_with_the_class_timeout() {
    let mut play = play(
        "steps:\n- { name: a, wait: paid, timeout: 1m, catch: [{ on: timeout, goto: b, store: e }] }\n- { name: b, set: { c: '{{ error.code }}' } }\noutput: ['{{ state.c }}', '{{ state.e.message }}', '{{ state.e.step }}']",
    );
    play.ok("a.timeout", Value::Null);
    assert_eq!(play.output(), &json!(["timed_out", "no result within 1m", "a"]));
}
