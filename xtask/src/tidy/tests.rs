//! Every check refuses what it is there for. Checks with tests of their own beside them are not repeated here.

use super::*;

fn problems(check: fn(&Sources, &mut Vec<String>), files: &[(&str, &str)]) -> Vec<String> {
    let mut problems = Vec::new();
    check(&Sources::of(files), &mut problems);
    problems
}

#[test]
fn a_number_that_no_page_explains_is_refused() {
    let page = ("docs/guide/guarantees.md", "| L1 | a statement | `numbering` |\n");
    assert!(problems(citations::check, &[page, ("crates/x/src/a.rs", "// Holds by L1.\n")]).is_empty());
    let expected = ["crates/x/src/a.rs cites L99, which docs/guide/guarantees.md does not explain"];
    assert_eq!(problems(citations::check, &[page, ("crates/x/src/a.rs", "// Holds by L99.\n")]), expected);
}

#[test]
fn a_new_edge_and_a_new_crate_are_refused() {
    let core = "[package]\nname = \"onward-core\"\n\n[dependencies]\nonward-store.workspace = true\n";
    let found = problems(edges::check, &[("crates/onward-core/Cargo.toml", core)]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("onward-core -> onward-store"), "{found:?}");
    let found = problems(edges::check, &[("crates/onward-new/Cargo.toml", "[package]\nname = \"onward-new\"\n")]);
    assert!(found[0].contains("is new"), "{found:?}");
}

#[test]
fn a_file_at_the_root_and_a_long_file_are_refused() {
    let long = "\n".repeat(1_001);
    let found = problems(files::check, &[("NOTES.md", ""), ("crates/x/src/a.rs", &long)]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("NOTES.md does not belong at the root"), "{found:?}");
    assert!(found[1].starts_with("crates/x/src/a.rs has 1001 lines"), "{found:?}");
}

#[test]
fn an_index_that_differs_and_a_number_used_twice_are_refused() {
    let module = "//! A module.\n//!\n//! Invariants:\n//! - Q1: it holds.\n";
    let files = [("crates/x/src/a.rs", module), ("crates/x/src/b.rs", module)];
    let found = problems(invariants::check, &files);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].ends_with("cargo xtask tidy --write"), "{found:?}");
    assert_eq!(found[1], "crates/x/src/b.rs: the invariant number Q1 is taken by crates/x/src/a.rs");
}

#[test]
fn an_error_code_without_a_row_is_refused() {
    let found = problems(error_codes::check, &[("crates/x/src/a.rs", "Mistake::new(\"no_such_code\", text)")]);
    assert!(found.iter().any(|problem| problem.contains("`no_such_code` has no row")), "{found:?}");
}
