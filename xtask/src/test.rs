//! `cargo xtask test`: all checks, one heading per part, continuing after a failed part; or the named parts only.

pub mod times;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::repository::{Repository, cargo, run};
use crate::{
    ag_ui, conformance, console, docs, grpc, metrics, models, openapi, packages, pages, python, sdks, setup, supply, tidy,
    typescript,
};
use times::timed_cargo;

type Part = (&'static str, fn(&Repository) -> Result<()>);

/// Targets with tests, except examples.
const TARGETS: [&str; 3] = ["--lib", "--bins", "--tests"];

const PARTS: &[Part] = &[
    ("format", |repository| run(cargo(repository).args(["fmt", "--all", "--check"]))),
    // Builds everything that the parts below run.
    ("lints", |repository| {
        run(cargo(repository).args(["test", "--quiet", "--workspace", "--exclude", "examples", "--no-run"]).args(TARGETS))?;
        run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples", "--benches"]))?;
        run(cargo(repository).args(["test", "--quiet", "--workspace", "--no-run"]).args(tests_of_examples(repository)?))
    }),
    ("tidy", tidy::check),
    ("docs", docs::build),
    ("supply", supply::check),
    ("tests", |repository| {
        run(timed_cargo(repository)?.args(["test", "--workspace", "--exclude", "examples", "--no-fail-fast"]).args(TARGETS))
    }),
    ("doc tests", |repository| run(cargo(repository).args(["test", "--quiet", "--workspace", "--no-fail-fast", "--doc"]))),
    // Runs every example once and compares its output, that of the README included. Names the whole workspace: a part of it would
    // be built again with other features.
    ("examples", |repository| {
        run(cargo(repository).args(["build", "--workspace", "--examples"]))?;
        run(timed_cargo(repository)?.args(["test", "--workspace", "--no-fail-fast"]).args(tests_of_examples(repository)?))
    }),
    ("pages", pages::test),
    ("sdks", sdks::test),
    ("python", python::test_package),
    ("typescript", typescript::test),
    ("packages", packages::test),
    ("conformance", conformance::test),
    ("console", console::test),
    ("ag-ui", ag_ui::test),
    ("models", models::test),
    ("grpc", grpc::test),
    ("metrics", metrics::check),
    ("openapi", openapi::fuzz),
    ("openapi-clients", openapi::test_clients),
];

/// Returns the targets to build and run as tests of the examples: those with tests, and the tests that start the programs. As
/// tests, all others would be built again for nothing.
fn tests_of_examples(repository: &Repository) -> Result<Vec<String>> {
    let manifest = std::fs::read_to_string(repository.root.join("examples/Cargo.toml"))?;
    let examples = tested_examples(&manifest).into_iter().flat_map(|name| ["--example".to_owned(), name]);
    Ok(examples.chain(["--test", "examples", "--test", "readme"].map(str::to_owned)).collect())
}

/// Returns the names of the examples that have `test = true`.
fn tested_examples(manifest: &str) -> Vec<String> {
    let tables = manifest.split("\n[[example]]\n").skip(1);
    let tested =
        tables.filter(|table| table.split("\n[").next().is_some_and(|table| table.lines().any(|line| line == "test = true")));
    tested
        .filter_map(|table| table.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"').map(str::to_owned)))
        .collect()
}

pub fn run_parts(repository: &Repository, wanted: &[&str]) -> Result<()> {
    let started = Instant::now();
    if let Some(unknown) = wanted.iter().find(|wanted| !PARTS.iter().any(|(name, _)| name == *wanted)) {
        let names: Vec<&str> = PARTS.iter().map(|(name, _)| *name).collect();
        bail!("there is no part `{unknown}`; there are: {}", names.join(", "));
    }
    let parts = PARTS.iter().filter(|(name, _)| wanted.is_empty() || wanted.contains(name));
    let count = parts.clone().count();
    println!("== set-up");
    setup::check(repository)?;
    let repository = &repository.with_lints()?;
    let mut failed = Vec::new();
    let mut cpu_times = Vec::new();
    drop(std::fs::remove_file(times::file(repository))); // of an earlier run
    for (name, part) in parts {
        println!("\n== {name}");
        let (part_started, cpu_before) = (Instant::now(), times::cpu_of_children());
        let outcome = part(repository);
        let took = seconds(part_started.elapsed());
        let cpu = times::cpu_of_children().zip(cpu_before).map(|(after, before)| after.saturating_sub(before));
        cpu_times.extend(cpu.map(|cpu| format!("{:>9}  {name}", seconds(cpu))));
        match outcome {
            Ok(()) => println!("== {name}: passed in {took}"),
            Err(error) => {
                println!("== {name}: FAILED in {took}: {error:#}");
                failed.push(*name);
            }
        }
    }
    let slowest = times::slowest(&std::fs::read_to_string(times::file(repository)).unwrap_or_default());
    print_list("slowest tests", &slowest);
    print_list("CPU time", &cpu_times);
    let took = seconds(started.elapsed());
    if !failed.is_empty() {
        bail!("{} of {} parts failed in {took}: {}", failed.len(), count, failed.join(", "));
    }
    println!("\nall {count} parts passed in {took}");
    Ok(())
}

fn print_list(heading: &str, lines: &[String]) {
    if !lines.is_empty() {
        println!("\n== {heading}\n{}", lines.join("\n"));
    }
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_examples_with_tests_are_built_as_tests() {
        let manifest = "[package]\nname = \"x\"\n\n[[example]]\nname = \"a\"\npath = \"a.rs\"\ntest = true\n\n[[example]]\nname = \"b\"\n\n\
                        [[example]]\nname = \"c\"\ntest = true\n\n[[test]]\nname = \"d\"\ntest = true\n";
        assert_eq!(tested_examples(manifest), ["a", "c"]);
    }
}
