//! `cargo xtask torture`: the crash tests for longer than anybody waits, each round with a seed that it prints. First processes are killed
//! at random, then every decoder gets mutated bytes, and then the crash matrix of agents is played, with every two deaths.

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, cargo, run};
use crate::setup;

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
        "postgres" => ("servers::", &["database"][..]),
        _ => ("crash::", &["crashes::", "--skip", "database"][..]),
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
    tests(&["--package", "onward-cli", "--test", "cli", killed, "--"])?;
    if store == "embedded" {
        tests(&["--package", "onward-wire", "--test", "wire", "foreign::", "--"])?;
    }
    let matrix = ["--package", "onward", "--all-features", "--test", "engine", "--"];
    tests(&[&matrix[..], played].concat())
}
