//! Packages of Python's, installed below the target folder exactly as a list with hashes names them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository::{Repository, run};

/// Makes the environment `name` with what the list at `requirements` says, unless that is what is there.
///
/// A list is made from the `requirements.in` beside it by pip-compile.
pub fn environment(repository: &Repository, name: &str, requirements: &str) -> Result<PathBuf> {
    let folder = repository.target().join(name);
    let requirements = repository.root.join(requirements);
    let wanted = std::fs::read_to_string(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    // What is installed knows where it lies: a folder that was moved is of no use.
    let wanted = format!("{}\n{wanted}", folder.display());
    let stamp = folder.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"];
    run(Command::new(folder.join("bin/pip")).args(pip).arg(&requirements))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(folder)
}
