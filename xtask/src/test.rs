//! `cargo xtask test`: the whole gate, one heading per part, all parts even if one fails; or the parts that are named.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::repository::{Repository, cargo, run};
use crate::{ag_ui, grpc, metrics, models, openapi, sdks, setup, supply, tidy};

type Part = (&'static str, fn(&Repository) -> Result<()>);

const PARTS: &[Part] = &[
    ("format", |repository| run(cargo(repository).args(["fmt", "--all", "--check"]))),
    ("lints", |repository| {
        run(cargo(repository).args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    }),
    ("tidy", tidy::check),
    ("supply", supply::check),
    ("tests", |repository| {
        let targets = ["--lib", "--bins", "--tests"];
        run(cargo(repository).args(["test", "--workspace", "--exclude", "examples", "--no-fail-fast"]).args(targets))
    }),
    ("doc tests", |repository| run(cargo(repository).args(["test", "--quiet", "--workspace", "--no-fail-fast", "--doc"]))),
    // Runs every example once and compares what it prints, the one of the README included. The whole workspace is named, because a part of it is built with other
    // features, and so once more.
    ("examples", |repository| {
        // Asked for as tests, examples are built as nothing else; the programs themselves are what is run.
        run(cargo(repository).args(["build", "--workspace", "--examples"]))?;
        let targets = ["--examples", "--test", "examples", "--test", "readme"];
        run(cargo(repository).args(["test", "--workspace", "--no-fail-fast"]).args(targets))
    }),
    ("sdks", sdks::test),
    ("ag-ui", ag_ui::test),
    ("models", models::test),
    ("grpc", grpc::test),
    ("metrics", metrics::check),
    ("openapi", openapi::fuzz),
];

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
    let mut failed = Vec::new();
    for (name, part) in parts {
        println!("\n== {name}");
        let part_started = Instant::now();
        let outcome = part(repository);
        let took = seconds(part_started.elapsed());
        match outcome {
            Ok(()) => println!("== {name}: passed in {took}"),
            Err(error) => {
                println!("== {name}: FAILED in {took}: {error:#}");
                failed.push(*name);
            }
        }
    }
    let took = seconds(started.elapsed());
    if !failed.is_empty() {
        bail!("{} of {} parts failed in {took}: {}", failed.len(), count, failed.join(", "));
    }
    println!("\nall {count} parts passed in {took}");
    Ok(())
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}
