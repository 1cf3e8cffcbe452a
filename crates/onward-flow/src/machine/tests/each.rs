//! Steps for several items.

use serde_json::{Value, json};

use super::*;

#[test]
fn at_most_concurrency_items_are_open_and_results_keep_the_order() {
    // FW3.
    let mut play = play(
        "steps:\n- { name: a, each: { in: '[5, 6, 7, 8]', as: n, concurrency: 2 }, task: work, with: { n: '{{ n }}', k: '{{ key }}' }, store: x }",
    );
    assert_eq!(play.open(), ["a[0]", "a[1]"]);
    play.ok("a[1]", json!("b"));
    assert_eq!(play.open(), ["a[0]", "a[2]"]);
    let CallRequest::Task { input, .. } = play.request("a[2]") else { panic!("a task") };
    assert_eq!(input, &json!({ "n": 7, "k": 2 }));
    play.ok("a[2]", json!("c"));
    play.ok("a[3]", json!("d"));
    assert_eq!(play.open(), ["a[0]"]);
    play.ok("a[0]", json!("a"));
    assert_eq!(play.output(), &json!({ "x": ["a", "b", "c", "d"] }));
}

#[test]
fn a_machine_that_dies_at_the_third_of_four_items_goes_on_there() {
    // FW1, scenario 47.
    let steps = "steps:\n- { name: a, each: { in: '[1, 2, 3, 4]' }, task: work, store: x }";
    let mut first = play(steps);
    first.ok("a[0]", json!(10));
    first.ok("a[1]", json!(20));
    assert_eq!(first.open(), ["a[2]"]);
    let mut second = play(steps);
    second.ok("a[0]", json!(10));
    second.ok("a[1]", json!(20));
    assert_eq!(second.last, first.last);
    second.ok("a[2]", json!(30));
    second.ok("a[3]", json!(40));
    assert_eq!(second.output(), &json!({ "x": [10, 20, 30, 40] }));
}

#[test]
fn a_map_has_its_keys_and_an_empty_list_no_calls() {
    let mut map = play("steps:\n- { name: a, each: { in: '{\"p\": 1, \"q\": 2}', concurrency: 9 }, task: work, store: x }");
    assert_eq!(map.open(), ["a[p]", "a[q]"]);
    map.ok("a[q]", json!(2));
    map.ok("a[p]", json!(1));
    assert_eq!(map.output(), &json!({ "x": { "p": 1, "q": 2 } }));
    let empty = play("steps:\n- { name: a, each: { in: [] }, task: work, store: x }");
    assert_eq!(empty.output(), &json!({ "x": [] }));
}

#[test]
fn the_first_failure_cancels_the_open_items() {
    let mut play = play(
        "steps:\n- { name: a, each: { in: [1, 2, 3], concurrency: 3 }, task: work, catch: [{ goto: b }] }\n- { name: b, task: work }",
    );
    play.fail("a[1]", "boom");
    assert_eq!(play.last.cancels, [0, 2]);
    assert_eq!(play.open(), ["b"]);
}

#[test]
fn collected_failures_are_results() {
    let mut play = play("steps:\n- { name: a, each: { in: [1, 2], collect_errors: true }, task: work, store: x }");
    play.fail("a[0]", "boom");
    play.ok("a[1]", json!(2));
    let error = json!({ "code": "boom", "message": "it failed", "step": "a", "details": null });
    assert_eq!(play.output(), &json!({ "x": [{ "error": error }, 2] }));
}

#[test]
fn progress_of_many_items_is_reported_in_twentieths() {
    let mut play = play("steps:\n- { name: a, each: { in: 'range(200)', concurrency: 10 }, task: work, when: 'true' }");
    for item in 0..200 {
        play.ok(&format!("a[{item}]"), Value::Null);
    }
    let counts: Vec<_> = play.progress.iter().map(|progress| (progress.done, progress.of)).collect();
    assert_eq!(counts.len(), 21);
    assert_eq!(counts[0], (Some(0), Some(200)));
    assert_eq!(counts[1], (Some(10), Some(200)));
    assert_eq!(counts[20], (Some(200), Some(200)));
}
