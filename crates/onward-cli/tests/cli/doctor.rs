//! `onward doctor`: findings, advice and exit codes.

use std::path::Path;

use serde_json::Value;

use crate::dev::{dev, serve};
use crate::kit::{Ran, one_order, onward, ran, run, run_over, steady, with_remote_worker};

/// Returns the state of one check, and its detail with its advice.
fn check(ran: &Ran, name: &str) -> (String, String) {
    let found: Value = serde_json::from_str(&ran.out).unwrap_or_else(|_| panic!("{}{}", ran.out, ran.err));
    let checks = found["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no {name} in {found}"));
    let text = |field: &str| check[field].as_str().unwrap_or_default().to_owned();
    (text("state"), format!("{} {}", text("detail"), text("advice")))
}

#[test]
fn a_healthy_directory_is_well() {
    let directory = one_order("order-1");
    let output = run(directory.path(), ["doctor"]);
    assert_eq!(output.code, 0, "{}", output.out);
    for line in ["ok directory", "ok format 3;", "ok lock free", "ok space", "ok logs 4 events of 1 run"] {
        assert!(steady(&output.out).lines().any(|found| found.starts_with(line)), "no `{line}` in\n{}", output.out);
    }
    assert_eq!(check(&run(directory.path(), ["doctor", "--json", "--quick"]), "logs").1, "skipped: --quick ");
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("doctor")), "it leaves nothing: {left:?}");
}

#[test]
fn what_is_missing_or_not_ours_fails() {
    let directory = tempfile::tempdir().unwrap();
    let missing = run(&directory.path().join("none"), ["doctor", "--json"]);
    assert_eq!((missing.code, check(&missing, "directory").0.as_str()), (1, "fail"));
    std::fs::write(directory.path().join("letter.txt"), "dear").unwrap();
    let foreign = run(directory.path(), ["doctor", "--json"]);
    assert_eq!((foreign.code, check(&foreign, "directory").0.as_str()), (1, "fail"));
    assert!(check(&foreign, "directory").1.contains("letter.txt"));
}

/// Changes one byte of a recorded payload.
pub fn damage(directory: &Path) {
    let file = directory.join("onward.db");
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes.windows(9).position(|window| window == b"\"charged\"").expect("the log holds it as it is");
    bytes[at + 1] = b'C';
    std::fs::write(&file, bytes).unwrap();
}

#[test]
fn a_damaged_log_is_found_by_reading() {
    let directory = one_order("order-1");
    damage(directory.path());
    let output = run(directory.path(), ["doctor", "--json"]);
    assert_eq!((output.code, check(&output, "logs").0.as_str()), (1, "fail"), "{}", output.out);
    assert!(check(&output, "logs").1.contains("order-1"), "{}", output.out);
}

/// Damage in one part does not stop the other checks.
#[test]
fn a_file_that_is_damaged_all_over_is_looked_at_to_the_end() {
    let mut broken = 0;
    for seventh in 1..7 {
        let directory = one_order("order-1");
        let file = directory.path().join("onward.db");
        let mut bytes = std::fs::read(&file).unwrap();
        for page in bytes.chunks_mut(4_096).skip(seventh).step_by(7) {
            page[100..164].fill(0xa5);
        }
        std::fs::write(&file, bytes).unwrap();
        let output = run(directory.path(), ["doctor", "--json"]);
        assert!(output.code <= 1 && output.err.is_empty(), "{seventh}: {} {}", output.code, output.err);
        for name in ["program", "directory", "format", "lock", "space", "syncs"] {
            check(&output, name);
        }
        let inside = ["pending", "tasks", "logs"].iter().filter(|_| check(&output, "directory").0 == "ok");
        let failed = inside.filter(|name| check(&output, name).0 == "fail").count();
        assert!(failed == 0 || output.code == 1);
        broken += failed;
    }
    assert!(broken > 0, "some damage is in data that is read");
}

#[test]
fn a_server_is_looked_at_from_outside() {
    let directory = one_order("order-1");
    let served = dev(directory.path());
    assert!(check(&run(directory.path(), ["doctor", "--json", "--quick"]), "lock").1.contains(&served.url));
    let output = run_over(&served.url, ["doctor", "--json"]);
    assert_eq!(output.code, 0, "a warning is no failure: {}", output.out);
    for (name, state) in
        [("server", "ok"), ("ready", "ok"), ("version", "ok"), ("key", "ok"), ("clock", "ok"), ("workers", "warn")]
    {
        assert_eq!(check(&output, name).0, state, "{name}: {}", output.out);
    }
    assert_eq!(check(&output, "kinds").0, "ok", "nothing is pending");
    assert_eq!(run_over(&served.url, ["run", "start", "ghost"]).code, 0);
    let output = run_over(&served.url, ["doctor", "--json"]);
    assert_eq!(check(&output, "kinds").0, "warn");
    assert!(check(&output, "kinds").1.contains("`ghost` (1 run)"), "{}", output.out);
    assert!(check(&output, "pending").1.contains("1 run; run_"), "{}", output.out);
    with_remote_worker(&served.url, || {
        let output = run_over(&served.url, ["doctor", "--json"]);
        assert_eq!(check(&output, "workers").0, "ok", "{}", output.out);
        assert!(check(&output, "workers").1.contains("1 worker"), "{}", output.out);
        let listed = run_over(&served.url, ["worker", "list", "--json"]).json();
        assert_eq!(listed["workers"][0]["kinds"][0]["kind"], "counter");
        let id = listed["workers"][0]["id"].as_str().unwrap();
        assert!(!id.contains(":default:"), "its own name: {id}");
        let listed = run_over(&served.url, ["worker", "ls"]);
        assert!(listed.out.contains("counter,order") && listed.out.starts_with("ID "), "{}", listed.out);
    });
}

#[test]
fn a_server_that_lets_us_not_in_or_is_not_there_fails() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(directory.path(), ["key", "create", "--name", "ada", "--scope", "read"]).code, 0);
    let served = serve(onward().args(["dev", "--port", "0", "--data"]).arg(directory.path()));
    let output = run_over(&served.url, ["doctor", "--json"]);
    assert_eq!(
        (output.code, check(&output, "key").0.as_str(), check(&output, "server").0.as_str()),
        (1, "fail", "ok"),
        "{}",
        output.out
    );
    let output = ran(onward().args(["doctor", "--server", "http://127.0.0.1:1"]));
    assert_eq!(output.code, 1);
    assert!(steady(&output.out).contains("fail server no server answers at http://127.0.0.1:1"), "{}", output.out);
    assert_eq!(output.err, "1 failure, 0 warnings\n");
}
