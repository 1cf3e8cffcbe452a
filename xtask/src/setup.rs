//! What the tests need beyond Rust: a C compiler, for the bundled SQLite and for the disk that fails on demand.

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
    println!("rustfmt, clippy and a C compiler are there");
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
