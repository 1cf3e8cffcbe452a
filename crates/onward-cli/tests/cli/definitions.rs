//! Definitions of flows: applied, listed, compared and deleted by commands, stored from a directory, run by the server.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::dev::{Served, serve};
use crate::kit::{PATIENCE, one_order, onward, run, run_over};

fn waiting(prefix: &str) -> String {
    format!("flow: waiting\nsteps:\n  - {{ name: news, wait: news, store: news }}\noutput: \"{prefix} {{{{ state.news }}}}\"\n")
}

#[test]
fn a_flow_is_applied_listed_compared_and_deleted() {
    let (data, folder) = (one_order("o"), tempfile::tempdir().unwrap());
    let file = folder.path().join("waiting.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, waiting("first")).unwrap();
    let applied = run(data.path(), ["flow", "apply", path, "--expected", "", "--json"]).json();
    let first = applied["flow"]["version"].as_str().unwrap().to_owned();
    let again = run(data.path(), ["flow", "apply", path]);
    assert_eq!(
        (again.code, again.err.as_str()),
        (0, format!("flow waiting: {first} was the current version already\n").as_str())
    );

    std::fs::write(&file, waiting("second")).unwrap();
    let diff = run(data.path(), ["flow", "diff", "waiting", path]);
    assert!(diff.out.contains("-output: \"first {{") && diff.out.contains("+output: \"second {{"), "{}", diff.out);
    let stale = run(data.path(), ["flow", "apply", path, "--expected", "0123"]);
    assert!(stale.code != 0 && stale.err.contains("flow_changed"), "{}", stale.err);
    assert!(stale.err.contains(&first), "it names the current version: {}", stale.err);
    assert_eq!(run(data.path(), ["flow", "apply", path, "--expected", &first]).code, 0);
    let overtaken = run(data.path(), ["flow", "apply", path, "--expected", &first]);
    assert!(overtaken.code != 0 && overtaken.err.contains("flow_changed"), "{}", overtaken.err);
    let listed = run(data.path(), ["flow", "list", "--json"]).json();
    let second = listed["flows"][0]["version"].as_str().unwrap();
    assert_ne!(second, first);
    let history = run(data.path(), ["flow", "show", "waiting", "--history", "--json"]).json();
    let versions: Vec<_> = history["flows"].as_array().unwrap().iter().map(|flow| &flow["version"]).collect();
    assert_eq!(versions, [second, &first]);
    assert_eq!(run(data.path(), ["flow", "show", "waiting", "--version", &first[..6]]).out, waiting("first"));

    std::fs::write(&file, "flow: waiting\nsteps:\n  - { name: a, wiat: news }\n").unwrap();
    let broken = run(data.path(), ["flow", "apply", path]);
    assert!(broken.code != 0 && broken.err.contains("wiat"), "{}", broken.err);
    assert_eq!(run(data.path(), ["flow", "delete", "waiting"]).code, 0);
    let gone = run(data.path(), ["flow", "show", "waiting"]);
    assert!(gone.code != 0 && gone.err.contains("flow_not_found"), "{}", gone.err);
}

fn dev(data: &Path, flows: &Path) -> Served {
    serve(onward().args(["dev", "--port", "0", "--data"]).arg(data).arg("--flows").arg(flows))
}

/// Reads a document until it is as wanted.
fn until(served: &Served, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let begin = Instant::now();
    loop {
        let (_, document) = served.request("GET", path, "");
        if is_wanted(&document) {
            return document;
        }
        assert!(begin.elapsed() < PATIENCE, "{path}: {document}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(served: &Served, id: &str) -> Value {
    assert_eq!(served.request("POST", "/v1/runs", &format!(r#"{{"kind": "waiting", "id": "{id}", "input": {{}}}}"#)).0, 201);
    until(served, &format!("/v1/runs/{id}"), |run| run["status"] == "waiting")["version"].clone()
}

/// DF2, DF3: also if the server is killed between the versions.
#[test]
fn a_saved_document_is_stored_and_open_runs_continue_with_theirs() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let file = folder.path().join("waiting.yml");
    std::fs::write(&file, waiting("first")).unwrap();
    let served = dev(data.path(), folder.path());
    until(&served, "/v1/flows", |list| list["flows"].as_array().is_some_and(|flows| flows.len() == 1));
    let first = start(&served, "a");

    std::fs::write(&file, waiting("second")).unwrap();
    until(&served, "/v1/flows", |list| list["flows"][0]["version"] != first);
    let second = start(&served, "b");
    assert_ne!(first, second);
    let elsewhere = tempfile::tempdir().unwrap();
    let checked = |text: &str| {
        let file = elsewhere.path().join("checked.yaml");
        std::fs::write(&file, text).unwrap();
        run_over(&served.url, ["flow", "check", file.to_str().unwrap(), "--json"])
    };
    // Another output is no other call; another signal is one.
    assert_eq!(checked(&waiting("third")).code, 0);
    let other = checked(&waiting("third").replace("wait: news", "wait: letters"));
    assert!(other.code == 1 && other.out.matches("\"continues\":false").count() == 2, "{}", other.out);
    served.signal("-9");
    drop(served);

    let served = dev(data.path(), folder.path());
    for (id, result) in [("a", "first 1"), ("b", "second 1")] {
        assert_eq!(served.request("POST", &format!("/v1/runs/{id}/signals"), r#"{"name": "news", "payload": 1}"#).0, 202);
        let ended = until(&served, &format!("/v1/runs/{id}"), |run| run["status"] == "completed");
        assert_eq!(ended["outcome"]["output"]["json"], result);
    }
}
