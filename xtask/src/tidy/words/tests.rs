//! Tests of the parent module.

use super::*;

#[test]
fn names_are_taken_apart_into_words() {
    assert_eq!(words("RunHead"), ["run", "head"]);
    assert_eq!(words("END_REFUSALS_MAX"), ["end", "refusals", "max"]);
    assert_eq!(words("next_job"), ["next", "job"]);
}

#[test]
fn ambiguous_words_and_empty_module_names_are_refused() {
    let problems = |path: &str, text: &str| {
        let mut problems = Vec::new();
        check(&Sources::of(&[(path, text)]), &mut problems);
        problems
    };
    let line = "crates/x/src/a.rs:1: `RunSnapshot` contains `snapshot`; use checkpoint";
    assert_eq!(problems("crates/x/src/a.rs", "pub struct RunSnapshot;\n"), [line]);
    assert_eq!(problems("crates/x/src/utils.rs", "").len(), 1);
    assert_eq!(problems("crates/x/src/a.rs", "pub struct JobNotification;\npub fn journal() {}\n"), Vec::<String>::new());
}

#[test]
fn only_what_is_public_has_a_public_name() {
    assert_eq!(public_name("    pub async fn start_job(&self)"), Some("start_job"));
    assert_eq!(public_name("pub struct History<T> {"), Some("History"));
    assert_eq!(public_name("    pub journal: u64,"), Some("journal"));
    assert_eq!(public_name("pub(crate) struct History;"), None);
    assert_eq!(public_name("fn start_job()"), None);
}
