//! Structured answers of approvals over HTTP (AN1, AN2).

use onward::Onward;
use onward::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::site::Site;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Payment {
    cents: u32,
    lines: Vec<u32>,
}

async fn pay(ctx: Ctx, _: Value) -> Result<u32> {
    let decision = ctx.approval("pay", "Pay?").answer::<Payment>().await?;
    Ok(decision.answer.map_or(0, |payment| payment.cents))
}

async fn worker(site: &Site) -> Onward {
    Onward::connect(format!("http://{}", site.address)).workflow("pay", pay).start().await.unwrap()
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_a_problem_with_paths_and_writes_nothing() {
    let site = Site::open().await;
    let onward = worker(&site).await;
    site.start("pay", "r", Value::Null).await;
    site.until_status("r", "waiting").await;
    let listed = site.get("/v1/approvals").await.expect(200);
    assert_eq!(listed["approvals"][0]["answer_schema"]["json"]["required"], json!(["cents", "lines"]));
    let before = site.records();
    let decide = async |body: Value| site.post_json("/v1/approvals/r~0~0", body).await;
    let wrong = json!({"approved": true, "decision_id": "d", "answer": {"cents": -1, "lines": [1, "x"]}});
    let reply = decide(wrong).await;
    let document = reply.json();
    let mut paths: Vec<&str> =
        document["violations"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["/cents", "/lines/1"], "{document}");
    assert!(document["hint"].as_str().unwrap().contains("answer_schema"), "{document}");
    let detail = reply.problem(400, "answer_invalid");
    assert!(!detail.contains("-1"), "a value is in the message: {detail}");
    decide(json!({"approved": true, "decision_id": "d"})).await.problem(400, "answer_invalid");
    decide(json!({"approved": true, "decision_id": "d", "answer": null})).await.problem(400, "answer_invalid");
    decide(json!({"approved": false, "decision_id": "d", "answer": {"cents": 1, "lines": []}}))
        .await
        .problem(400, "answer_invalid");
    // The same decision with a claim of the run.
    let driven = json!({"approval": {"id": "r~0~0", "approved": true, "decision_id": "d", "answer": 7}});
    site.post_json("/v1/drive/r", driven).await.problem(400, "answer_invalid");
    assert_eq!(site.records(), before);
    decide(json!({"approved": true, "decision_id": "d", "answer": {"cents": 7, "lines": [1]}})).await.expect(200);
    let view = site.until_status("r", "completed").await;
    assert_eq!(view["outcome"]["output"]["json"], 7);
    let events = site.get("/v1/runs/r/events").await.body;
    assert!(events.contains(r#""answer":{"json":{"cents":7,"lines":[1]}}"#), "{events}");
    onward.shutdown().await;
}
