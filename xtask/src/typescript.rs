//! The npm package `onward`: compiled, and tested with the native part and the server that were just built.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository::{Repository, cargo, run};
use crate::sdks;
use crate::server::Server;

const FOLDER: &str = "sdks/typescript";

/// Where the package loads its native part from.
const NATIVE: &str = "onward.node";

pub fn test(repository: &Repository) -> Result<()> {
    let binary = sdks::binary(repository)?;
    let folder = prepare(repository)?;
    run(sdks::npm(&folder).args(["run", "--silent", "test"]).env("ONWARD_BIN", &binary))?;
    let model = Server::start(Command::new(binary.with_file_name("scripted-model")).arg("0"))?;
    let frameworks = folder.join("test/frameworks");
    sdks::install(&frameworks)?;
    run(sdks::npm(&frameworks).args(["run", "--silent", "test"]).env("SCRIPTED_MODEL_URL", &model.url))
}

/// Builds the native part and the examples, installs what the package needs, and returns its folder.
pub fn prepare(repository: &Repository) -> Result<PathBuf> {
    let folder = repository.root.join(FOLDER);
    // Names the whole workspace: a part of it would be built again with other features.
    run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples", "--lib"]))?;
    let library = format!("{}onward_node{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    let library = repository.target().join("debug").join(library);
    // Removed first: a process may have mapped the file.
    drop(std::fs::remove_file(folder.join(NATIVE)));
    std::fs::copy(&library, folder.join(NATIVE)).with_context(|| format!("cannot copy {}", library.display()))?;
    sdks::install(&folder)?;
    Ok(folder)
}
