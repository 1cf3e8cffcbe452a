//! Tests of the parent module.

use super::*;
use clap::CommandFactory;

#[test]
fn the_grammar_has_no_contradictions() {
    Cli::command().debug_assert();
}

#[test]
fn arguments_after_two_dashes_are_passed_on() {
    let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter();
    assert!(wants_json(args("onward rum --json")));
    assert!(!wants_json(args("onward dev -- x --json")));
}
