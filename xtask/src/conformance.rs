//! The claims of tests/conformance, played with programs in Rust, Python and TypeScript.

use std::process::Command;

use anyhow::Result;

use crate::repository::{Repository, run};
use crate::{python, sdks, typescript};

const FOLDER: &str = "tests/conformance";

/// Plays every claim in every language: embedded, over a server, and with processes that are killed.
pub fn test(repository: &Repository) -> Result<()> {
    run(player(repository)?.args(["--modes", "embedded", "server", "crashes", "--self-test"]))
}

/// Plays every claim in every mode, also with runs that continue in another language, and compares docs/guide/conformance.md with
/// the outcome. Takes minutes, because a server keeps the lease of a killed worker for half a minute.
pub fn whole(repository: &Repository) -> Result<()> {
    let mut player = player(repository)?;
    if std::env::var_os("ONWARD_WRITE").is_some() {
        player.arg("--write");
    }
    run(player.args(["--self-test", "--page"]))
}

/// Repeats the crashes with new seeds.
pub fn torture(repository: &Repository, minutes: u32, seed: Option<u64>) -> Result<()> {
    let mut player = player(repository)?;
    player.args(seed.iter().flat_map(|seed| ["--seed".to_owned(), seed.to_string()]));
    run(player.args(["--modes", "crashes", "server-crashes", "--minutes", &minutes.to_string()]))
}

/// Builds the programs, and returns the command that plays the claims.
fn player(repository: &Repository) -> Result<Command> {
    let onward = sdks::binary(repository)?;
    python::build_native_module(repository)?;
    let package = typescript::prepare(repository)?;
    let folder = repository.root.join(FOLDER);
    run(Command::new(package.join("node_modules/.bin/tsc")).arg("-p").arg(&package))?;
    run(Command::new(package.join("node_modules/.bin/tsc")).arg("-p").arg(folder.join("typescript")))?;
    let mut player = Command::new("python3");
    player.arg("-B").arg(folder.join("run.py")).arg("--target").arg(repository.target().join("debug"));
    player.arg("--onward").arg(onward);
    Ok(player)
}
