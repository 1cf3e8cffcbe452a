//! Runs of flows that move between stores while they wait for a person: their definitions come along.

use std::path::Path;
use std::time::{Duration, Instant};

use onward_testkit::Cluster;
use serde_json::Value;

use crate::dev::{Served, serve};
use crate::kit::{PATIENCE, onward, ran, run_over, run_with_stdin};

const FLOWS: [(&str, &str); 3] = [
    (
        "outer",
        "flow: outer\nsteps:\n  - { name: first, child: asks, store: first }\n  - { name: second, child: late, store: second }\n\
         output: \"{{ state.first }} {{ state.second }}\"\n",
    ),
    (
        "asks",
        "flow: asks\nsteps:\n  - { name: ask, approval: \"Go on?\", store: answer }\noutput: \"{{ state.answer.approved }}\"\n",
    ),
    ("late", "flow: late\nsteps:\n  - { name: set, set: { word: late } }\noutput: \"{{ state.word }}\"\n"),
];

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

fn approval(served: &Served) -> String {
    let list = until(served, "/v1/approvals", |list| list["approvals"].as_array().is_some_and(|all| all.len() == 1));
    list["approvals"][0]["id"].as_str().unwrap_or_else(|| panic!("{list}")).to_owned()
}

/// Starts the run `tree` of the flow `outer`, waits until its child requests an approval, and exports all runs.
fn exported(data: &Path) -> String {
    let flows = tempfile::tempdir().unwrap();
    for (name, document) in FLOWS {
        std::fs::write(flows.path().join(format!("{name}.yaml")), document).unwrap();
    }
    let mut served = serve(onward().args(["dev", "--port", "0", "--data"]).arg(data).arg("--flows").arg(flows.path()));
    until(&served, "/v1/flows", |list| list["flows"].as_array().is_some_and(|flows| flows.len() == 3));
    assert_eq!(served.request("POST", "/v1/runs", r#"{"kind": "outer", "id": "tree", "input": {}}"#).0, 201);
    approval(&served);
    served.signal("-INT");
    served.end();
    let lines = ran(onward().args(["export", "--data"]).arg(data));
    assert_eq!(lines.code, 0, "{}", lines.err);
    assert_eq!(lines.out.matches("\"document\":").count(), 3, "each definition stands once: {}", lines.out);
    lines.out
}

/// Decides the approval again, and waits for the result of the tree, whose parent calls `late` after that.
fn finish(served: &Served) -> Value {
    let decided = run_over(&served.url, ["approval", "decide", &approval(served), "--approve"]);
    assert_eq!(decided.code, 0, "{}", decided.err);
    until(served, "/v1/runs/tree", |run| run["status"] == "completed")["outcome"]["output"]["json"].clone()
}

#[test]
fn a_tree_of_flows_that_waits_for_a_person_ends_in_another_directory() {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (lines, data) = (exported(&from.path().join("data")), to.path().join("data"));
    // A definition that is not what it claims to be creates nothing.
    let wrong = run_with_stdin(&data, &["import", "-"], &lines.replace("word: late", "word: evil"));
    assert!(wrong.code == 1 && wrong.err.contains("flow_invalid") && wrong.err.contains("hint"), "{}", wrong.err);
    assert!(!data.exists());

    let imported = run_with_stdin(&data, &["import", "-"], &lines);
    assert_eq!(imported.code, 0, "{}", imported.err);
    assert!(imported.out.contains("2 runs imported") && imported.err.contains("of flow late was stored"), "{}", imported.err);
    assert_eq!(ran(onward().args(["export", "--data"]).arg(&data)).out.matches("\"document\":").count(), 3);
    let served = serve(onward().args(["dev", "--port", "0", "--data"]).arg(&data));
    let shown = served.request("GET", "/v1/flows/asks", "").1;
    assert_eq!((&shown["flows"][0]["is_imported"], &shown["flows"][0]["is_current"]), (&true.into(), &false.into()));
    assert_eq!(served.request("GET", "/v1/flows", "").1["flows"], serde_json::json!([]));
    assert_eq!(finish(&served), "true late");
}

#[test]
fn a_tree_of_flows_that_waits_for_a_person_ends_in_a_database_whose_own_definitions_stay_current() {
    let (from, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let lines = exported(&from.path().join("data"));
    let database = Cluster::shared().database(None).unwrap();
    let mut command = onward();
    command.args(["server", "--listen", "127.0.0.1:0"]).env("ONWARD_SERVER__STORE", database.url());
    let served = serve(&mut command);
    for (name, document) in &FLOWS[1..] {
        let file = files.path().join(format!("{name}.yaml"));
        let document = document.replace("word: late", "word: own").replace("Go on?", "Really?");
        std::fs::write(&file, document).unwrap();
        assert_eq!(run_over(&served.url, ["flow", "apply", file.to_str().unwrap()]).code, 0);
    }
    let own = served.request("GET", "/v1/flows", "").1;
    let file = files.path().join("runs.jsonl");
    std::fs::write(&file, &lines).unwrap();
    let imported = run_over(&served.url, ["import", file.to_str().unwrap(), "--json"]).json();
    let stored: Vec<_> = imported["flows"].as_array().unwrap().iter().map(|flow| flow["flow"].as_str().unwrap()).collect();
    assert_eq!(stored, ["asks", "outer"], "`late` has a current definition here");
    assert_eq!(served.request("GET", "/v1/flows", "").1["flows"].as_array().unwrap().len(), 2);
    for number in 0..2 {
        assert_eq!(served.request("GET", "/v1/flows", "").1["flows"][number]["version"], own["flows"][number]["version"]);
    }
    assert_eq!(finish(&served), "true own");
}
