//! Retry, fork and reset over HTTP: answers and refusals.

use serde_json::json;

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
    let again = site.post_json("/v1/runs/a/fork", json!({"from": 0, "id": "b"})).await.expect(200);
    assert_eq!(again["created"], json!(false));
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
}
