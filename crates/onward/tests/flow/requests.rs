//! Every request of the machine, with its answers and failures, in virtual time.

use onward::agent::{Block, ModelReply, StopReason};
use onward::prelude::*;
use onward::testing::{Replay, Script};
use onward::{Event, Log};
use serde_json::{Value, json};

use crate::{script, shell};

pub(crate) fn reply(text: &str) -> ModelReply {
    ModelReply { blocks: vec![Block::text(text)], stop: Some(StopReason::End), ..ModelReply::default() }
}

/// Returns the inputs of the tasks of this kind, in the order in which they were scheduled.
fn tasks(log: &Log, kind: &str) -> Vec<Value> {
    let input = |event: &Event| match event {
        Event::TaskScheduled(task) if task.kind.as_str() == kind => Some(task.input.read().unwrap()),
        _ => None,
    };
    log.events().filter_map(|(_, event)| input(event)).collect()
}

const ALL: &str = r#"
flow: all
inputs:
  name: { type: string }
steps:
  - name: work
    task: double
    with: { n: 21 }
    retry: { attempts: 3, backoff: 2s }
    timeout: 10s
    queue: fast
    store: doubled
  - name: ask
    prompt: "Greet {{ inputs.name }}."
    model: small
    system: Be brief.
    store: hello
  - name: delegate
    agent: helper
    prompt: "{{ state.hello }}"
    store: text
  - name: sub
    child: other
    with: { a: 1 }
    store: sub
  - name: hold
    wait: go
    within: 1h
    store: signal
  - name: nap
    sleep: 2h
  - name: permit
    approval: "Go on with {{ state.signal }}?"
    show: { hello: "{{ state.hello }}" }
    deciders: [ada]
    store: permitted
  - name: parse
    action: json
    with: { text: "[1, 2]" }
    store: parsed
  - name: id
    action: uuid
    store: id
output:
  doubled: "{{ state.doubled }}"
  text: "{{ state.text }}"
  sub: "{{ state.sub }}"
  signal: "{{ state.signal }}"
  permitted: "{{ state.permitted.approved }}"
  parsed: "{{ state.parsed }}"
  id: "{{ state.id }}"
"#;

fn all() -> Script {
    let double = |input: Value, attempt| match attempt {
        1 => Err(Failure::retryable("busy")),
        _ => Ok(input["n"].as_u64().unwrap() * 2),
    };
    let ask = |input: Value| {
        let settings = &input["settings"];
        assert_eq!((&settings["ask"], &settings["request"]["system"]), (&json!("Greet Ada."), &json!("Be brief.")));
        Ok(reply("Hello, Ada"))
    };
    script(ALL, &json!({"name": "Ada"}))
        .task_with("double", double)
        .task("llm.small", ask)
        .child("helper", |text: Value| Ok(json!({"stop": "done", "text": format!("told: {}", text.as_str().unwrap())})))
        .child("other", |input: Value| Ok(input["a"].clone()))
        .signal(secs(100), "go", "on")
        .approve_after(hours(1), "permit")
        .step("id", "an id")
}

#[test]
fn every_request_is_a_call_of_the_run_and_its_answer_a_result() {
    let outcome = all().run();
    let expected = json!({
        "doubled": 42, "text": "told: Hello, Ada", "sub": 1, "signal": "on", "permitted": true, "parsed": [1, 2], "id": "an id",
    });
    assert_eq!(outcome.output::<Value>(), expected);
    assert_eq!(outcome.elapsed(), secs(100) + hours(3));
    let scheduled = outcome.log().events().find_map(|(_, event)| match event {
        Event::TaskScheduled(task) if task.kind.as_str() == "double" => Some(task.options.clone()),
        _ => None,
    });
    let options = scheduled.unwrap();
    assert_eq!((options.retry().attempts_max, options.retry().first_delay_ms), (3, 2_000));
    assert_eq!((options.attempt_timeout_ms, options.queue.unwrap().as_str()), (Some(10_000), "fast"));
    let asked = outcome.log().events().find_map(|(_, event)| match event {
        Event::ApprovalRequested(approval) => Some(approval.clone()),
        _ => None,
    });
    let asked = asked.unwrap();
    assert_eq!((asked.title.as_str(), asked.deciders), ("Go on with on?", vec!["ada".to_owned()]));
    assert_eq!(asked.show.unwrap().read::<Value>().unwrap(), json!({"hello": "Hello, Ada"}));
}

