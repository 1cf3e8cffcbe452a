//! Limits of runs.

use serde_json::json;

use super::*;

#[test]
fn a_loop_without_a_call_is_stuck() {
    // The check refuses a cycle without a step that calls. This one has such a step, which does not call.
    let play = play(
        "steps:
- { name: a, set: { x: 1 } }
- { name: b, each: { in: [] }, task: work, next: [{ when: 'state.x > 0', goto: a }], catch: [{ goto: a }] }",
    );
    assert_eq!(play.failure().code, "flow_stuck");
    assert!(play.progress.len() <= 2, "one progress for each step in a turn");
}

#[test]
fn a_run_may_begin_a_limited_number_of_steps() {
    let limits = MachineLimits { begins: 5, ..MachineLimits::default() };
    let plan = plan("steps:\n- { name: a, task: work, next: [{ when: 'result', goto: a }] }").limited(limits);
    let mut play = Play::start(plan, json!({}));
    (0..5).for_each(|_| play.ok("a", json!(1)));
    assert_eq!(play.failure().code, "flow_stuck");
}

#[test]
fn expressions_of_one_turn_have_a_budget() {
    let costly = "{% for i in range(9000) %}{% if i > 10000 %}x{% endif %}{% endfor %}";
    let many: String = (0..100).map(|name| format!("x{name}: '{costly}', ")).collect();
    for steps in [
        format!("- {{ name: a, each: {{ in: range(10000) }}, set: {{ x: '{costly}' }} }}"),
        format!("- {{ name: a, each: {{ in: range(10000), concurrency: 1, collect_errors: true }}, set: {{ x: '{costly}' }} }}"),
        format!("- {{ name: a, set: {{ {many} }} }}"),
        format!("- {{ name: a, set: {{ {many} }}, catch: [{{ goto: b }}] }}\n- {{ name: b, task: work }}"),
        format!("- {{ name: a, each: {{ in: range(10000) }}, set: {{ x: 1 }}, on_failure: {{ task: undo, with: '{costly}' }} }}"),
    ] {
        let mut play = play(&format!("steps:\n{steps}"));
        while let Some(call) = play.open.keys().next().copied() {
            play.open.remove(&call);
            let turn = play.machine.answer(call, Ok(Value::Null));
            play.take(turn);
        }
        let failure = play.failure();
        assert_eq!((failure.code.as_str(), failure.retryable), ("flow_stuck", false), "{steps}");
        assert_eq!(failure.step.as_deref(), Some("a"));
        assert!(failure.message.contains("put a step with a call"), "{}", failure.message);
    }
}

#[test]
fn large_copies_spend_the_budget_of_a_turn() {
    let text = json!({ "text": "x".repeat(900_000) });
    let limits = MachineLimits { operations_in_turn: 50_000, ..MachineLimits::default() };
    let input = "inputs: { text: { type: string } }";
    let copies =
        plan(&format!("{input}\nsteps:\n- {{ name: a, each: {{ in: range(100) }}, set: {{ x: '{{{{ inputs.text }}}}' }} }}"));
    assert_eq!(Play::start(copies.limited(limits), text.clone()).failure().code, "flow_stuck");
    // Every `set` copies the state.
    let steps = "- { name: i, set: { x: '{{ inputs.text }}' } }\n- { name: a, each: { in: range(100) }, set: { y: 1 } }";
    assert_eq!(Play::start(plan(&format!("{input}\nsteps:\n{steps}")).limited(limits), text).failure().code, "flow_stuck");
}

#[test]
fn items_without_a_call_count_like_steps() {
    let each = "each: { in: range(10000) }, set: { x: '{{ item }}' }";
    let two = format!("steps:\n- {{ name: a, {each} }}\n- {{ name: b, {each} }}");
    let failed = play(&two);
    assert_eq!((failed.failure().code.as_str(), failed.failure().step.as_deref()), ("flow_stuck", Some("b")));
    // A call between is enough.
    let mut three = play(&format!("steps:\n- {{ name: a, {each} }}\n- {{ name: c, task: work }}\n- {{ name: b, {each} }}"));
    three.ok("c", Value::Null);
    assert_eq!(three.output(), &json!({ "x": 9_999 }));
}

#[test]
fn an_each_of_many_calls_is_not_stuck() {
    let with =
        "{ n: '{{ item }}', of: '{{ inputs.list | length }}', text: 'item {{ key }} of {{ run.id }}', l: '{{ inputs.list }}' }";
    let plan = plan(&format!(
        "inputs: {{ list: {{ default: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] }} }}
steps:\n- {{ name: a, each: {{ in: range(10000), concurrency: 10000 }}, task: work, with: {with}, store: x }}",
    ));
    let mut play = Play::start(plan, json!({}));
    while let Some(call) = play.open.keys().next().copied() {
        play.open.remove(&call);
        let turn = play.machine.answer(call, Ok(json!(1)));
        play.take(turn);
    }
    assert_eq!(play.output()["x"].as_array().map(Vec::len), Some(10_000));
}

