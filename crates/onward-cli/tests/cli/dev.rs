//! `onward dev` and `onward server`: readiness, requests, kill -9, shutdown.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::kit::{PATIENCE, onward, ran, run, steady};

/// A server process; killed on drop.
pub struct Served {
    pub child: Child,
    pub url: String,
    pub address: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts a command and waits for its `{"url": …}`.
pub fn serve(command: &mut Command) -> Served {
    let mut child = command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        panic!("it did not become ready: {stderr}");
    }
    let ready: serde_json::Value = serde_json::from_str(&line).unwrap();
    let url = ready["url"].as_str().unwrap().to_owned();
    let address = url.split_once("://").unwrap().1.to_owned();
    Served { child, url, address }
}

pub fn dev(directory: &Path) -> Served {
    serve(onward().args(["dev", "--port", "0", "--data"]).arg(directory))
}

impl Served {
    /// Sends a request and returns the status and the body.
    pub fn request(&self, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        self.request_with("", method, path, body)
    }

    /// Sends a request with additional headers.
    pub fn request_with(&self, headers: &str, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    pub fn signal(&self, signal: &str) {
        let killed = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }

    /// Waits for the exit and returns the exit code, or `None` after a signal.
    pub fn end(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

#[test]
fn dev_is_ready_when_it_prints_its_url_and_stops_on_a_signal() {
    for signal in ["-TERM", "-INT"] {
        let directory = tempfile::tempdir().unwrap();
        let mut served = dev(directory.path());
        assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "a"}"#).0, 201);
        assert_eq!(served.request("GET", "/readyz", "").0, 200);
        run(directory.path(), ["run", "list"])
            .assert_output(0, "ID KIND STATUS EVENTS CREATED CHANGED\na hello pending 1 AGO AGO");
        served.signal(signal);
        assert_eq!(served.end(), Some(0));
        assert!(!directory.path().join("onward.db-wal").exists(), "the store was closed, not left");
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let mut served = dev(directory.path());
    for number in 0..20 {
        let body = format!(r#"{{"kind": "hello", "id": "run-{number}", "input": {number}}}"#);
        assert_eq!(served.request("POST", "/v1/runs", &body).0, 201);
    }
    assert_eq!(served.request("POST", "/v1/runs/run-3/signals", r#"{"name": "x", "payload": 1}"#).0, 202);
    served.signal("-KILL");
    assert_eq!(served.end(), None);
    let served = dev(directory.path());
    let (status, runs) = served.request("GET", "/v1/runs", "");
    assert_eq!((status, runs["runs"].as_array().unwrap().len()), (200, 20));
    let (_, log) = served.request("GET", "/v1/runs/run-3/events?from=1", "");
    assert_eq!(log["events"][0]["event"]["type"], "signal_received");
}

#[test]
fn a_second_dev_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let _first = dev(directory.path());
    run(directory.path(), ["dev", "--port", "0"]).assert_output(
        6,
        "! error[directory_locked]: DIR is in use by this or another process\n! hint: stop the process that has it open, or drop the other store; commands that only read work meanwhile",
    );
}

#[test]
fn a_port_that_is_taken_is_reported() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = ran(onward().args(["dev", "--ephemeral", "--port", &port]));
    assert_eq!((output.code, output.out.as_str()), (1, ""));
    assert!(output.err.starts_with(&format!("error[listen_failed]: cannot listen on 127.0.0.1:{port}: ")), "{}", output.err);
    assert!(output.err.contains("hint: another server may use the port"), "{}", output.err);
}

#[test]
fn dev_greets_with_four_lines_and_ends_with_its_child() {
    let script = r#"test "${ONWARD_URL#http://127.0.0.1:}" != "$ONWARD_URL" && exit 7"#;
    let output = ran(onward().args(["dev", "--port", "0", "--ephemeral", "--", "sh", "-c", script]));
    assert_eq!((output.code, output.out.as_str()), (7, ""), "{}", output.err);
    let lines: Vec<String> = steady(&output.err).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert!(lines[0].starts_with("onward 0.") && lines[1].starts_with("  url http://127.0.0.1:"), "{lines:?}");
    assert_eq!(lines[2], "  data in memory, lost on exit");
    assert!(lines[3].starts_with("  next start a worker with ONWARD_URL=http://127.0.0.1:"), "{lines:?}");
    let output = ran(onward().args(["dev", "--port", "0", "--ephemeral", "--", "/nowhere/program"]));
    assert_eq!(output.code, 1);
    assert!(output.err.contains("cannot run `/nowhere/program`"), "{}", output.err);
}

#[test]
fn the_child_of_a_stopped_dev_stops_too() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pid");
    let script = format!("echo $$ > {}; exec sleep 100", file.display());
    let mut served = serve(onward().args(["dev", "--port", "0", "--ephemeral", "--json", "--", "sh", "-c", &script]));
    let begun = Instant::now();
    let pid = loop {
        let pid = std::fs::read_to_string(&file).unwrap_or_default();
        if pid.ends_with('\n') {
            break pid.trim().to_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "the child did not start");
    };
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    let alive = Command::new("kill").args(["-0", &pid]).stderr(Stdio::null()).status().unwrap().success();
    assert!(!alive, "the child is still there");
}

/// S1: without keys the server listens on loopback only.
#[test]
fn a_server_refuses_an_address_that_others_can_reach() {
    let directory = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0", "192.168.1.1:7400"] {
        run(directory.path(), ["server", "--listen", address]).assert_output(
            2,
            &format!(
                "! error[listen_refused]: {address} is reachable from other machines, and there are no usable keys\n! hint: create a key with `onward key create`, or listen on 127.0.0.1"
            ),
        );
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "nothing was opened");
    let output = ran(onward().args(["server", "--store", "mysql://me:secret@host/db"]));
    assert_eq!(output.code, 2);
    assert!(output.err.starts_with("error[store_unsupported]: unknown store type `mysql`"), "{}", output.err);
    assert!(!output.err.contains("secret"));
    assert_eq!(ran(onward().args(["server", "--listen", "here"])).code, 2);
}

#[test]
fn a_server_logs_json_without_a_terminal() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o700)).unwrap(); // or it warns
    let store = format!("embedded:{}", directory.path().display());
    let mut served = serve(onward().args(["server", "--listen", "127.0.0.1:0", "--store", &store]));
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "hello", "id": "a", "input": "SECRET"}"#).0, 201);
    assert_eq!(served.request("GET", "/v1/runs/a", "").0, 200);
    served.signal("-TERM");
    assert_eq!(served.end(), Some(0));
    let mut stderr = String::new();
    served.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let messages: Vec<serde_json::Value> = stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let texts: Vec<&str> = messages.iter().map(|line| line["message"].as_str().unwrap()).collect();
    assert_eq!(texts, ["ready", "request", "stopped"], "reads are traced at debug only");
    assert!(!stderr.contains("SECRET"));
}

