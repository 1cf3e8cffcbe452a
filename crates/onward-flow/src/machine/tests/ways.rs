//! Where a path goes: `when`, `next`, `switch`.

use serde_json::json;

use super::*;

#[test]
fn a_skipped_step_has_no_result_and_its_ways_are_not_taken() {
    let mut play = play("steps:\n- { name: a, task: work, when: 'false', store: x, next: end }\n- { name: b, task: work }");
    assert_eq!(play.open(), ["b"]);
    assert_eq!(play.progress("a"), "Skipped 1 [\"b\"]");
    play.ok("b", json!(1));
    assert_eq!(play.output(), &json!({}));
}

#[test]
fn the_first_edge_that_matches_is_taken() {
    let steps = "steps:
- { name: a, task: work, next: [{ when: 'result > 5', goto: c }, { when: 'result > 3', goto: end }] }
- { name: b, task: work, next: end }
- { name: c, task: work }";
    for (result, then) in [(9, vec!["c"]), (4, vec![]), (1, vec!["b"])] {
        let mut play = play(steps);
        play.ok("a", json!(result));
        assert_eq!(play.open(), then, "after {result}");
    }
}

#[test]
fn a_switch_goes_by_the_text_of_its_value() {
    let steps = "steps:
- { name: a, task: work }
- { name: s, switch: { on: result, cases: { '1': x, 'true': y, t: x }, default: z } }
- { name: x, task: work, next: end }
- { name: y, task: work, next: end }
- { name: z, task: work }";
    for (result, then) in [(json!(1), "x"), (json!(true), "y"), (json!("t"), "x"), (json!([1]), "z")] {
        let mut play = play(steps);
        play.ok("a", result);
        assert_eq!(play.open(), [then]);
    }
}

#[test]
fn a_loop_begins_steps_again() {
    let mut play = play(
        "steps:
- { name: i, set: { n: 0 } }
- { name: a, task: work, with: { n: '{{ state.n }}' } }
- { name: c, set: { n: '{{ state.n + 1 }}' }, next: [{ when: 'state.n < 3', goto: a }] }
output: '{{ state.n }}'",
    );
    (0..3).for_each(|_| play.ok("a", json!(null)));
    assert_eq!(play.output(), &json!(3));
    assert_eq!(play.progress("a"), "Done 3 [\"c\"]");
}
