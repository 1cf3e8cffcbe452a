//! Models: the scripted model with the packages of the providers it imitates, and our clients with a foreign model server and
//! foreign MCP servers.

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
    // Names the whole workspace: a part of it would be built again with other features.
    run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples"]))?;
    let examples = binary.with_file_name("examples");
    run(python("clients.py").env("ONWARD_ASK", examples.join("ask")))?;
    run(python("tools.py").env("ONWARD_TOOLS", examples.join("tools")))
}
