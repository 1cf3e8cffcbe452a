//! `cargo xtask torture`: the crash tests for longer, each round with a seed that it prints. First every kill, power loss and
//! changed byte of the embedded store, of which the suite has a sample; then processes that are killed at random; then random
//! operations on stores; then long logs, deep trees and wide fans in full size, random programs and flows in large numbers, and
//! mutated bytes for every decoder; then the crash matrix of agents, with every pair of deaths; then the
//! conformance programs of all languages.

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, cargo, run};
use crate::{conformance, setup};

const WANTED: &str = "torture takes --minutes N, and may take --store embedded or --store postgres, and --seed S";

pub fn run_for(repository: &Repository, options: &[&str]) -> Result<()> {
    let (mut minutes, mut store, mut seed) = (None, "embedded", None);
    for option in options.chunks(2) {
        match option {
            ["--minutes", given] => minutes = Some(given.parse::<u32>().context("--minutes takes a whole number")?),
            ["--store", given @ ("embedded" | "postgres")] => store = given,
            ["--seed", given] => seed = Some(given.parse::<u64>().context("--seed takes a number")?),
            _ => bail!(WANTED),
        }
    }
    let minutes = minutes.context(WANTED)?;
    let (killed, played) = match store {
        "postgres" => (&["servers::", "once::on_postgres"][..], &["database"][..]),
        _ => (&["crash::", "once::", "--skip", "once::on_postgres"][..], &["crashes::", "--skip", "database"][..]),
    };
    if store == "postgres" {
        setup::check_postgres()?;
    }
    let tests = |parts: &[&str]| {
        let mut tests = cargo(repository);
        tests.env("ONWARD_TORTURE_MINUTES", minutes.to_string());
        tests.envs(seed.map(|seed| ("ONWARD_TORTURE_SEED", seed.to_string())));
        run(tests.arg("test").args(parts).arg("--nocapture"))
    };
    if store == "embedded" {
        tests(&["--package", "onward-store-embedded", "--test", "embedded", "--"])?;
    }
    tests(&[&["--package", "onward-cli", "--test", "cli", "--"][..], killed].concat())?;
    let mut operations = cargo(repository);
    operations.env("ONWARD_CASES", "200");
    let stores: &[&str] = match store {
        "postgres" => &["--package", "onward-store-postgres"],
        _ => &["--package", "onward-store", "--package", "onward-store-embedded"],
    };
    run(operations.arg("test").args(stores).args([
        "--all-features",
        "--tests",
        "--",
        "many_random_stories",
        "story",
        "random_operations",
    ]))?;
    if store == "embedded" {
        let mut sizes = cargo(repository);
        sizes.env("ONWARD_SIZES", "full");
        run(sizes.args(["test", "--package", "onward", "--all-features", "--test", "sizes", "long::", "--", "--nocapture"]))?;
        let mut programs = cargo(repository);
        programs.env("ONWARD_CASES", "200000");
        run(programs.args(["test", "--package", "onward", "--all-features", "--test", "semantics", "generated::random"]))?;
        let mut flows = cargo(repository);
        flows.env("ONWARD_FLOW_CASES", "100000");
        let played = ["--all-features", "--test", "machine", "--test", "flow", "random_flows_equal"];
        run(flows.args(["test", "--package", "onward-flow", "--package", "onward"]).args(played))?;
        tests(&["--workspace", "--exclude", "examples", "--all-features", "--lib", "--bins", "--test", "wire", "mutated", "--"])?;
        let mut agents = cargo(repository);
        agents.env("ONWARD_CASES", "200000");
        run(agents.args(["test", "--package", "onward", "--all-features", "--lib", "agent::explorer::"]))?;
    }
    let matrix = ["--package", "onward", "--all-features", "--test", "engine", "--"];
    tests(&[&matrix[..], played].concat())?;
    if store == "embedded" {
        conformance::torture(repository, minutes, seed)?;
    }
    Ok(())
}
