//! Tests of the parent module.

use super::*;

fn problems(page: &str) -> Vec<String> {
    let files = [
        (PAGE, page),
        ("crates/a/Cargo.toml", ""),
        ("crates/a/src/log/event.rs", "pub fn name<T>() {}\n"),
        ("crates/b/Cargo.toml", ""),
        ("crates/b/src/run/mod.rs", "    fn admit(&self) {}\n"),
    ];
    let mut problems = Vec::new();
    check(&Sources::of(&files), &mut problems);
    problems
}

#[test]
fn paths_of_the_map_belong_to_their_crate() {
    let page = "## Code map\n\n`crates/a`: the log.\n- `log/`: `log/event`, `/v1/runs`, `sdks/*/test`\n\n`crates/b`: `run/`\n";
    assert_eq!(problems(page), Vec::<String>::new());
    assert_eq!(problems("## Code map\n\n`crates/a`: `run/`\n"), ["ARCHITECTURE.md:3: there is no run/ in crates/a"]);
    assert_eq!(problems("## Life\n\n`run/mod.rs` and `run/old.rs`\n"), ["ARCHITECTURE.md:3: there is no run/old.rs"]);
}

#[test]
fn functions_of_the_table_are_in_their_files() {
    let row = |name: &str| {
        format!("## Where is …?\n\n| question | file | function |\n|---|---|---|\n| a | `crates/b/src/run/mod.rs` | `{name}` |\n")
    };
    assert_eq!(problems(&row("RunHead::admit")), Vec::<String>::new());
    assert_eq!(problems(&row("refuse")), ["ARCHITECTURE.md:5: `refuse` is in no file of its row"]);
}

#[test]
fn the_figures_of_a_walk_are_those_of_its_lists() {
    let page = |figures: &str| {
        let (a, b) = ("`a/src/log/event.rs`: `name`", "`b/src/run/mod.rs`: `RunHead::admit`");
        format!("## Life of a run\n\n1. First.\n   {a}.\n2. Then.\n   {a}; {b}.\n\nIt passes through {figures}.\n")
    };
    let figures = "2 functions in 2 files, 1 of them in 1 files up to (step 1); with those beside, 2 functions in 2 files";
    assert_eq!(problems(&page(figures)), Vec::<String>::new());
    let wrong = "2 functions in 1 files; with those beside, 2 functions in 2 files";
    assert_eq!(problems(&page(wrong)), ["ARCHITECTURE.md:8: the figures of the lists are [2, 2, 2, 2], not [2, 1, 2, 2]"]);
    assert_eq!(
        problems("## Life of a run\n\n1. First.\n   Beside: `b/src/run/mod.rs`: `refuse`.\n"),
        ["ARCHITECTURE.md:4: `refuse` is not in b/src/run/mod.rs"]
    );
}
