//! Models and strangers: the scripted model under the packages of the providers it stands for, and our clients in front of a model server
//! and MCP servers that others wrote.

use std::process::Command;

use anyhow::Result;

use crate::repository::{Repository, cargo, run};
use crate::server::Server;
use crate::{python, sdks};

const FOLDER: &str = "tests/models";

pub fn test(repository: &Repository) -> Result<()> {
    let folder = repository.root.join(FOLDER);
    let environment = python::environment(repository, "models", &format!("{FOLDER}/requirements.txt"))?;
    let python = |script: &str| {
        let mut python = Command::new(environment.join("bin/python"));
        python.arg("-B").arg(folder.join(script)); // leaves nothing beside the script
        python
    };
    let binary = sdks::binary(repository)?;
    let server = Server::start(Command::new(binary.with_file_name("scripted-model")).arg("0"))?;
    run(python("packages.py").env("SCRIPTED_MODEL_URL", &server.url))?;

    sdks::install(&folder)?;
    // The whole workspace is named, because a part of it is built with other features, and so once more.
    run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples"]))?;
    let examples = binary.with_file_name("examples");
    run(python("clients.py").env("ONWARD_ASK", examples.join("ask")))?;
    run(python("tools.py").env("ONWARD_TOOLS", examples.join("tools")))
}
