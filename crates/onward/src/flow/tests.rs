use serde_json::json;

use super::*;
use crate::testing::World;

#[test]
fn only_runs_in_memory_are_kept() {
    let text = "flow: hold\nsteps:\n  - { name: hold, wait: go }\n";
    let flow = document::parse(text, "test.yaml").flow.unwrap();
    let shell = Arc::new(FlowShell::new(&flow).unwrap());
    let mut world = World::foreign(shell.clone(), false, &json!({}));
    world.run_until_idle().unwrap();
    assert_eq!(shell.runs().len(), 1);
    world.crash();
    assert_eq!(shell.runs().len(), 0, "the run was evicted (OT3)");
    world.run_until_idle().unwrap();
    world.signal("go", &());
    world.run_until_idle().unwrap();
    assert!(world.outcome().is_some());
    assert_eq!(shell.runs().len(), 0, "the run has ended");
}

#[test]
fn a_failed_expression_is_reported_with_its_step_and_source() {
    let text = "flow: wrong\nsteps:\n  - { name: first, set: { a: 1 } }\n  - { name: second, set: { b: '{{ state.a.c.d }}' } }\n";
    let flow = document::parse(text, "test.yaml").flow.unwrap();
    let mut world = World::foreign(Arc::new(FlowShell::new(&flow).unwrap()), false, &json!({}));
    world.run_until_idle().unwrap();
    let failure = world.outcome().unwrap().unwrap_err();
    assert_eq!(failure.code, "expression_failed");
    assert!(failure.message.starts_with("step `second`: ") && failure.message.contains("`state.a` is a number"), "{failure}");
}
