//! The commands of this repository: `cargo xtask <command>`.
//!
//! Must never depend on a crate of ours: it has to work when they do not compile.

#![forbid(unsafe_code)]

mod ag_ui;
mod conformance;
mod console;
mod dist;
mod docs;
mod grpc;
mod metrics;
mod models;
mod openapi;
mod packages;
mod pages;
mod python;
mod repository;
mod sdks;
mod sdks_bench;
mod server;
mod setup;
mod supply;
mod test;
mod tidy;
mod torture;
mod typescript;

use std::process::ExitCode;

use anyhow::{Result, bail};

use repository::{Repository, cargo, run};

const USAGE: &str = "\
usage: cargo xtask <command>

commands:
  test [PART..]         run all checks, or only these parts: format, lints, tidy, docs, supply, tests, 'doc tests', examples,
                        pages (the commands of docs/http.md, and a worker written from docs/protocol.md), sdks, python and
                        typescript (the packages), packages (as they are published, in empty environments), ag-ui (the official
                        client), models (foreign packages and servers), grpc (foreign clients), metrics, openapi (a fuzzer over
                        HTTP), openapi-clients (generated clients), console (the web console in Chromium),
                        conformance (one list of claims in Rust, Python and TypeScript)
  tidy [--write]        check the rules that no compiler checks; --write updates docs/invariants.md, docs/protocol-types.md
                        and the counts in xtask/src/tidy/prose.txt
  docs                  build the book of docs/ in target/book; fails on broken links and on pages that no list names
  supply                check licenses, sources and duplicate versions of third-party crates against deny.toml, without a network
  dist [FOLDER]         build the release binary, the wheel for Python and the npm package, with lists of their contents (CycloneDX)
                        and checksums, in target/dist or FOLDER; installs the packages without Rust and runs their quickstarts
  conformance           play the claims also with runs that continue in another language, and compare docs/guide/conformance.md
                        with the outcome; with ONWARD_WRITE=1 write it
  torture --minutes N [--store postgres] [--seed S]
                        repeat the crash tests of onward-cli with new seeds for N minutes: one process with its directory, or
                        several servers on one PostgreSQL; S repeats a printed seed. Then run the crash matrix of agents with every
                        pair of deaths, for at most N minutes for each of its tests, and the conformance programs of all
                        languages under kill -9
  gen                   print the .proto file and its descriptor from the code of onward-wire
  bench [ARGS]          run onward-bench, optimized for speed, with ARGS
  bench --sdks [--json] [--quick] [--peers]
                        measure the packages for Python and TypeScript, embedded and over a server; with --peers also DBOS and
                        TanStack Workflow on a temporary PostgreSQL, with the equal program
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
        // Cargo starts test binaries this way.
        ["time-tests", binary @ ..] => test::times::run_binary(binary),
        ["tidy"] => tidy::check(&repository),
        ["tidy", "--write"] => {
            tidy::write(&repository)?;
            tidy::check(&repository)
        }
        ["docs"] => docs::build(&repository),
        ["supply"] => supply::check(&repository),
        ["dist"] => dist::build(&repository, &repository.target().join("dist")),
        ["dist", folder] => dist::build(&repository, std::path::Path::new(folder)),
        ["conformance"] => conformance::whole(&repository),
        ["torture", options @ ..] => torture::run_for(&repository, options),
        ["gen"] => {
            let mut generate = cargo(&repository);
            run(generate.env("ONWARD_GEN", "1").args(["test", "--package", "onward-wire", "--test", "wire", "--", "proto::"]))
        }
        // In a browser, so it is not part of the program that measures the rest.
        ["bench", "--only", "console", arguments @ ..] => console::bench(&repository, arguments),
        ["bench", "--sdks", arguments @ ..] => sdks_bench::measure(&repository, arguments),
        ["bench", arguments @ ..] => {
            let mut bench = cargo(&repository);
            run(bench.args(["run", "--profile", "production", "--package", "onward-bench", "--"]).args(arguments))
        }
        [] | ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => bail!("unknown command: {}\n\n{USAGE}", arguments.join(" ")),
    }
}