#[test]
fn runs_of_outside_engines_are_listed_and_shown_like_others() {
    let directory = tempfile::tempdir().unwrap();
    let served = dev(directory.path());
    let append = r#"{"expected_next_index": 0, "events": [{"type": "STEP_FINISHED"}, {"type": "SIGNAL_AWAITED"}],
                     "state": {"kind": "pipeline", "status": "waiting"}}"#;
    assert_eq!(served.request("POST", "/v1/external/x/events", append).0, 201);
    let run_command = |command: &[&str]| {
        let output = onward().args(command).arg("--data").arg(directory.path()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (_, listed) = run_command(&["run", "list", "--status", "waiting"]);
    assert!(listed.contains("pipeline") && listed.contains("waiting"), "{listed}");
    let (_, shown) = run_command(&["run", "show", "x"]);
    assert!(shown.contains("run of another engine; next event #2") && !shown.contains("input"), "{shown}");
    let (_, events) = run_command(&["run", "events", "x"]);
    assert!(events.contains("external_appended") && events.contains("STEP_FINISHED"), "{events}");
    assert!(events.contains("pipeline is waiting"), "{events}");
    let (code, refused) = run_command(&["run", "wait", "x"]);
    assert!(code != Some(0) && refused.contains("run_external"), "{refused}");
    // A follower exits when the engine reports the end of the run.
    let follow = |target: [&std::ffi::OsStr; 2]| {
        let mut command = onward();
        command.args(["run", "attach", "x"]).args(target).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (data, url) = (directory.path().as_os_str(), served.url.as_str());
    let followers = [follow(["--data".as_ref(), data]), follow(["--server".as_ref(), url.as_ref()])];
    assert_eq!(served.request("PUT", "/v1/external/x", r#"{"kind": "pipeline", "status": "completed"}"#).0, 200);
    for follower in followers.into_iter().chain([follow(["--server".as_ref(), url.as_ref()])]) {
        let output = follower.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && stdout.contains("pipeline is completed"), "{stdout}");
    }
}

/// `run watch` prints a snapshot, the log and the end; over a server, and for a directory that another process writes to.
#[test]
fn a_run_is_watched_until_it_has_ended() {
    let directory = tempfile::tempdir().unwrap();
    let served = dev(directory.path());
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "order", "id": "x"}"#).0, 201);
    let watch = |target: [&std::ffi::OsStr; 2], more: &[&str]| {
        let mut command = onward();
        command.args(["run", "watch", "x"]).args(target).args(more).stdout(Stdio::piped()).spawn().unwrap()
    };
    let (data, server) = (["--data".as_ref(), directory.path().as_os_str()], ["--server".as_ref(), served.url.as_ref()]);
    let (plain, json) = ([watch(data, &[]), watch(server, &[])], watch(server, &["--json"]));
    assert_eq!(served.request("POST", "/v1/runs/x/terminate", "{}").0, 202);
    for watching in plain {
        let output = watching.wait_with_output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = stdout.lines().collect();
        assert!(output.status.success() && lines[0].contains("EVENT") && lines[1].contains("now"), "{stdout}");
        let at = |part: &str| lines.iter().position(|line| line.contains(part)).unwrap_or_else(|| panic!("no {part}: {stdout}"));
        assert!(at("run_started") < at("terminate_requested") && at("terminate_requested") < at(" end "), "{stdout}");
    }
    let output = String::from_utf8(json.wait_with_output().unwrap().stdout).unwrap();
    let frames: Vec<serde_json::Value> = output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(frames[0]["content"]["snapshot"].is_object() && frames.last().unwrap()["content"]["end"].is_object(), "{output}");
}

/// Returns the next line of stderr that contains `part`.
fn next_line(lines: &mut impl Iterator<Item = std::io::Result<String>>, part: &str) -> String {
    lines.map(Result::unwrap).find(|line| line.contains(part)).unwrap()
}

/// The suggested command exists: a chat with an agent of the settings, or a run of a kind that a worker has.
#[test]
fn dev_suggests_a_command_that_exists() {
    let (folder, model) = (tempfile::tempdir().unwrap(), crate::models::model());
    let begin = |args: &[&str]| {
        let mut command = onward();
        command.args(["dev", "--port", "0", "--ephemeral"]).args(args).env("LOCAL_KEY", "sk").current_dir(folder.path());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        (Served { child, url: String::new(), address: String::new() }, lines)
    };
    let (_served, mut lines) = begin(&[]);
    let url = next_line(&mut lines, "url ").trim().trim_start_matches("url").trim().to_owned();
    assert!(next_line(&mut lines, "next ").contains(&format!("start a worker with ONWARD_URL={url}")));
    let suggested = crate::kit::with_remote_worker(&url, || next_line(&mut lines, "next "));
    assert!(suggested.contains("run start counter --server") || suggested.contains("run start order --server"), "{suggested}");

    crate::models::settings(folder.path(), &model, "[agents.support]\nmodel = \"small\"\n");
    let (_served, mut lines) = begin(&[]);
    let url = next_line(&mut lines, "url ").trim().trim_start_matches("url").trim().to_owned();
    let suggested = next_line(&mut lines, "next ");
    assert!(suggested.ends_with(&format!("chat --agent support --server {url}")), "{suggested}");
}

/// Setting `server.cors_origins`: pages of the listed origins may call the server; `*` needs keys.
#[test]
fn allowed_origins_are_a_setting_and_the_star_needs_keys() {
    let directory = tempfile::tempdir().unwrap();
    let begin = |origins: &str| {
        let mut command = onward();
        command.args(["dev", "--port", "0", "--data"]).arg(directory.path()).env("ONWARD_SERVER__CORS_ORIGINS", origins);
        command
    };
    let refused = ran(&mut begin("*"));
    assert!(refused.code == 2 && refused.err.contains("needs API keys"), "{}", refused.err);
    let refused = ran(&mut begin("app.example"));
    assert!(refused.code == 2 && refused.err.contains("must be an origin like"), "{}", refused.err);
    let body = r#"{"kind": "hello"}"#;
    let served = serve(&mut begin("https://app.example"));
    assert_eq!(served.request_with("Origin: https://app.example\r\n", "POST", "/v1/runs", body).0, 201);
    assert_eq!(served.request_with("Origin: https://evil.example\r\n", "POST", "/v1/runs", body).0, 403);
    drop(served);
    assert_eq!(run(directory.path(), ["key", "create", "--name", "ada", "--scope", "read"]).code, 0);
    drop(serve(&mut begin("*")));
}
