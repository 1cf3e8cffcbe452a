//! Tests of the parent module.

use super::*;

const CODE: &str = "//! The caller is told `told`.\n\n/// What it returns.\n#[must_use]\npub fn one() {}\n\n/// Returns two.\nfn two() {}\n\n\
                    /// The third.\npub struct Three;\n";

fn problems(files: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    check(&Sources::of(files), &mut problems);
    problems
}

#[test]
fn words_and_docs_are_counted_in_comments_only() {
    assert_eq!(counts("crates/x/src/a.rs", CODE), Counts { words: 1, docs: 1 });
    assert_eq!(counts("crates/x/src/a/tests.rs", CODE), Counts { words: 1, docs: 0 });
    assert_eq!(counts("docs/a.md", "Nobody is told.\n```text\nwhoever\n```\n"), Counts { words: 2, docs: 0 });
}

#[test]
fn a_file_may_not_get_worse() {
    let path = "crates/x/src/a.rs";
    assert_eq!(problems(&[(path, CODE)]).len(), 2);
    assert_eq!(problems(&[(path, CODE), (BASELINE, "1 1 crates/x/src/a.rs\n")]), Vec::<String>::new());
    assert_eq!(problems(&[(path, CODE), (BASELINE, "1 0 crates/x/src/a.rs\n")]).len(), 1);
    assert_eq!(problems(&[(path, CODE), (BASELINE, "1 1 crates/x/src/b.rs\n")]).len(), 2);
}

#[test]
fn the_baseline_follows_a_renamed_file_and_never_grows() {
    let moved = [("crates/x/src/new.rs", CODE), (BASELINE, "1 2 crates/x/src/old.rs\n")];
    assert_eq!(lowered(&Sources::of(&moved)), format!("{HEAD}1 1 crates/x/src/new.rs\n"));
    let worse = [("crates/x/src/a.rs", CODE), (BASELINE, "1 0 crates/x/src/a.rs\n")];
    assert_eq!(lowered(&Sources::of(&worse)), "1 0 crates/x/src/a.rs\n");
}
