//! Schemas of kinds, in a process with an embedded store.

use onward::prelude::*;
use onward::{Onward, RunQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::site::{count, everywhere};

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

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Payment {
    cents: u32,
}

async fn echo(_: TaskCtx, value: serde_json::Value) -> Result<serde_json::Value> {
    Ok(value)
}

everywhere! {
    /// KI5
    async fn a_signal_or_update_of_a_caller_that_does_not_fit_is_not_recorded(site) {
        let code = async |ctx: Ctx, _: ()| -> Result<u32> {
            ctx.update("add", |by: u32| Ok(by + 1));
            let payment: Payment = ctx.signal("payment").recv().await?;
            Ok(payment.cents)
        };
        let builder = site.builder().await.workflow("paid", code).signal::<Payment>("payment").update::<u32>("add");
        let onward = builder.start().await.unwrap();
        let run = onward.start::<u32, _>("paid", &()).id("r").await.unwrap();
        if !site.is_sealed {
            // The store sees an encrypted payload.
            let refused = run.signal("payment", &json!({"cents": -1})).await.unwrap_err();
            assert_eq!(refused.code(), "signal_invalid", "{refused}");
            assert!(refused.to_string().contains("/cents"), "{refused}");
            let refused = run.update::<u32>("add", &json!("two")).await.unwrap_err();
            assert_eq!(refused.code(), "update_invalid", "{refused}");
            let first = onward.start::<u32, _>("paid", &()).id("s").signal("payment", &json!(7)).await.map(drop).unwrap_err();
            assert_eq!(first.code(), "signal_invalid");
            assert!(onward.run::<u32>("s").unwrap().view().await.is_err(), "nothing started");
        }
        run.signal("other", &json!("any")).await.unwrap();
        assert_eq!(run.update::<u32>("add", &2).await.unwrap(), 3);
        run.signal("payment", &Payment { cents: 7 }).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
        assert_eq!((count(&run, "signal_received").await, count(&run, "update_received").await), (2, 1));
    }

    /// KI6. The replays of the last two workers compare with schemas that the recorded answers, or refusals, do not agree with.
    async fn an_answer_of_an_update_that_does_not_fit_fails_the_update_and_is_compared_once(site) {
        async fn adds(ctx: Ctx, (): ()) -> Result<u32> {
            ctx.update("add", |by: u32| Ok(by + 1));
            let inner = ctx.clone();
            ctx.update_async("weigh", move |by: u32| {
                let ctx = inner.clone();
                async move { ctx.step("weigh", async || Ok::<_, Failure>(by)).await }
            });
            ctx.signal("end").recv().await
        }
        let opened = async |max: u32| {
            let schema = json!({"type": "integer", "maximum": max});
            let builder = site.builder().await.workflow("adds", adds);
            let builder = builder.update_answer_schema("add", schema.clone()).update_answer_schema("weigh", schema);
            builder.start().await.unwrap()
        };
        let onward = opened(9).await;
        let run = onward.start::<u32, _>("adds", &()).id("r").await.unwrap();
        for (update, answer) in [("add", 6), ("weigh", 5)] {
            assert_eq!(run.update::<u32>(update, &5).await.unwrap(), answer);
            let refused = run.update::<u32>(update, &20).await.unwrap_err();
            let failure = refused.failure().unwrap();
            assert_eq!(failure.code, "output_invalid", "{refused}");
            assert!(failure.message.starts_with(&format!("the answer of update `{update}` does not fit its schema")), "{refused}");
        }
        onward.shutdown().await;
        for max in [3, 90] {
            let onward = opened(max).await;
            let run = onward.run::<u32>("r").unwrap();
            assert_eq!(run.update::<u32>("add", &2).await.unwrap(), 3);
            onward.shutdown().await;
        }
        let onward = opened(90).await;
        let run = onward.run::<u32>("r").unwrap();
        run.signal("end", &7).await.unwrap();
        assert_eq!(run.result().await.unwrap(), 7);
    }

    async fn an_output_that_does_not_fit_fails_the_run_or_task(site) {
        let builder = site.builder().await.workflow("echo", async |_: Ctx, value: serde_json::Value| Ok(value));
        let builder = builder.output_schema(json!({"type": "integer", "maximum": 9}));
        let builder = builder.task("echo-task", echo).output_schema(json!({"type": "integer"}));
        let onward = builder.start().await.unwrap();
        let of = async |value: serde_json::Value| {
            onward.start::<serde_json::Value, _>("echo", &value).await.unwrap().result().await
        };
        assert_eq!(of(json!(9)).await.unwrap(), 9);
        for wrong in [json!(10), json!("text")] {
            let error = of(wrong).await.unwrap_err();
            assert_eq!(error.failure().unwrap().code, "output_invalid", "{error}");
        }
        let task = onward.task::<serde_json::Value, _>("echo-task", &json!("text")).await.unwrap();
        let error = task.result().await.unwrap_err();
        assert_eq!(error.failure().unwrap().code, "output_invalid", "{error}");
    }
}

#[tokio::test]
async fn schemas_of_answers_come_from_types_and_need_a_workflow() {
    let code = async |ctx: Ctx, _: ()| -> Result<()> {
        ctx.update("pay", |cents: i64| Ok(json!({"cents": cents})));
        ctx.signal("end").recv().await
    };
    let onward = Onward::in_memory().workflow("paid", code).update_answer::<Payment>("pay").start().await.unwrap();
    let run = onward.start::<(), _>("paid", &()).await.unwrap();
    assert_eq!(run.update::<Payment>("pay", &7).await.unwrap().cents, 7);
    assert_eq!(run.update::<Payment>("pay", &-7).await.unwrap_err().failure().unwrap().code, "output_invalid");
    onward.shutdown().await;
    let task = Onward::in_memory().task("echo", echo).update_answer_schema("pay", json!({})).start().await;
    assert_eq!(task.map(drop).unwrap_err().code(), "register_invalid");
    let builder = Onward::in_memory().workflow("inner", inner).update_answer_schema("pay", json!({"$ref": "http://x/"}));
    assert_eq!(builder.start().await.map(drop).unwrap_err().code(), "schema_invalid");
}