#[test]
fn items_wait_while_the_inputs_of_open_calls_are_large() {
    // FW3. Each input has 902 bytes with its quotes: with twelve of them the sum is above the limit.
    let limits = MachineLimits { open_bytes: 10_000, ..MachineLimits::default() };
    let steps = "inputs: { text: {} }
steps:
- name: p
  parallel:
    l: [{ name: a, each: { in: range(50), concurrency: 50 }, task: work, with: '{{ inputs.text }}', retry: { attempts: 3, on: [boom] } }]
    m: [{ name: b, each: { in: range(3), concurrency: 3 }, task: work, with: '{{ inputs.text }}' }]
- { name: j, join: {} }";
    let start = || Play::start(plan(steps).limited(limits), json!({ "text": "x".repeat(900) }));
    let (mut play, mut again) = (start(), start());
    let count = |play: &Play, step: &str| play.open.values().filter(|call| call.label.starts_with(step)).count();
    // An item alone may always be open.
    assert_eq!((count(&play, "a["), count(&play, "b[")), (12, 1));
    // The sleep before another attempt counts like the attempt.
    play.fail("a[0]", "boom");
    assert_eq!(play.open.len(), 13);
    again.fail("a[0]", "boom");
    assert_eq!(again.last, play.last, "FW1");
    play.ok("b[0]", json!(1));
    assert_eq!((count(&play, "a["), count(&play, "b[")), (12, 1));
    // Items without room for them begin when the sum is small enough again.
    play.ok("a[1]", json!(1));
    play.ok("a[2]", json!(1));
    assert_eq!((count(&play, "a["), count(&play, "b[")), (11, 1));
    let mut most = 0;
    while let Some(call) = play.open.keys().next_back().copied() {
        most = most.max(play.open.len());
        play.open.remove(&call);
        let turn = play.machine.answer(call, Ok(json!(1)));
        play.take(turn);
    }
    assert!(play.output().is_object());
    assert_eq!(most, 12);
}

#[test]
fn too_many_items_fail_the_step() {
    let mut play = play("steps:\n- { name: i, task: work, store: l }\n- { name: a, each: { in: state.l }, task: work }");
    play.ok("i", json!(vec![0; 10_001]));
    assert_eq!((play.failure().code.as_str(), play.failure().retryable), ("too_many_items", false));
}

#[test]
fn a_state_that_doubles_with_each_turn_of_a_loop_is_refused() {
    let limits = MachineLimits { state_bytes: 10_000, ..MachineLimits::default() };
    let plan = plan(
        "steps:
- { name: i, set: { x: text } }
- { name: p, parallel: { l: [{ name: l, task: work }], r: [{ name: r, set: { y: 1 } }] } }
- { name: j, join: {}, store: x, next: p }",
    );
    let mut play = Play::start(plan.limited(limits), json!({}));
    while !play.open.is_empty() {
        play.ok("l", json!(1));
    }
    assert_eq!(play.failure().code, "value_too_large");
    let size = play.machine.state().to_string().len();
    assert!((4_000..10_000).contains(&size), "{size} bytes");
}

#[test]
fn forks_that_fork_again_are_refused() {
    let plan = plan(
        "steps:
- { name: a, task: work, next: { all: [{ when: 'true', goto: a, branch: l }, { goto: a, branch: r }] } }
- { name: j, join: {} }",
    );
    let mut play = Play::start(plan.limited(MachineLimits { paths: 50, ..MachineLimits::default() }), json!({}));
    while !play.open.is_empty() {
        play.ok("a", json!(1));
    }
    assert_eq!(play.failure().code, "too_many_branches");
}

#[test]
fn a_plan_lists_all_problems() {
    let flow = |steps: &str| {
        serde_json::from_value(json!({ "flow": "f", "steps": serde_json::from_str::<Value>(steps).expect("JSON") }))
    };
    let flow = flow(
        r#"[{"name": "a", "task": "t", "with": "{{ 1 + }}", "next": "b"},
            {"name": "a", "set": {}, "switch": {"on": "x", "cases": {"1": "nowhere"}}, "next": "end"},
            {"name": "j", "join": {}, "each": {"in": []}}, {"name": "n"}]"#,
    );
    let problems = Plan::new(&flow.expect("the form is right")).expect_err("the flow has problems");
    let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
    for path in ["steps[0].with", "steps[0].next", "steps[1].name", "steps[1].next", "steps[2].each", "steps[3]"] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
}
