//! Branches and joins.

use serde_json::{Value, json};

use super::*;

fn two(join: &str) -> Play {
    play(&format!(
        "steps:
- {{ name: i, set: {{ n: 0 }} }}
- name: p
  parallel:
    l: [{{ name: l, task: work, store: page }}, {{ name: l2, set: {{ n: 1 }} }}]
    r: [{{ name: r, task: work, store: page }}]
- {join}
- {{ name: after, task: work, next: end }}
- {{ name: caught, task: clean }}"
    ))
}

#[test]
fn branches_have_their_own_state_and_a_join_takes_from_it() {
    let mut play = two("{ name: j, join: { take: { page: l.page, right: r } }, store: all }");
    assert_eq!(play.open(), ["l", "r"]);
    play.ok("r", json!("R"));
    play.ok("l", json!("L"));
    assert_eq!(play.open(), ["after"]);
    let (left, right) = (json!({ "n": 1, "page": "L" }), json!({ "n": 0, "page": "R" }));
    let state = json!({ "n": 0, "page": "L", "right": right, "all": { "l": left, "r": right } });
    assert_eq!(play.machine.state(), state);
}

#[test]
fn a_join_of_any_branch_cancels_the_others() {
    let mut play = two("{ name: j, join: { wait: any }, store: all }");
    play.ok("r", json!("R"));
    assert_eq!((play.last.cancels.as_slice(), play.open()), ([0].as_slice(), vec!["after"]));
    assert_eq!(play.machine.state()["all"], json!({ "r": { "n": 0, "page": "R" } }));
    assert_eq!(play.progress("l"), "Canceled 1 []");
}

#[test]
fn the_failure_of_a_branch_fails_its_join() {
    let mut play = two("{ name: j, join: {}, catch: [{ goto: caught, store: e }] }");
    play.fail("r", "boom");
    assert_eq!((play.last.cancels.as_slice(), play.open()), ([0].as_slice(), vec!["caught"]));
    assert_eq!(play.machine.state()["e"]["step"], "r");
}

#[test]
fn a_join_of_any_branch_fails_when_none_is_left() {
    let mut play = two("{ name: j, join: { wait: 1 } }");
    play.fail("r", "first");
    assert_eq!(play.open(), ["l"]);
    play.fail("l", "second");
    assert_eq!(play.failure().code, "first");
}

#[test]
fn a_failure_is_kept_until_the_join() {
    let mut play = play(
        "steps:\n- { name: p, parallel: { l: [{ name: l, task: work }] } }\n- { name: a, task: work }\n- { name: j, join: {} }",
    );
    play.fail("l", "boom");
    assert_eq!(play.open(), ["a"]);
    play.ok("a", json!(1));
    assert_eq!(play.failure().code, "boom");
}

#[test]
fn a_flow_ends_when_all_branches_have_ended() {
    let steps = "steps:\n- { name: p, parallel: { l: [{ name: l, task: work }] } }\n- { name: a, set: { x: 1 } }";
    let mut ends = play(steps);
    assert_eq!(ends.open(), ["l"]);
    ends.ok("l", json!(1));
    assert_eq!(ends.output(), &json!({ "x": 1 }));
    let mut fails = play(steps);
    fails.fail("l", "boom");
    assert_eq!(fails.failure().code, "boom");
}

#[test]
fn a_join_may_have_a_time_limit() {
    let mut play = two("{ name: j, join: {}, timeout: 5s, catch: [{ on: timeout, goto: caught }] }");
    assert_eq!(play.open(), ["j.timeout", "l", "r"]);
    play.ok("l", json!("L"));
    play.ok("j.timeout", Value::Null);
    assert_eq!((play.last.cancels.as_slice(), play.open()), ([2].as_slice(), vec!["caught"]));
}

/// Two matching edges start branches, and a join waits for them and maps names (scenario 46).
const FORK: &str = "steps:
- { name: a, task: work, store: n, next: { all: [{ when: 'result > 1', goto: b }, { goto: c, branch: other }, { when: 'result > 9', goto: d }] } }
- { name: b, task: work, store: page, next: j }
- { name: c, task: work, store: page, next: j }
- { name: d, task: work }
- { name: j, join: { branches: [b, other], take: { one: b.page, two: other.page } }, catch: [{ goto: k }] }
- { name: k, task: work }";

#[test]
fn all_matching_edges_fork_and_the_join_waits_for_named_branches() {
    let mut play = play(FORK);
    play.ok("a", json!(2));
    assert_eq!(play.open(), ["b", "c"]);
    assert_eq!(play.progress("a"), "Done 1 [\"b\", \"c\"]");
    play.ok("c", json!("C"));
    play.ok("b", json!("B"));
    assert_eq!(play.open(), ["k"]);
    assert_eq!(play.machine.state(), json!({ "n": 2, "one": "B", "two": "C" }));
}

#[test]
fn a_fork_waits_only_for_the_branches_that_it_started() {
    let mut play = play(FORK);
    play.ok("a", json!(1));
    assert_eq!(play.open(), ["c"]);
    play.ok("c", json!("C"));
    assert_eq!(play.machine.state(), json!({ "n": 1, "two": "C" }));
    play.ok("k", json!(1));
    play.output();
}

#[test]
fn the_join_of_a_fork_catches_even_if_no_branch_reaches_it() {
    let mut play = play(FORK);
    play.ok("a", json!(2));
    play.fail("b", "boom");
    assert_eq!(play.open(), ["k"]);
}

#[test]
fn the_first_match_strategy_follows_one_edge() {
    let mut play = play(
        "steps:\n- { name: a, task: work, next: [{ when: 'true', goto: b }, { when: 'true', goto: c }] }\n- { name: b, task: work, next: end }\n- { name: c, task: work }",
    );
    play.ok("a", json!(1));
    assert_eq!(play.open(), ["b"]);
}

#[test]
fn a_fork_in_a_branch_joins_before_the_outer_fork() {
    let mut play = play(
        "steps:
- { name: a, set: { n: 0 }, next: { all: [{ goto: b }, { goto: c }] } }
- { name: b, task: work, next: { all: [{ goto: x }, { goto: y }] } }
- { name: x, task: work, next: inner }
- { name: y, task: work, next: inner }
- { name: inner, join: { branches: [x, y] }, store: inner, next: outer }
- { name: c, task: work, next: outer }
- { name: outer, join: { branches: [b, c] }, store: out }",
    );
    play.ok("c", json!(1));
    play.ok("b", json!(1));
    play.ok("x", json!(1));
    play.ok("y", json!(1));
    let inner = json!({ "x": { "n": 0 }, "y": { "n": 0 } });
    assert_eq!(play.output(), &json!({ "n": 0, "out": { "b": { "n": 0, "inner": inner }, "c": { "n": 0 } } }));
}
