//! Retry, fork and reset over HTTP: responses and refusals.

use serde_json::json;

use crate::client::Stream;
use crate::site::Site;

#[tokio::test]
async fn a_run_that_did_not_fail_is_not_retried() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    site.post_json("/v1/runs/a/retry", json!({"reason": "why not"})).await.problem(409, "run_not_failed");
    site.post_json("/v1/runs/nope/retry", json!({})).await.problem(404, "run_not_found");
    site.post_json("/v1/runs/a/retry", json!({"surprise": 1})).await.problem(400, "json_invalid");
    site.post_json("/v1/runs/a/retry", json!({"request_id": ""})).await.problem(400, "id_invalid");
}

#[tokio::test]
async fn a_fork_is_a_run_and_the_same_fork_is_the_same_run() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    let forked = site.post_json("/v1/runs/a/fork", json!({"from": 0, "id": "b", "signals": "drop"})).await.expect(201);
    assert_eq!((&forked["id"], &forked["created"]), (&json!("b"), &json!(true)));
    let again = site.post_json("/v1/runs/a/fork", json!({"from": 0, "id": "b", "signals": "drop"})).await.expect(200);
    assert_eq!(again["created"], json!(false));
    for other in [json!({"from": 0, "id": "b"}), json!({"from": 0, "id": "b", "signals": "drop", "children": "restart"})] {
        site.post_json("/v1/runs/a/fork", other).await.problem(409, "run_exists");
    }
    let view = site.get("/v1/runs/b").await.expect(200);
    assert_eq!(view["forked_from"], json!({"run": "a", "generation": 0, "index": 0, "is_reset": false}));
    site.post_json("/v1/runs/a/fork", json!({"from": 77, "id": "c"})).await.problem(422, "fork_point_invalid");
    site.post_json("/v1/runs/a/fork", json!({"to": 0})).await.problem(400, "json_invalid");
    site.post_json("/v1/runs/a/fork", json!({"children": "eat"})).await.problem(400, "json_invalid");
    site.post_json("/v1/runs/a/reset", json!({"to": 0, "id": "b"})).await.problem(409, "run_exists");
    site.post_json("/v1/runs/nope/reset", json!({})).await.problem(404, "run_not_found");
    site.get("/v1/runs/c").await.problem(404, "run_not_found");
    assert_eq!(site.get("/v1/runs/a").await.expect(200)["reset_to"], json!(null));
}

#[tokio::test]
async fn a_reset_ends_the_original() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    let reset = site.post_json("/v1/runs/a/reset", json!({"id": "b", "reason": "a mistake"})).await.expect(201);
    assert_eq!(reset["id"], json!("b"));
    site.get("/v1/runs/a/result?wait_ms=10000").await.expect(200);
    let view = site.get("/v1/runs/a").await.expect(200);
    assert_eq!((&view["status"], &view["reset_to"]), (&json!("terminated"), &json!("b")));
    // Z5: a repeat finds the successor, a reset to another run is refused, and a fork is independent.
    assert_eq!(site.post_json("/v1/runs/a/reset", json!({"id": "b"})).await.expect(200)["created"], json!(false));
    let detail = site.post_json("/v1/runs/a/reset", json!({"id": "c", "to": 0})).await.problem(409, "run_reset");
    assert!(detail.contains("run default/b goes on") || detail.contains("run a was already reset to run b"), "{detail}");
    site.get("/v1/runs/c").await.problem(404, "run_not_found");
    site.post_json("/v1/runs/a/fork", json!({"id": "c", "from": 0})).await.expect(201);
}

#[tokio::test]
async fn many_who_reset_a_run_to_one_point_make_one_successor() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    site.until_status("a", "waiting").await;
    let reset = async || site.post_json("/v1/runs/a/reset", json!({"to": 0})).await.json();
    let answers = tokio::join!(reset(), reset(), reset(), reset(), reset(), reset());
    let answers = [answers.0, answers.1, answers.2, answers.3, answers.4, answers.5];
    assert!(answers.iter().all(|answer| answer["id"] == "a/reset-0"), "{answers:?}");
    assert_eq!(answers.iter().filter(|answer| answer["created"] == true).count(), 1);
    site.get("/v1/runs/a/result?wait_ms=10000").await.expect(200);
    assert_eq!(site.get("/v1/runs/a").await.expect(200)["reset_to"], "a/reset-0");
}

/// A1: a reader at the end of a failed generation gets the events of the retry.
#[tokio::test]
async fn a_reader_follows_a_run_through_its_retry() {
    let site = Site::open().await;
    site.post_json("/v1/runs", json!({"kind": "fragile", "id": "a"})).await.expect(201);
    site.until_status("a", "failed").await;
    site.post_json("/v1/runs/a/retry", json!({})).await.expect(202);
    site.until_status("a", "waiting").await;
    let page = site.get("/v1/runs/a/events?generation=0").await.expect(200);
    assert_eq!(page["next"]["generation"], 1, "{page}");
    let last = page["events"].as_array().unwrap().last().unwrap();
    assert_eq!(last["event"]["type"], "run_failed");
    let header = format!("Last-Event-ID: 0:{}\r\n", last["index"]);
    let mut stream = Stream::open(site.address, "/v1/runs/a/events?until=pause", &header).await;
    let frames = stream.rest().await;
    let names: Vec<String> = frames.iter().map(|frame| frame.name()).collect();
    assert_eq!((names[0].as_str(), names[names.len() - 1].as_str()), ("retry_requested", "pause"), "{names:?}");
}
