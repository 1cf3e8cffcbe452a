//! The chores of this repository: `cargo xtask <chore>`.
//!
//! Must never depend on a crate of ours: it has to work when they do not compile.

#![forbid(unsafe_code)]

mod ag_ui;
mod dist;
mod grpc;
mod metrics;
mod models;
mod openapi;
mod python;
mod repository;
mod sdks;
mod server;
mod setup;
mod supply;
mod test;
mod tidy;
mod torture;

use std::process::ExitCode;

use anyhow::{Result, bail};

use repository::{Repository, cargo, run};

const USAGE: &str = "\
usage: cargo xtask <chore>

chores:
  test [PART..]         everything that must pass, or only these parts of it: format, lints, tidy, supply, tests, 'doc tests',
                        examples, sdks, ag-ui (its own client), models (strangers to onward-llm and onward-mcp), openapi (a fuzzer over HTTP)
  tidy [--write]        the rules no compiler knows; --write brings docs/invariants.md up to date
  supply                crates of others against deny.toml: their licenses, where they come from, two versions of one; without a network
  dist [FOLDER]         the release binary with a list of what is in it (CycloneDX) and checksums, in target/dist or FOLDER
  torture --minutes N [--store postgres] [--seed S]
                        the crash tests of onward-cli, repeated with fresh seeds for N minutes: of one process with its directory, or of
                        several servers on one PostgreSQL; S is a seed that was printed. Then the crash matrix of agents with every
                        two deaths, for N minutes at most for each of its tests
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
        ["supply"] => supply::check(&repository),
        ["dist"] => dist::build(&repository, &repository.target().join("dist")),
        ["dist", folder] => dist::build(&repository, std::path::Path::new(folder)),
        ["torture", options @ ..] => torture::run_for(&repository, options),
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
