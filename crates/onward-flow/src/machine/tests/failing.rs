//! Failures, `catch` and cancellation.

use serde_json::json;

use super::*;

const CATCH: &str = "steps:
- { name: a, task: work, catch: [{ on: [x, y], goto: b }, { on: any, goto: c, store: e }, { on: canceled, goto: d }] }
- { name: z, task: work, next: end }
- { name: b, task: work, next: end }
- { name: c, task: work, next: end }
- { name: d, task: work, with: { code: '{{ error.code }}' } }";

#[test]
fn the_first_catch_that_fits_is_taken() {
    for (code, then) in [("y", "b"), ("other", "c"), ("canceled", "d")] {
        let mut play = play(CATCH);
        play.fail("a", code);
        assert_eq!(play.open(), [then], "after {code}");
        assert_eq!(play.progress("a"), format!("Failed 1 [{then:?}]"));
    }
}

#[test]
fn a_failure_that_nothing_catches_fails_the_flow_and_cancels_the_rest() {
    let mut play = play("steps:\n- { name: p, parallel: { l: [{ name: l, task: work }] } }\n- { name: a, task: work }");
    play.fail("a", "boom");
    assert_eq!(play.last.cancels, [1]);
    assert_eq!((play.failure().code.as_str(), play.failure().step.as_deref()), ("boom", Some("a")));
    assert_eq!(play.progress("l"), "Canceled 1 []");
}

#[test]
fn expressions_that_fail_fail_the_step() {
    let mut play = play(
        "steps:\n- { name: a, task: work, store: x, next: [{ when: 'result.no.no', goto: end }], catch: [{ on: expression_failed, goto: b, store: e }] }\n- { name: b, task: work }",
    );
    play.ok("a", json!(1));
    assert_eq!(play.open(), ["b"]);
    assert_eq!(play.machine.state()["e"]["step"], "a");
}

#[test]
fn calls_after_a_caught_cancellation_work() {
    let mut play = play(
        "steps:\n- { name: a, task: work, catch: [{ on: canceled, goto: b }] }\n- { name: x, task: work }\n- { name: b, task: clean }",
    );
    play.fail("a", "canceled");
    play.ok("b", json!(1));
    play.output();
}
