use std::time::{Duration, Instant};

use onward_mcp::{McpServer, McpServerSettings, Transport};

use crate::{assert_soon, settings};

fn shell(script: &str) -> McpServerSettings {
    settings(Transport::program("sh", ["-c", script]))
}

async fn failure(settings: &McpServerSettings) -> onward_mcp::ToolError {
    match McpServer::open(settings).await {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_program_that_cannot_be_started_or_ends_is_unreachable() {
    let started = Instant::now();
    for settings in [settings(Transport::program("/no/such/program", [])), shell("exit 3"), shell("read line; exit 0")] {
        let error = failure(&settings).await;
        assert_eq!(
            (error.code(), error.is_retryable(), error.may_have_acted()),
            ("mcp_server_unreachable", true, false),
            "{error}"
        );
    }
    assert_soon(started);
}

#[tokio::test]
async fn a_program_ends_with_everything_that_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pid");
    // The program starts a child process and then prints nothing.
    let script = format!("sleep 1000 & echo $! > {0}.new && mv {0}.new {0}; wait", file.display());
    let settings = McpServerSettings { open_timeout: Duration::from_secs(2), ..shell(&script) };
    let error = failure(&settings).await;
    assert_eq!((error.code(), error.may_have_acted()), ("tool_timed_out", false));
    let child = std::fs::read_to_string(&file).unwrap();
    let status = format!("/proc/{}/stat", child.trim());
    // A killed process may stay as a zombie until it is reaped.
    let gone = || std::fs::read_to_string(&status).map_or(true, |text| text.contains(") Z "));
    let started = Instant::now();
    while !gone() {
        assert_soon(started);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// MC3. Cargo has set variables of this process, which stand for keys.
#[tokio::test]
async fn a_program_gets_no_variables_but_those_it_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("seen");
    let variables = async |given: &[(&str, &str)], names: &[&str]| {
        let transport = Transport::Program {
            command: "sh".to_owned(),
            arguments: vec!["-c".to_owned(), format!("env > {}", file.display())],
            environment: given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            inherits: names.iter().map(|name| (*name).to_owned()).collect(),
            folder: None,
        };
        let error = failure(&settings(transport)).await;
        (std::fs::read_to_string(&file).unwrap_or_default(), error)
    };
    let (seen, _) = variables(&[("TOKEN", "t-1")], &["CARGO_PKG_NAME"]).await;
    let mut names: Vec<&str> = seen.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    names.retain(|name| !["_", "PWD", "SHLVL", "OLDPWD"].contains(name)); // a shell sets them itself
    let allowed = |name: &&str| Transport::USUAL_VARIABLES.contains(name) || ["TOKEN", "CARGO_PKG_NAME"].contains(name);
    assert!(names.iter().all(allowed) && names.contains(&"PATH"), "{names:?}");
    assert!(seen.contains("TOKEN=t-1\n") && seen.contains("CARGO_PKG_NAME=onward-mcp\n"), "{seen}");
    std::fs::remove_file(&file).unwrap();
    let (seen, error) = variables(&[], &["NO_SUCH_VARIABLE"]).await;
    assert_eq!((seen.as_str(), error.code()), ("", "mcp_server_unreachable"));
    assert!(error.to_string().contains("the environment variable NO_SUCH_VARIABLE is not set"), "{error}");
}

#[test]
fn keys_are_not_shown() {
    let transport: Transport =
        serde_json::from_str(r#"{"http": {"url": "http://x/mcp", "headers": {"authorization": "Bearer sk-1"}}}"#).unwrap();
    assert_eq!(format!("{transport:?}"), r#"Http("http://x/mcp")"#);
    let program = r#"{"program": {"command": "x", "environment": {"TOKEN": "sk-1"}}}"#;
    let transport: Transport = serde_json::from_str(program).unwrap();
    assert!(!format!("{:?}", settings(transport)).contains("sk-1"));
}
