//! `onward api`: requests to any route, with the credentials of every other command.

use crate::dev::{dev, serve};
use crate::kit::{onward, ran, run, run_over};

#[test]
fn any_route_can_be_requested_and_its_body_is_printed() {
    let served = serve(onward().args(["dev", "--port", "0", "--ephemeral"]));
    let over = |args: &[&str]| run_over(&served.url, [&["api"][..], args].concat());
    assert_eq!(over(&["POST", "/v1/runs", "--body", r#"{"kind": "hello", "id": "a"}"#]).json()["id"], "a");
    assert_eq!(over(&["get", "/v1/runs?status=pending"]).json()["runs"][0]["id"], "a");
    over(&["GET", "/healthz"]).assert_output(0, "ok");
    assert_eq!(over(&["POST", "/v1/runs/a/terminate"]).code, 0);
    let attached = over(&["GET", "/v1/runs/a/events"]);
    assert!(attached.out.contains("terminate_requested"), "{}", attached.out);
    assert_eq!(over(&["DELETE", "/v1/runs/a"]).code, 0);
}

#[test]
fn a_problem_is_printed_like_every_other_error() {
    let served = serve(onward().args(["dev", "--port", "0", "--ephemeral"]));
    run_over(&served.url, ["api", "GET", "/v1/runs/nope"]).assert_output(
        4,
        "! error[run_not_found]: run nope not found\n! hint: list the runs of this store with `onward run list`",
    );
    let json = run_over(&served.url, ["api", "GET", "/v1/runs/nope", "--json"]);
    assert_eq!((json.code, serde_json::from_str::<serde_json::Value>(&json.err).unwrap()["status"].as_u64()), (4, Some(404)));
    for path in ["/nowhere", "/v1/kinds/nope", "/v1/tasks/nope"] {
        assert_eq!(run_over(&served.url, ["api", "GET", path]).code, 4, "{path}");
    }
    assert!(run_over(&served.url, ["api", "GET", "/nowhere"]).err.starts_with("error[route_not_found]"));
    assert!(run_over(&served.url, ["api", "POST", "/v1/runs", "--body", "{"]).err.starts_with("error[json_invalid]"));
    assert_eq!(run_over("http://127.0.0.1:1", ["api", "GET", "/"]).code, 5);
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(run(directory.path(), ["api", "GET", "/"]).code, 2);
}

#[test]
fn the_key_goes_along() {
    let directory = tempfile::tempdir().unwrap();
    let key = run(directory.path(), ["key", "create", "--name", "ada", "--scope", "read"]).out;
    let served = dev(directory.path());
    let list_runs = || {
        let mut command = onward();
        command.args(["api", "GET", "/v1/runs", "--server", &served.url]);
        command
    };
    assert_eq!(ran(&mut list_runs()).code, 7);
    assert_eq!(ran(list_runs().env("ONWARD_KEY", key.trim())).json()["runs"], serde_json::json!([]));
}
