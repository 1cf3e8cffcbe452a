//! The OpenAPI document with foreign tools, against a server that was just built.
//!
//! [`fuzz`]: schemathesis sends valid and invalid requests. No response may be a 5xx or differ from the document.
//! [`test_clients`]: a linter checks the document, and clients for TypeScript and Python are generated from it, type-checked and
//! used.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::repository::{Repository, run};
use crate::server::{self, Server};
use crate::{python, sdks};

const DOCUMENT: &str = "docs/openapi.json";

/// Folder of the tests in TypeScript.
const TYPESCRIPT: &str = "tests/openapi/typescript";

/// Folder of the tests in Python.
const PYTHON: &str = "tests/openapi/python";

/// Its requirements, with hashes.
const REQUIREMENTS: &str = "tests/openapi/requirements.txt";

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance";

/// Number of cases for each operation, besides the boundary values of every parameter.
const CASES: &str = "25";

pub fn fuzz(repository: &Repository) -> Result<()> {
    let python = python::environment(repository, "openapi", REQUIREMENTS)?;
    let server = Server::start(Command::new(sdks::binary(repository)?).args(["--json", "dev", "--ephemeral", "--port", "0"]))?;
    let seed = std::env::var("ONWARD_SEED").unwrap_or_else(|_| "1".to_owned());
    println!("reproduce with ONWARD_SEED={seed}");
    let document = format!("{}/openapi.json", server.url);
    run(Command::new(python.join("bin/st"))
        .current_dir(&python) // it leaves files where it runs
        .env("SCHEMATHESIS_HOOKS", repository.root.join("tests/openapi/lines.py"))
        .arg("--config-file")
        .arg(repository.root.join("tests/openapi/schemathesis.toml"))
        .args(["run", &document, "--phases", "coverage,fuzzing,stateful", "--checks", CHECKS])
        .args(["--max-examples", CASES, "--seed", &seed, "--request-timeout", "30", "--no-color"]))
}

pub fn test_clients(repository: &Repository) -> Result<()> {
    let binary = sdks::binary(repository)?;
    let keys = repository.target().join("openapi-keys.json");
    drop(std::fs::remove_file(&keys)); // of an earlier run
    let key = server::create_key(&binary, &keys, "all", "all")?;
    let server = Server::start(Command::new(&binary).args(["--json", "dev", "--ephemeral", "--port", "0", "--keys"]).arg(&keys))?;
    let with_server = |command: &mut Command| run(command.env("ONWARD_URL", &server.url).env("ONWARD_KEY", &key));

    let folder = repository.root.join(TYPESCRIPT);
    sdks::install(&folder)?;
    for script in ["lint", "generate", "check"] {
        let mut npm = sdks::npm(&folder);
        run(npm
            .args(["run", "--silent", script])
            .envs([("REDOCLY_TELEMETRY", "off"), ("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")]))?;
    }
    with_server(sdks::npm(&folder).args(["run", "--silent", "test"]))?;

    let folder = repository.root.join(PYTHON);
    let environment = python::environment(repository, "openapi-python", &format!("{PYTHON}/requirements.txt"))?;
    let generated = environment.join("generated");
    generate_python(repository, &environment, &generated)?;
    let test = folder.join("runs_test.py");
    let mut mypy = Command::new(environment.join("bin/mypy"));
    run(mypy
        .current_dir(&generated)
        .args(["--strict", "--no-error-summary", "--cache-dir", "mypy"])
        .arg("onward_client")
        .arg(&test))?;
    with_server(Command::new(environment.join("bin/python")).arg("-B").arg(test).env("PYTHONPATH", &generated))
}

/// Generates the client for Python, unless it is up to date.
fn generate_python(repository: &Repository, environment: &Path, generated: &Path) -> Result<()> {
    let document = repository.root.join(DOCUMENT);
    let wanted = std::fs::read(&document).with_context(|| format!("cannot read {DOCUMENT}"))?;
    let stamp = generated.join("openapi.json");
    if std::fs::read(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    std::fs::create_dir_all(generated).with_context(|| format!("cannot create {}", generated.display()))?;
    run(Command::new(environment.join("bin/openapi-python-client"))
        .args(["generate", "--meta", "none", "--overwrite", "--fail-on-warning", "--path"])
        .arg(document)
        .arg("--config")
        .arg(repository.root.join(PYTHON).join("config.yaml"))
        .arg("--output-path")
        .arg(generated.join("onward_client")))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
}
