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
