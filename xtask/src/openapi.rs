//! The HTTP door under a fuzzer that nobody here wrote: schemathesis reads the OpenAPI document of a server that was just built, and
//! sends what the document allows and what it does not. No answer may be a 5xx or other than the document says.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, run};
use crate::sdks;

/// Everything it needs, with hashes; made from `requirements.in` by pip-compile.
const REQUIREMENTS: &str = "tests/openapi/requirements.txt";

const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,response_schema_conformance";

/// How many cases are tried for each operation, besides the borders of every parameter.
const CASES: &str = "25";

pub fn fuzz(repository: &Repository) -> Result<()> {
    let python = install(repository)?;
    let server = Server::start(&sdks::binary(repository)?)?;
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

/// Installs exactly what the requirements name, unless that is what is there.
fn install(repository: &Repository) -> Result<PathBuf> {
    let folder = repository.target().join("openapi");
    let requirements = repository.root.join(REQUIREMENTS);
    let wanted = std::fs::read_to_string(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?;
    // What is installed knows where it lies: a folder that was moved is of no use.
    let wanted = format!("{}\n{wanted}", folder.display());
    let stamp = folder.join("installed.txt");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder))?;
    let pip = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"];
    run(Command::new(folder.join("bin/pip")).args(pip).arg(&requirements))?;
    std::fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(folder)
}

/// `onward dev` in memory, ended when dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(binary: &Path) -> Result<Server> {
        let mut process = Command::new(binary)
            .args(["--json", "dev", "--ephemeral", "--port", "0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("it has an output")?).read_line(&mut line)?;
        let Some(url) = line.split('"').find(|word| word.starts_with("http://")).map(str::to_owned) else {
            bail!("the server said {line:?}");
        };
        Ok(Server { process, url })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
