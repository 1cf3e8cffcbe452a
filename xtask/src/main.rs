//! The chores of this repository: `cargo xtask <chore>`.
//!
//! Must never depend on a crate of ours: it has to work when they do not compile.

mod openapi;
mod repository;
mod sdks;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use repository::{Repository, cargo, run};

const USAGE: &str = "\
usage: cargo xtask <chore>

chores:
  test [PART..]         everything that must pass, or only these parts of it: format, lints, tidy, tests, 'doc tests',
                        examples, sdks, openapi (a fuzzer over HTTP)
  tidy [--write]        the rules no compiler knows; --write brings docs/invariants.md up to date
  torture --minutes N   the crash tests of onward-cli, repeated with fresh seeds for N minutes
  gen                   prints the .proto file and its descriptor from the code of onward-wire
  bench [ARGS]          onward-bench in release mode, with ARGS
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match chore(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn chore(arguments: &[&str]) -> Result<()> {
    let repository = Repository::find()?;
    match arguments {
        ["test", parts @ ..] => test::run_parts(&repository, parts),
        ["tidy"] => tidy::check(&repository),
        ["tidy", "--write"] => {
            tidy::write(&repository)?;
            tidy::check(&repository)
        }
        ["torture", "--minutes", minutes] => torture(&repository, minutes),
        ["gen"] => {
            let mut generate = cargo(&repository);
            run(generate.env("ONWARD_GEN", "1").args(["test", "--package", "onward-wire", "--test", "wire", "--", "proto::"]))
        }
        ["bench", arguments @ ..] => {
            let mut bench = cargo(&repository);
            run(bench.args(["run", "--release", "--package", "onward-bench", "--"]).args(arguments))
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown chore: {}\n\n{USAGE}", arguments.join(" ")),
    }
}

fn torture(repository: &Repository, minutes: &str) -> Result<()> {
    let minutes: u32 = minutes.parse().context("--minutes takes a whole number")?;
    let mut crash_tests = cargo(repository);
    crash_tests.env("ONWARD_TORTURE_MINUTES", minutes.to_string());
    run(crash_tests.args(["test", "--package", "onward-cli", "crash", "--", "--nocapture"]))
}
