//! gRPC with foreign clients: grpcio with grpcio-status, and Connect for Node.js, generated from our `.proto` file, against a
//! server with keys.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository::{Repository, run};
use crate::server::{self, Server};
use crate::{python, sdks};

const FOLDER: &str = "tests/grpc";

/// The name under which the tests import the code generated for Node.js.
const PACKAGE: &str = "onward-proto";

pub fn test(repository: &Repository) -> Result<()> {
    let folder = repository.root.join(FOLDER);
    let environment = python::environment(repository, "grpc", &format!("{FOLDER}/requirements.txt"))?;
    sdks::install(&folder)?;
    let generated = environment.join("generated");
    generate(repository, &environment, &folder, &generated)?;

    let binary = sdks::binary(repository)?;
    let keys = generated.join("keys.json");
    drop(std::fs::remove_file(&keys)); // of an earlier run
    let key = |name: &str, scope: &str| server::create_key(&binary, &keys, name, scope);
    let (all, read) = (key("all", "all")?, key("reader", "read")?);
    let mut serve = Command::new(&binary);
    serve.args(["--json", "dev", "--ephemeral", "--port", "0", "--keys"]).arg(&keys);
    let server = Server::start(&mut serve)?;
    let address = server.url.trim_start_matches("http://").trim_end_matches('/');
    let with_server =
        |command: &mut Command| run(command.env("ONWARD_ADDRESS", address).env("ONWARD_KEY", &all).env("ONWARD_READ_KEY", &read));
    let mut grpcio = Command::new(environment.join("bin/python"));
    with_server(grpcio.arg("-B").arg(folder.join("status_test.py")).env("PYTHONPATH", &generated))?;
    let mut connect = Command::new("node");
    with_server(connect.current_dir(&folder).args(["--test", "--test-reporter=spec", "status.test.js"]))
}

/// Generates both clients with the protoc of grpcio-tools.
fn generate(repository: &Repository, environment: &Path, folder: &Path, generated: &Path) -> Result<()> {
    let package = folder.join("node_modules").join(PACKAGE);
    for folder in [generated, &package] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    std::fs::write(package.join("package.json"), r#"{"type": "module"}"#)?;
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    run(Command::new(environment.join("bin/python"))
        .args(["-m", "grpc_tools.protoc", "onward.proto", "--es_opt=target=js"])
        .arg(flag("proto_path", &repository.root.join("crates/onward-wire/proto")))
        .arg(flag("python_out", generated))
        .arg(flag("grpc_python_out", generated))
        .arg(format!("--plugin=protoc-gen-es={}", folder.join("node_modules/.bin/protoc-gen-es").display()))
        .arg(flag("es_out", &package)))
}
