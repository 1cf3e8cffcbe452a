//! Approvals and promises: one result each.

use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn an_approval_is_listed_and_decided_once() {
    let site = Site::open().await;
    site.start("order", "a", json!("a teapot")).await;
    assert_eq!(site.get("/v1/approvals").await.expect(200), json!({"approvals": []}));
    site.signal("a", "payment", json!(5)).await;
    let open = loop {
        let open = site.get("/v1/approvals").await.expect(200);
        if open["approvals"][0].is_object() {
            break open["approvals"][0].clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(
        (&open["id"], &open["title"], &open["deciders"]),
        (&json!("a~0~3"), &json!("Ship a teapot?"), &json!(["ada", "bob"]))
    );
    assert_eq!(site.get("/v1/approvals?run=a&limit=1").await.expect(200)["approvals"].as_array().unwrap().len(), 1);
    site.get("/v1/approvals?run=nope").await.problem(404, "run_not_found");
    let path = "/v1/approvals/a~0~3";
    let eve = json!({"approved": true, "decided_by": "eve", "decision_id": "e"});
    site.post_json(path, eve).await.problem(403, "not_a_decider");
    let ada = json!({"approved": true, "decided_by": "ada", "decision_id": "first", "feedback": "nice"});
    let first = site.post_json(path, ada.clone()).await.expect(200);
    let again = site.post_json(path, ada).await.expect(200);
    assert_eq!((&first["repeated"], &again["repeated"], &again["index"]), (&json!(false), &json!(true), &first["index"]));
    let bob = json!({"approved": false, "decided_by": "bob", "decision_id": "second"});
    let lost = site.post_json(path, bob).await.problem(409, "signal_lost");
    assert!(lost.contains("`first`"), "the winner is named: {lost}");
    let result = site.get("/v1/runs/a/result?wait_ms=10000").await.expect(200);
    assert_eq!(result["outcome"]["output"]["json"], "a teapot shipped for 5");
}

#[tokio::test]
async fn an_invalid_decision_is_refused_with_its_own_code() {
    let site = Site::open().await;
    site.start("order", "a", json!("x")).await;
    let body = json!({"approved": true, "decision_id": "d"});
    site.post_json("/v1/approvals/a~0~9", body.clone()).await.problem(404, "wait_not_found");
    site.post_json("/v1/approvals/b~0~9", body.clone()).await.problem(404, "run_not_found");
    site.post_json("/v1/approvals/what", body).await.problem(400, "call_id_invalid");
    let reserved = json!({"approved": true, "decision_id": "expired"});
    site.post_json("/v1/approvals/a~0~9", reserved).await.problem(400, "id_reserved");
    site.post_json("/v1/approvals/a~0~9", json!({"approved": true})).await.problem(400, "json_invalid");
    let long = json!({"approved": true, "decision_id": "d", "feedback": "x".repeat(65 * 1024)});
    site.post_json("/v1/approvals/a~0~9", long).await.problem(400, "text_too_long");
}

#[tokio::test]
async fn a_promise_is_resolved_once() {
    let site = Site::open().await;
    site.start("callback", "a", json!(null)).await;
    let id = site.show("a").await["awaiting"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/promises/{id}");
    for wrong in [json!({"resolution_id": "r"}), json!({"resolution_id": "r", "result": 1, "failure": {"message": "no"}})] {
        let detail = site.post_json(&path, wrong).await.problem(400, "json_invalid");
        assert!(detail.contains("either `result` or `failure`"), "{detail}");
    }
    let body = json!({"result": "done", "resolution_id": "r"});
    site.post_json(&path, body.clone()).await.expect(200);
    assert_eq!(site.post_json(&path, body).await.expect(200)["repeated"], true);
    site.post_json(&path, json!({"result": null, "resolution_id": "s"})).await.problem(409, "signal_lost");
    let result = site.get("/v1/runs/a/result?wait_ms=10000").await.expect(200);
    assert_eq!(result["outcome"]["output"]["json"], "done");
}

#[tokio::test]
async fn a_promise_is_failed() {
    let site = Site::open().await;
    site.start("callback", "a", json!(null)).await;
    let failure = json!({"code": "declined", "message": "no money", "details": {"balance": 0}});
    let body = json!({"failure": failure, "resolution_id": "r"});
    site.post_json("/v1/promises/a~0~0", body).await.expect(200);
    let result = site.get("/v1/runs/a/result?wait_ms=10000").await.expect(200);
    assert_eq!(result["outcome"]["output"]["json"], "declined: no money");
}