/// Every run equals the one without a crash, and its log is replayed strictly after each commit.
#[test]
fn a_flow_that_crashes_before_and_after_every_commit_makes_the_same_calls() {
    all().crash_everywhere();
    all().schedules(20);
}

#[test]
fn a_finished_run_replays_to_the_same_log() {
    let script = all();
    let outcome = script.run();
    Replay::new("test", outcome.log()).against_foreign(shell(ALL), false).unwrap();
    script.assert_deterministic();
}

#[test]
fn a_changed_argument_of_an_action_diverges() {
    let text = |value: u32| format!("flow: parse\nsteps:\n  - {{ name: parse, action: json, with: {{ text: \"{value}\" }} }}\n");
    let outcome = script(&text(1), &Value::Null).run();
    Replay::new("test", outcome.log()).against_foreign(shell(&text(1)), false).unwrap();
    let pause = Replay::new("test", outcome.log()).against_foreign(shell(&text(2)), false).unwrap_err();
    assert!(pause.message.contains("`parse`"), "{}", pause.message);
}

#[test]
fn progress_is_the_state_of_the_run() {
    let outcome = all().run();
    let last = |step: &str| {
        let key = onward::flow::progress_key(step);
        let states = outcome.log().events().filter_map(|(_, event)| match event {
            Event::StateSet(set) if set.key.as_str() == key => Some(set.value.read::<Value>().unwrap()),
            _ => None,
        });
        states.last().unwrap_or_else(|| panic!("`{step}` has progress"))
    };
    assert_eq!((&last("work")["state"], &last("nap")["state"]), (&json!("done"), &json!("done")));
    assert_eq!(last("permit")["times"], 1);
}

#[test]
fn a_signal_that_does_not_come_and_an_approval_that_expires_are_timeouts() {
    let text = r#"
flow: waits
steps:
  - name: hold
    wait: go
    within: 1h
    catch: [{ on: timeout, goto: permit }]
  - name: stop
    set: { stopped: true }
    next: [{ goto: end }]
  - name: permit
    approval: Go on?
    within: 2h
    catch: [{ on: timed_out, goto: late, store: why }]
  - name: late
    set: { late: "{{ state.why.code }}" }
output: "{{ state.late }}"
"#;
    let script = script(text, &Value::Null);
    let outcome = script.run();
    assert_eq!((outcome.output::<String>().as_str(), outcome.elapsed()), ("timed_out", hours(3)));
    script.crash_everywhere();
}

#[test]
fn a_failure_has_its_code_its_step_and_its_details() {
    let text = r#"
flow: fails
steps:
  - name: stop
    action: fail
    with: { message: no stock, code: no_stock, details: { left: 0 } }
"#;
    let script = script(text, &Value::Null);
    let outcome = script.run();
    let failure = outcome.failure();
    assert_eq!((failure.code.as_str(), failure.retryable), ("no_stock", false));
    let details: Value = failure.details.as_ref().unwrap().read().unwrap();
    assert_eq!((&details["left"], &details["step"]), (&json!(0), &json!("stop")));
    script.crash_everywhere();
}

#[test]
fn names_that_the_engine_does_not_accept_fail_their_step_and_pause_nothing() {
    let text = r#"
flow: names
inputs:
  name: { type: string }
steps:
  - name: hold
    wait: "{{ inputs.name }}"
    catch: [{ on: invalid_arguments, goto: caught, store: why }]
  - name: caught
    set: { code: "{{ state.why.code }}" }
output: "{{ state.code }}"
"#;
    for name in ["", "a\nb", &"x".repeat(300), "onward.entry"] {
        let outcome = script(text, &json!({"name": name})).run();
        assert_eq!(outcome.output::<String>(), "invalid_arguments", "{name:?}");
    }
}

#[test]
fn a_loop_of_calls_that_cannot_be_made_ends() {
    let text = r#"
flow: stuck
steps:
  - name: hold
    wait: "\t"
    catch: [{ on: any, goto: hold }]
"#;
    let outcome = script(text, &Value::Null).run();
    assert_eq!(outcome.failure().code, "flow_stuck");
}

#[test]
fn long_labels_and_control_characters_in_keys_are_names_of_steps() {
    let text = r#"
flow: labels
inputs:
  items: { type: object }
steps:
  - name: parse
    each: { in: inputs.items, as: text }
    action: json
    with: { text: "{{ text }}" }
    store: parsed
output: "{{ state.parsed }}"
"#;
    let items = json!({"a\nb": "1", "ü".repeat(400): "2"});
    let outcome = script(text, &json!({"items": items})).run();
    assert_eq!(outcome.output::<Value>(), json!({"a\nb": 1, "ü".repeat(400): 2}));
}

