//! AG-UI: its own client from npm in front of our server, with workers and servers that are killed in the middle of an answer.

use anyhow::Result;

use crate::repository::{Repository, cargo, run};
use crate::sdks;

const FOLDER: &str = "tests/ag-ui";

pub fn test(repository: &Repository) -> Result<()> {
    let folder = repository.root.join(FOLDER);
    let binary = sdks::binary(repository)?;
    // The whole workspace is named, because a part of it is built with other features, and so once more.
    run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples"]))?;
    sdks::install(&folder)?;
    let worker = binary.with_file_name("examples").join("chat_worker");
    let mut npm = sdks::npm(&folder);
    run(npm.args(["run", "--silent", "test"]).env("ONWARD_BIN", &binary).env("ONWARD_CHAT_WORKER", worker))
}
