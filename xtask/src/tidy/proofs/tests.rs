//! Tests of the parent module.

use super::*;

fn problems(row: &str, files: &[(&str, &str)]) -> Vec<String> {
    let page = format!("## F: faults\n\n| number | fault | test |\n|---|---|---|\n{row}\n");
    let mut all = vec![(PAGE.to_owned(), page), ("crates/onward/Cargo.toml".to_owned(), String::new())];
    all.extend(files.iter().map(|(path, text)| (path.to_string(), text.to_string())));
    let mut problems = Vec::new();
    check(&Sources { files: all }, &mut problems);
    problems
}

const TEST: &str = "#[test]\nfn it_holds() {}\n";

#[test]
fn a_cited_module_or_test_that_exists_is_no_problem() {
    let crash = ("crates/onward-cli/tests/cli/crash/mod.rs", TEST);
    assert_eq!(problems("| F1 | a | `crash` in onward-cli |", &[crash]), [""; 0]);
    assert_eq!(problems("| F1 | a | `crash::it_holds` in onward-cli, twice |", &[crash]), [""; 0]);
    let network = ("crates/onward/tests/network/cuts.rs", "#[tokio::test(flavor = \"multi_thread\")]\nasync fn it_holds() {}\n");
    assert_eq!(problems("| F1 | a | `crash` in onward-cli; `cuts` in onward's `network` tests |", &[crash, network]), [""; 0]);
    assert_eq!(problems("| F1 | a | `it_holds` in onward's `network` tests |", &[network]), [""; 0]);
    let everywhere = ("crates/onward/tests/network/keys.rs", "everywhere! {\n    async fn it_holds(site) {\n    }\n}\n");
    assert_eq!(problems("| F1 | a | `keys::it_holds` in onward's `network` tests |", &[everywhere]), [""; 0]);
    let stores = ("crates/onward/tests/network/keys.rs", "#[test]\nfn it_holds_in_memory() {}\n");
    assert_eq!(problems("| F1 | a | `keys::it_holds` in onward's `network` tests |", &[stores]), [""; 0]);
    let source = ("crates/onward/src/agent/prompt.rs", TEST);
    assert_eq!(problems("| F1 | a | `onward::agent::prompt` |", &[source]), [""; 0]);
    let suite = ("crates/onward-store/src/conformance/tasks.rs", "pub async fn a_task_runs(store: &S) {}\n");
    assert_eq!(problems("| F1 | a | `tasks` |", &[suite]), [""; 0]);
}

#[test]
fn a_cited_test_that_does_not_exist_is_a_problem() {
    let crash = ("crates/onward-cli/tests/cli/crash/mod.rs", TEST);
    for row in [
        "| F1 | a | `crush` in onward-cli |",
        "| F1 | a | `crash` in onward-server |",
        "| F1 | a | `crash` in onward-cli and onward-server |",
        "| F1 | a | `crash::it_does_not_hold` in onward-cli |",
        "| F1 | a | `crash`, `power` in onward-cli |",
        "| F1 | a | `crash` in onward's `network` tests |",
        "| F1 | a | `onward::crash` |",
        "| F1 | a | `crash` |",
        "| F1 | a | some test |",
    ] {
        assert_eq!(problems(row, &[crash]).len(), 1, "{row}");
    }
    let empty = ("crates/onward-cli/tests/cli/crash/mod.rs", "fn it_holds() {}\n");
    assert_eq!(problems("| F1 | a | `crash` in onward-cli |", &[empty]).len(), 1, "a module without a test");
}

#[test]
fn a_numbered_case_needs_a_test_that_begins_with_it() {
    let cases = (COUNTEREXAMPLES, "#[test]\nfn ce01_a_poll() {}\n");
    let row = |case: &str| format!("## CE: cases\n\n| number | case | what must happen |\n|---|---|---|\n| {case} |");
    assert_eq!(problems(&row("CE1 | a | b"), &[cases]), [""; 0]);
    assert_eq!(problems(&row("CE2 | a | b (`inputs` in onward-store)"), &[cases]), [""; 0]);
    assert_eq!(problems(&row("CE2 | a | b"), &[cases]).len(), 1);
}
