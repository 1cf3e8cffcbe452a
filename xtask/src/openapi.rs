//! Fuzzing of the HTTP API: schemathesis reads the OpenAPI document of a server that was just built, and sends valid and invalid
//! requests. No response may be a 5xx or differ from the document.

use std::process::Command;

use anyhow::Result;

use crate::repository::{Repository, run};
use crate::server::Server;
use crate::{python, sdks};

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
