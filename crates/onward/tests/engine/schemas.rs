//! Schemas of kinds, in a process with an embedded store.

use onward::prelude::*;
use onward::{Onward, RunQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

#[derive(Serialize, Deserialize, JsonSchema)]
struct Order {
    id: String,
    cents: u32,
}

const SUM: Workflow<Order, u32> = Workflow::new("sum");

async fn sum(ctx: Ctx, order: Order) -> Result<u32> {
    // Payloads from code to code are not validated.
    let same: u32 = ctx.child("inner", &json!("no integer")).await?;
    Ok(order.cents + same)
}

async fn inner(_: Ctx, _: serde_json::Value) -> Result<u32> {
    Ok(1)
}

#[tokio::test]
async fn a_start_whose_input_does_not_fit_begins_nothing() {
    let onward = Onward::in_memory()
        .workflow(&SUM, sum)
        .schema::<Order, u32>()
        .workflow("inner", inner)
        .input_schema(json!({"type": "integer"}))
        .start()
        .await
        .unwrap();
    let refused = onward.start(&SUM, &json!({"id": 1, "cents": -1})).await.map(drop).unwrap_err();
    assert_eq!(refused.code(), "input_invalid");
    assert!(refused.to_string().contains("/cents") && refused.to_string().contains("/id"), "{refused}");
    assert_eq!(onward.start::<u32, _>("inner", "text").await.map(drop).unwrap_err().code(), "input_invalid");
    assert!(onward.list_runs(RunQuery::default()).await.unwrap().runs.is_empty());
    let run = onward.start(&SUM, &Order { id: "a".to_owned(), cents: 2 }).await.unwrap();
    assert_eq!(run.result().await.unwrap(), 3);
    onward.shutdown().await;
}

#[tokio::test]
async fn a_schema_that_is_not_taken_or_belongs_to_nothing_is_reported_at_the_start() {
    let remote = Onward::in_memory().workflow("inner", inner).input_schema(json!({"$ref": "http://x/"})).start().await;
    assert_eq!(remote.map(drop).unwrap_err().code(), "schema_invalid");
    let nothing = Onward::in_memory().input_schema(json!({})).start().await;
    assert_eq!(nothing.map(drop).unwrap_err().code(), "register_invalid");
}
