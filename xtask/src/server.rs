//! A server for foreign tests. It ends when dropped.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

pub struct Server {
    process: Child,
    pub url: String,
}

impl Server {
    /// Starts a program that prints its address in the first line of its output, as JSON.
    pub fn start(command: &mut Command) -> Result<Server> {
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().to_string_lossy()))?;
        let mut line = String::new();
        BufReader::new(process.stdout.take().context("it has an output")?).read_line(&mut line)?;
        let Some(url) = line.split('"').find(|word| word.contains("://")).map(str::to_owned) else {
            bail!("the server printed {line:?}");
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

/// Creates a key for the default namespace.
pub fn create_key(binary: &Path, keys: &Path, name: &str, scope: &str) -> Result<String> {
    let mut create = Command::new(binary);
    create.args(["--json", "key", "create", "--name", name, "--scope", scope, "--keys"]).arg(keys);
    let output = create.output().context("cannot start onward")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let key = printed.split('"').find(|word| word.starts_with("onw_"));
    key.map(str::to_owned).with_context(|| format!("no key was created: {printed}{}", String::from_utf8_lossy(&output.stderr)))
}
