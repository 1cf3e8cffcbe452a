//! AG-UI: the official npm client against our server, with workers and servers that are killed during an answer.

use anyhow::Result;

use crate::repository::{Repository, cargo, run};
use crate::sdks;

const FOLDER: &str = "tests/ag-ui";

pub fn test(repository: &Repository) -> Result<()> {
    let folder = repository.root.join(FOLDER);
    let binary = sdks::binary(repository)?;
    // Names the whole workspace: a part of it would be built again with other features.
    run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples"]))?;
    sdks::install(&folder)?;
    let worker = binary.with_file_name("examples").join("chat_worker");
    let mut npm = sdks::npm(&folder);
    run(npm.args(["run", "--silent", "test"]).env("ONWARD_BIN", &binary).env("ONWARD_CHAT_WORKER", worker))
}
