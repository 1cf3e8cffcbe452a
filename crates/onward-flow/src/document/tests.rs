//! Documents and their problems.

mod hostile;
mod problems;

use super::{Flow, Known, Problem, SourcePosition, check, parse};

const EXAMPLE: &str = include_str!("../../../../examples/flows/research.yaml");

/// Returns all problems of a document.
fn problems(text: &str) -> Vec<Problem> {
    check(&parse(text, "flow.yaml"), &Known::default())
}

/// Returns the places and codes of all problems: `3:5 unknown_step`. Warnings begin with `~`.
fn found(text: &str) -> Vec<String> {
    let line = |problem: &Problem| {
        let mark = if problem.is_error() { "" } else { "~" };
        format!("{mark}{}:{} {}", problem.line, problem.column, problem.code)
    };
    problems(text).iter().map(line).collect()
}