#[test]
fn a_refusal_of_a_model_is_a_failure() {
    let text = "
flow: refused
steps:
  - { name: ask, prompt: Tell me., model: small }
";
    let refusal = ModelReply { blocks: Vec::new(), stop: Some(StopReason::Refusal), ..ModelReply::default() };
    let outcome = script(text, &Value::Null).task("llm.small", move |_: Value| Ok(refusal.clone())).run();
    assert_eq!(outcome.failure().code, "model_refused");
}

const EACH: &str = r#"
flow: items
steps:
  - name: work
    each: { in: [1, 2, 3, 4], as: n }
    task: double
    with: "{{ n }}"
    store: all
output: "{{ state.all }}"
"#;

/// Scenario 47, before and after each commit: an item whose result is recorded is not worked on again.
#[test]
fn an_each_over_items_continues_at_the_item_that_a_crash_interrupted() {
    let script = script(EACH, &Value::Null).task("double", |n: u64| Ok(n * 2));
    let outcome = script.run();
    assert_eq!(outcome.output::<Vec<u64>>(), [2, 4, 6, 8]);
    assert_eq!(tasks(outcome.log(), "double"), [1, 2, 3, 4]);
    script.crash_everywhere();
}

const UNDO: &str = r#"
flow: undo
steps:
  - name: reserve
    task: reserve
    store: room
    on_failure: { task: release, with: "{{ result }}" }
  - name: pay
    task: pay
    on_failure: { task: refund, with: "{{ state.room }}" }
  - name: hold
    wait: never
"#;

fn undo() -> Script {
    script(UNDO, &Value::Null)
        .task("reserve", |_: Value| Ok("room 7"))
        .task("pay", |_: Value| Ok(()))
        .task("release", |_: Value| Ok(()))
        .task("refund", |_: Value| Ok(()))
}

#[test]
fn a_canceled_flow_undoes_its_steps_latest_first() {
    let script = undo().cancel(secs(5), "enough");
    let outcome = script.run();
    assert!(outcome.is_canceled());
    let kinds: Vec<String> = outcome
        .log()
        .events()
        .filter_map(|(_, event)| match event {
            Event::TaskScheduled(task) => Some(task.kind.to_string()),
            _ => None,
        })
        .collect();
    assert_eq!(kinds, ["reserve", "pay", "refund", "release"]);
    assert_eq!(tasks(outcome.log(), "release"), ["room 7"]);
    script.crash_everywhere();
}

#[test]
fn a_cancel_request_does_not_interrupt_compensation() {
    let text = r#"
flow: undo
steps:
  - name: reserve
    task: reserve
    on_failure: { task: release, retry: { attempts: 5, backoff: 10s } }
  - name: stop
    action: fail
    with: { message: no, code: stopped }
"#;
    // The compensation succeeds at its third attempt, after 30 seconds; the request comes in between.
    let release = |_: Value, attempt| if attempt < 3 { Err(Failure::retryable("busy")) } else { Ok(()) };
    let script =
        script(text, &Value::Null).task("reserve", |_: Value| Ok(())).task_with("release", release).cancel(secs(15), "enough");
    let outcome = script.run();
    assert_eq!((outcome.failure().code.as_str(), outcome.elapsed()), ("stopped", secs(30)));
    let completed = outcome.log().events().filter(|(_, event)| event.name() == "task_completed").count();
    assert_eq!(completed, 2, "the reservation and its release");
    script.crash_everywhere();
}

#[test]
fn a_canceled_branch_cancels_its_task() {
    let text = r#"
flow: race
steps:
  - name: fork
    parallel:
      quick: [{ name: nap, sleep: 1s }]
      slow: [{ name: work, task: never }]
  - name: both
    join: { wait: any }
  - name: rest
    sleep: 1h
output: done
"#;
    let script = script(text, &Value::Null);
    let outcome = script.run();
    assert_eq!((outcome.output::<String>().as_str(), outcome.elapsed()), ("done", hours(1) + secs(1)));
    assert!(outcome.log().events().any(|(_, event)| event.name() == "task_canceled"), "{:?}", names(outcome.log()));
    script.crash_everywhere();
}

fn names(log: &Log) -> Vec<&'static str> {
    log.events().map(|(_, event)| event.name()).collect()
}
