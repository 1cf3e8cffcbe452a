//! Flows, played by the engine: every request of the machine, crashes, replays, versions, and the actions.
//!
//! What a document means is tested in `onward-flow`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod actions;
mod memos;
mod random;
mod requests;
mod research;
mod versions;

use std::sync::Arc;

use onward::flow::document::{Known, Severity, check, parse};
use onward::flow::{Flow, FlowShell};
use onward::testing::Script;
use serde::Serialize;

/// Reads a document without errors.
#[track_caller]
fn flow(text: &str) -> Flow {
    let parsed = parse(text, "test.yaml");
    let problems = check(&parsed, &Known::default());
    let errors: Vec<String> =
        problems.iter().filter(|problem| problem.severity == Severity::Error).map(ToString::to_string).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    parsed.flow.unwrap()
}

#[track_caller]
fn shell(text: &str) -> Arc<FlowShell> {
    Arc::new(FlowShell::new(&flow(text)).unwrap())
}

/// Returns a script in which the flow runs in virtual time. Its log is replayed strictly after each commit.
#[track_caller]
fn script(text: &str, input: &(impl Serialize + ?Sized)) -> Script {
    Script::foreign(shell(text), false, input)
}
