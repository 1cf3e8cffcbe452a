//! The program in README.md runs and does what its comments claim.

use std::time::Duration;

use onward::testing::Script;

// Its `main` is only compiled: it waits for a person and for twelve hours, which are scripted here.
include!("readme/ten_lines.rs");

fn teapot() -> Script {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a test can have an async runtime");
    Script::new(order, &"a teapot").task("print-label", move |paid| runtime.block_on(print_label(paid)))
}

#[test]
fn the_readme_shows_the_program_that_is_run_here() {
    let shown = include_str!("../../README.md").split("```rust,no_run\n").nth(1).and_then(|rest| rest.split("```").next());
    assert_eq!(shown, Some(include_str!("readme/ten_lines.rs")));
}

#[test]
fn an_approved_order_gets_its_label_after_twelve_hours_whenever_the_process_dies() {
    let script = teapot().approve("ship");
    let outcome = script.run();
    assert_eq!(outcome.output::<String>(), "label: paid for a teapot");
    assert_eq!(outcome.elapsed(), Duration::from_hours(12));
    assert_eq!(outcome.steps_run(), ["charge"]);
    script.crash_everywhere();
}

#[test]
fn an_order_that_is_rejected_or_forgotten_fails() {
    assert_eq!(teapot().reject("ship", "no teapots").run().failure().message, "rejected");
    let forgotten = teapot().run();
    assert_eq!(forgotten.failure().message, "rejected");
    assert_eq!(forgotten.elapsed(), Duration::from_hours(48));
}
