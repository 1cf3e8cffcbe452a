//! Tests of packages for other languages: installed from the lock file, against the server that was just built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository::{Repository, cargo, run};

/// npm packages with a lock file and a script `test`.
const PACKAGES: &[&str] = &["sdks/tanstack"];

/// The lock file of the installation, in `node_modules`.
const STAMP: &str = ".installed-lock.json";

pub fn test(repository: &Repository) -> Result<()> {
    let binary = binary(repository)?;
    for package in PACKAGES {
        let folder = repository.root.join(package);
        install(&folder)?;
        run(npm(&folder).args(["run", "--silent", "test"]).env("ONWARD_BIN", &binary))?;
    }
    Ok(())
}

/// Builds the server of this repository and returns its path.
pub fn binary(repository: &Repository) -> Result<PathBuf> {
    // The same build as that of the tests, features included: nothing is left to do after it.
    let targets = ["--lib", "--bins", "--tests"];
    run(cargo(repository).args(["test", "--quiet", "--workspace", "--exclude", "examples", "--no-run"]).args(targets))?;
    Ok(repository.target().join("debug/onward"))
}

/// Installs what the lock file names, unless it is up to date.
pub fn install(folder: &Path) -> Result<()> {
    let lock = folder.join("package-lock.json");
    let wanted = std::fs::read(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    let stamp = folder.join("node_modules").join(STAMP);
    if std::fs::read(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    run(npm(folder).args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}

pub fn npm(folder: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.current_dir(folder);
    npm
}
