//! Kinds of steps: requests and results.

use serde_json::{Value, json};

use super::*;
use crate::document::Action;

#[test]
fn inputs_get_defaults_and_all_problems_are_listed() {
    let flow = "inputs: { n: { type: integer, default: 2 }, t: { type: string } }\nsteps: [{ name: a, set: { s: '{{ inputs.n }}{{ inputs.t }}' } }]";
    assert_eq!(Play::start(plan(flow), json!({ "t": "x" })).output(), &json!({ "s": "2x" }));
    let play = Play::start(plan(flow), json!({ "n": "no", "other": 1 }));
    assert_eq!(play.failure().code, "invalid_input");
    let problems = json!({ "problems": ["`other` is not an input", "`n` does not fit `type: \"integer\"`", "`t` is missing"] });
    assert_eq!(play.failure().details, Some(problems));
    assert_eq!(Play::start(plan(flow), json!([1])).failure().message, "the input is invalid: the input is not an object");
}

#[test]
fn a_task_has_its_rendered_input_and_the_options_of_the_engine() {
    let mut play = play(
        "steps:\n- { name: a, task: work, queue: slow, timeout: 3s, retry: { attempts: 4, backoff: 2s }, store: x,
            with: { n: '{{ 1 + 1 }}', t: 'n {{ run.id }}' } }",
    );
    let retry = Some(super::super::RetryRule { attempts: 4, backoff_ms: 2_000, backoff_max_ms: None });
    let input = json!({ "n": 2, "t": "n run-1" });
    let (kind, queue, timeout_ms) = ("work".to_owned(), Some("slow".to_owned()), Some(3_000));
    assert_eq!(play.request("a"), &CallRequest::Task { kind, input, queue, retry, timeout_ms });
    assert_eq!(play.open(), ["a"]);
    play.ok("a", json!([1]));
    assert_eq!(play.output(), &json!({ "x": [1] }));
}

#[test]
fn a_model_is_asked_three_times_for_an_answer_that_fits() {
    let steps = "steps:\n- { name: a, prompt: 'Count.', model: small, output: { type: integer }, store: x }";
    let mut first = play(steps);
    let CallRequest::Model { prompt, .. } = first.request("a") else { panic!("a prompt calls a model") };
    assert_eq!(prompt, "Count.\n\nAnswer only with JSON that fits this JSON Schema:\n{\"type\":\"integer\"}");
    first.ok("a", json!("three"));
    let CallRequest::Model { prompt, .. } = first.request("a") else { panic!("a prompt calls a model") };
    assert!(
        prompt.ends_with("Your last answer was:\nthree\n\nIts problems:\n- it is not JSON (line 1, column 2)\n\nAnswer again.")
    );
    first.ok("a", json!("\"3\""));
    first.ok("a", json!("```json\n3\n```"));
    assert_eq!(first.output(), &json!({ "x": 3 }));

    let mut second = play(steps);
    (0..3).for_each(|_| second.ok("a", json!("[]")));
    assert_eq!(second.failure().code, "output_invalid");
    assert_eq!(second.failure().details, Some(json!({ "problems": ["`output` does not fit `type: \"integer\"`"] })));
    assert_eq!(second.failure().step.as_deref(), Some("a"));
}

#[test]
fn an_agent_answers_once_with_its_text() {
    let mut play = play(
        "steps:\n- { name: a, agent: writer, prompt: 'Write.', store: x }\n- { name: b, agent: writer, prompt: 'N', output: { type: integer } }",
    );
    assert_eq!(play.request("a"), &CallRequest::Child { kind: "writer".to_owned(), input: json!("Write."), is_agent: true });
    play.ok("a", json!({ "text": "a page", "turns": 3 }));
    assert_eq!(play.machine.state(), json!({ "x": "a page" }));
    play.ok("b", json!({ "text": "no number" }));
    assert_eq!(play.failure().code, "output_invalid");
}

#[test]
fn approvals_signals_sleeps_and_children_have_their_requests() {
    let mut play = play(
        "steps:
- { name: a, approval: 'Go {{ 1 }}?', show: { n: '{{ 2 }}' }, deciders: ['{{ \"ann\" }}'], within: 2d, answer: { type: number }, store: x }
- { name: b, wait: 'paid', within: 1h, output: { type: object } }
- { name: c, sleep: '{{ 1.5 }}' }
- { name: d, sleep: 90s }
- { name: e, child: other, with: { of: '{{ state.x.approved }}', n: '{{ state.x.answer }}' } }
- { name: f, action: now }",
    );
    let approval = CallRequest::Approval {
        name: "a".to_owned(),
        title: "Go 1?".to_owned(),
        show: Some(json!({ "n": 2 })),
        deciders: vec!["ann".to_owned()],
        answer: Some(json!({ "type": "number" })),
        within_ms: Some(2 * 24 * 3_600_000),
    };
    assert_eq!(play.request("a"), &approval);
    play.ok("a", json!({ "approved": true, "decider": "ann", "feedback": null, "answer": 7 }));
    assert_eq!(play.request("b"), &CallRequest::Signal { name: "paid".to_owned(), within_ms: Some(3_600_000) });
    play.ok("b", json!({}));
    assert_eq!(play.request("c"), &CallRequest::Sleep { ms: 1_500 });
    play.ok("c", Value::Null);
    assert_eq!(play.request("d"), &CallRequest::Sleep { ms: 90_000 });
    play.ok("d", Value::Null);
    assert_eq!(
        play.request("e"),
        &CallRequest::Child { kind: "other".to_owned(), input: json!({ "of": true, "n": 7 }), is_agent: false }
    );
    play.ok("e", json!(1));
    let arguments = json!({});
    assert_eq!(play.request("f"), &CallRequest::Action { action: Action::Now, arguments, retry: None, timeout_ms: None });
    play.ok("f", json!("2026-01-01T00:00:00Z"));
    play.output();
}

#[test]
fn names_are_set_together_with_the_state_of_before() {
    let play = play(
        "steps:\n- { name: a, set: { x: 1, y: 2 } }\n- { name: b, set: { x: '{{ state.y }}', y: '{{ state.x }}' } }\noutput: ['{{ state.x }}', '{{ state.y }}']",
    );
    assert_eq!(play.output(), &json!([2, 1]));
}

#[test]
fn an_answer_of_a_call_that_is_not_open_changes_nothing() {
    let mut play = play("steps:\n- { name: a, task: work }");
    assert_eq!(play.machine.answer(7, Ok(json!(1))), Turn::default(), "FW2");
    assert!(play.machine.is_open(0));
    play.ok("a", json!(1));
    assert_eq!(play.machine.answer(0, Ok(json!(2))), Turn::default(), "FW4");
}
