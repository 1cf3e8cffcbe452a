//! Tests of the parent module.

use super::*;
use clap::CommandFactory;

#[test]
fn the_grammar_has_no_contradictions() {
    Cli::command().debug_assert();
}

#[test]
fn what_comes_after_two_dashes_is_somebody_elses() {
    let args = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>().into_iter();
    assert!(wants_json(args("onward rum --json")));
    assert!(!wants_json(args("onward dev -- x --json")));
}
