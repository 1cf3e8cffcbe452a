//! The metrics page, checked by `promtool check metrics`, the linter of Prometheus.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::repository::{Repository, run};
use crate::sdks;
use crate::server::Server;

pub fn check(repository: &Repository) -> Result<()> {
    let promtool = promtool(repository)?;
    let binary = sdks::binary(repository)?;
    let data = repository.target().join("metrics");
    drop(std::fs::remove_dir_all(&data)); // of an earlier run
    let server = Server::start(Command::new(binary).arg("--data").arg(&data).args(["--json", "dev", "--port", "0"]))?;
    let address = server.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    // A request of each kind, so that there are lines with labels.
    request(&address, "POST", "/v1/runs", r#"{"kind":"order","id":"one","input":1}"#)?;
    request(&address, "PUT", "/v1/external/two", r#"{"kind":"order","status":"running"}"#)?;
    let settings = r#"{"concurrency_max":4,"key_rate":{"starts_max":30,"period_ms":60000},"depth_max":0}"#;
    request(&address, "PUT", "/v1/queues/mail", settings)?;
    request(&address, "POST", "/v1/tasks", r#"{"kind":"mail","queue":"mail","key":"a"}"#)?; // refused: the queue is drained
    let page = request(&address, "GET", "/metrics", "")?;
    let expected = [
        "onward_store_sync_seconds_total",
        r#"onward_http_requests_total{method="PUT""#,
        r#"onward_queue_limit{namespace="default",queue="mail",limit="concurrency"} 4"#,
        r#"onward_queue_rate_limit{namespace="default",queue="mail",of="key"} 0.5"#,
        r#"onward_queue_paused{namespace="default",queue="mail"} 0"#,
        r#"onward_queue_throttled_keys{namespace="default",queue="mail"} 0"#,
        r#"onward_queue_refused_total{reason="full"} 1"#,
    ];
    if let Some(missing) = expected.iter().find(|line| !page.contains(**line)) {
        bail!("the page lacks `{missing}`:\n{page}");
    }
    let mut check = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    check.stdin.take().context("it has an input")?.write_all(page.as_bytes())?;
    let output = check.wait_with_output()?;
    // Warnings have exit status 3, and some of them 0.
    if !output.status.success() || !output.stdout.is_empty() || !output.stderr.is_empty() {
        bail!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Returns the body of the response.
fn request(address: &str, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (_, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no response: {answer}"))?;
    Ok(body.to_owned())
}

/// Returns the program: PROMTOOL, the one on the path, or the one of Debian's package, which is unpacked without an installation.
fn promtool(repository: &Repository) -> Result<PathBuf> {
    let answers = |program: &PathBuf| {
        let mut version = Command::new(program);
        version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    };
    let named = std::env::var_os("PROMTOOL").map_or_else(|| PathBuf::from("promtool"), PathBuf::from);
    if answers(&named) {
        return Ok(named);
    }
    let folder = repository.target().join("promtool");
    let unpacked = folder.join("usr/bin/promtool");
    if !answers(&unpacked) {
        let needed = "promtool is missing: install the package `prometheus`, or set PROMTOOL to the program";
        std::fs::create_dir_all(&folder)?;
        let apt = |arguments: &[&str]| run(Command::new("apt-get").current_dir(&folder).arg("-q").args(arguments));
        apt(&["download", "prometheus"])
            .or_else(|_| apt(&["update"]).and_then(|()| apt(&["download", "prometheus"])))
            .context(needed)?;
        let files = std::fs::read_dir(&folder)?.flatten().map(|entry| entry.path());
        let package = files.into_iter().find(|path| path.extension().is_some_and(|kind| kind == "deb")).context(needed)?;
        run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&folder)).context(needed)?;
        std::fs::remove_file(package)?;
    }
    Ok(unpacked)
}
