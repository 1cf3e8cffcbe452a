//! `cargo xtask bench --sdks`: measures the packages for Python and TypeScript, and with `--peers` DBOS and TanStack Workflow on
//! PostgreSQL with the equal program.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

use crate::packages::Natives;
use crate::repository::{Repository, cargo, run};
use crate::server::Server;
use crate::{python, sdks, setup};

pub fn measure(repository: &Repository, arguments: &[&str]) -> Result<()> {
    if let Some(unknown) = arguments.iter().find(|argument| !["--json", "--quick", "--peers"].contains(argument)) {
        bail!("unknown argument `{unknown}`; there are --json, --quick and --peers");
    }
    let options: Vec<&str> = arguments.iter().copied().filter(|argument| *argument != "--peers").collect();
    let natives = Natives::build(repository, "production")?;
    let folder = repository.target().join("sdks-bench");
    drop(std::fs::remove_dir_all(&folder)); // of an earlier run
    let (python_folder, typescript_folder) = (folder.join("python"), folder.join("typescript"));
    natives.stage_python(repository, &python_folder)?;
    natives.stage_typescript(repository, &typescript_folder)?;
    // Node.js takes the package from the folder that the program is in.
    for file in ["bench.mjs", "figures.mjs"] {
        std::fs::copy(repository.root.join("sdks/typescript/bench").join(file), typescript_folder.join(file))?;
    }
    let programs = repository.root.join("sdks/python/bench");
    let python = |arguments: &[&str]| {
        let mut python = Command::new("python3");
        run(python.arg("-B").arg(programs.join("bench.py")).args(&options).args(arguments).env("PYTHONPATH", &python_folder))
    };
    let node =
        |arguments: &[&str]| run(Command::new("node").arg(typescript_folder.join("bench.mjs")).args(&options).args(arguments));
    python(&["--raw"])?;
    python(&[])?;
    node(&[])?;
    for bench in [&python as &dyn Fn(&[&str]) -> Result<()>, &node] {
        let data = folder.join("server");
        drop(std::fs::remove_dir_all(&data)); // of the other language
        let server = Server::start(Command::new(&natives.binary).args(["--json", "dev", "--port", "0", "--data"]).arg(&data))?;
        bench(&["--server", &server.url])?;
    }
    if arguments.contains(&"--peers") {
        measure_peers(repository, &programs, &options)?;
    }
    Ok(())
}

/// Measures each on a new cluster with the default durability.
fn measure_peers(repository: &Repository, programs: &Path, options: &[&str]) -> Result<()> {
    setup::check_postgres()?;
    let example = ["--package", "onward-testkit", "--example", "cluster"];
    run(cargo(repository).args(["build", "--quiet"]).args(example))?;
    let cluster = repository.target().join("debug/examples/cluster");
    let environment = python::environment(repository, "dbos", "sdks/python/bench/peers/requirements.txt")?;
    let server = Server::start(&mut Command::new(&cluster))?;
    let dbos = programs.join("peers/dbos_bench.py");
    run(Command::new(environment.join("bin/python")).arg("-B").arg(dbos).arg(&server.url).args(options))?;
    drop(server);
    let folder = repository.root.join("sdks/typescript/bench/peers");
    sdks::install(&folder)?;
    let server = Server::start(&mut Command::new(&cluster))?;
    run(Command::new("node").arg(folder.join("tanstack.mjs")).arg(&server.url).args(options))
}
