//! Executed pages: the commands of docs/http.md and the frames of docs/protocol.md against a fresh server, and a worker in Python
//! that was written from docs/protocol.md alone.

use std::path::Path;
use std::process::{Child, Command};

use anyhow::{Context, Result};

use crate::repository::{Repository, cargo, run};
use crate::sdks;
use crate::server::Server;

/// The worker of docs/http.md.
const EXAMPLE: &str = "http-worker";

/// The pages, each executed on a server of its own, and whether the example is its worker.
const PAGES: &[(&str, bool)] = &[("docs/http.md", true), ("docs/protocol.md", false)];

pub fn test(repository: &Repository) -> Result<()> {
    let binary = sdks::binary(repository)?;
    run(cargo(repository).args(["build", "--quiet", "--workspace", "--examples"]))?;
    let worker = repository.target().join("debug/examples").join(EXAMPLE);
    for (page, has_worker) in PAGES {
        let folder = fresh_folder(repository)?;
        let server = start(&binary, &folder)?;
        let _worker = has_worker.then(|| Worker::start(&worker, &server)).transpose()?;
        let program = repository.root.join("tests/pages/page.py");
        run(python(&program, &binary, &folder, &server)?.arg(repository.root.join(page)))?;
    }
    let folder = fresh_folder(repository)?;
    let server = start(&binary, &folder)?;
    run(&mut python(&repository.root.join("tests/protocol/test.py"), &binary, &folder, &server)?)
}

/// Returns an empty folder to run in.
fn fresh_folder(repository: &Repository) -> Result<std::path::PathBuf> {
    let folder = repository.target().join("pages");
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot clear {}", folder.display()))?;
    }
    std::fs::create_dir_all(folder.join("attachments"))?;
    // The picture that docs/http.md uploads.
    std::fs::write(folder.join("bicycle.png"), b"\x89PNG\r\n\x1a\n")?;
    Ok(folder)
}

/// Starts a development server in the folder, with a short lease.
fn start(binary: &Path, folder: &Path) -> Result<Server> {
    let mut command = Command::new(binary);
    command.current_dir(folder).args(["--json", "dev", "--port", "0"]);
    command.env("ONWARD_SERVER__LEASE", "2s").env("ONWARD_SERVER__ATTACHMENTS", "attachments");
    Server::start(&mut command)
}

/// A worker that ends when dropped.
struct Worker(Child);

impl Worker {
    fn start(program: &Path, server: &Server) -> Result<Worker> {
        let spawned = Command::new(program).env("ONWARD_URL", &server.url).env_remove("OPENAI_API_KEY").spawn();
        spawned.map(Worker).with_context(|| format!("cannot start {}", program.display()))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn python(program: &Path, binary: &Path, folder: &Path, server: &Server) -> Result<Command> {
    let binaries = binary.parent().context("the server is in a folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path)))?;
    let mut command = Command::new("python3");
    command.arg("-B").arg(program).current_dir(folder).env("PATH", path).env("ONWARD_URL", &server.url);
    Ok(command)
}
