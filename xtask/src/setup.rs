//! What the tests need beyond Rust: a C compiler, for the bundled SQLite and for the disk that fails on demand; Node.js, for what other
//! languages get; Python, for a fuzzer.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, cargo, run};

/// Checks everything; installs what it may.
pub fn check(repository: &Repository) -> Result<()> {
    for component in ["fmt", "clippy"] {
        let there = answers(cargo(repository).args([component, "--version"]));
        if !there {
            let name = if component == "fmt" { "rustfmt" } else { component };
            bail!("cargo {component} is missing: rustup component add {name}");
        }
    }
    if !answers(Command::new("cc").arg("--version")) {
        install_compiler()?;
    }
    check_node()?;
    if !answers(Command::new("python3").args(["-m", "venv", "--help"])) {
        bail!("Python 3 with the module venv is needed for the fuzzer over HTTP: install python3 and python3-venv");
    }
    println!("rustfmt, clippy, a C compiler, node, npm and python3 are there");
    Ok(())
}

/// The oldest Node.js whose test runner and `fetch` the packages under `sdks` can do with.
const NODE_MAJOR_MIN: u32 = 20;

fn check_node() -> Result<()> {
    let needed =
        || format!("Node.js {NODE_MAJOR_MIN} or later with npm is needed for the tests under `sdks`: https://nodejs.org");
    let output = Command::new("node").arg("--version").output().with_context(needed)?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    if major.is_none_or(|major| major < NODE_MAJOR_MIN) {
        bail!("node says it is {version}; {}", needed());
    }
    if !answers(Command::new("npm").arg("--version")) {
        bail!("npm is missing; {}", needed());
    }
    Ok(())
}

fn install_compiler() -> Result<()> {
    const NEEDED: &str = "a C compiler named `cc` is missing: install gcc or clang with the headers of the C library";
    if !is_root() || !answers(Command::new("apt-get").arg("--version")) {
        bail!(NEEDED);
    }
    let apt = |arguments: &[&str]| run(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(arguments));
    apt(&["update", "-q"]).and_then(|()| apt(&["install", "-q", "-y", "gcc", "libc6-dev"])).context(NEEDED)
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}
