//! Start policies as programs use them, in every place that a run can be executed.

use onward::prelude::*;
use onward::{Batch, Debounce, Error, Singleton, StartOutcome};
use serde_json::{Value, json};

use crate::site::everywhere;

const REPORT: Workflow<Value, Value> = Workflow::new("report");

async fn report(_: Ctx, input: Value) -> Result<Value> {
    Ok(json!({"of": input}))
}

/// Waits until it may end.
async fn slow(ctx: Ctx, _: u32) -> Result<u32> {
    ctx.signal("end").recv().await
}

everywhere! {
    async fn a_singleton_answers_with_the_open_run_or_replaces_it(site) {
        let onward = site.builder().await.workflow("slow", slow).start().await.unwrap();
        let first = onward.start::<u32, _>("slow", &1).singleton("u7").await.unwrap();
        assert_eq!((first.outcome, first.repeated), (StartOutcome::Started, false));
        let second = onward.start::<u32, _>("slow", &2).singleton("u7").await.unwrap();
        assert_eq!((second.outcome, second.run.id()), (StartOutcome::Skipped, first.run.id()));
        let third = onward.start::<u32, _>("slow", &3).singleton(Singleton::new("u7").cancel()).await.unwrap();
        assert_eq!((third.outcome, third.due_at), (StartOutcome::Held, None));
        let Err(Error::RunFailed { failure, .. }) = first.run.result().await else { panic!("it is canceled") };
        assert_eq!(failure.code, "canceled");
        let result = third.run.clone();
        let result = tokio::spawn(async move { result.result().await });
        crate::site::eventually("the next run starts", async || third.run.signal("end", &9).await.ok()).await;
        assert_eq!(result.await.unwrap().unwrap(), 9);
    }

    async fn a_debounced_run_has_the_last_input(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        let policy = || Debounce::new("k", seconds(20)).with_max_wait(mins(5));
        let first = onward.start(&REPORT, &json!("one")).debounce(policy()).request_id("q").await.unwrap();
        let again = onward.start(&REPORT, &json!("one")).debounce(policy()).request_id("q").await.unwrap();
        assert_eq!((again.repeated, again.due_at, again.run.id()), (true, first.due_at, first.run.id()));
        let second = onward.start(&REPORT, &json!("two")).debounce(policy()).await.unwrap();
        assert_eq!((second.outcome, second.run.id()), (StartOutcome::Held, first.run.id()));
        site.pass(&onward, seconds(21)).await;
        assert_eq!(first.run.result().await.unwrap(), json!({"of": "two"}));
        assert_eq!(first.run.view().await.unwrap().input.read::<Value>().unwrap(), json!("two"), "it is decoded for readers");
    }

    async fn a_batch_has_the_list_of_its_inputs(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        let policy = || Batch::new("k", 2, hours(1));
        let first = onward.start(&REPORT, &json!({"n": 1})).batch(policy()).await.unwrap();
        assert_eq!(first.outcome, StartOutcome::Held);
        let second = onward.start(&REPORT, &json!({"n": 2})).batch(policy()).await.unwrap();
        assert_eq!((second.outcome, second.run.id()), (StartOutcome::Started, first.run.id()));
        assert_eq!(first.run.result().await.unwrap(), json!({"of": [{"n": 1}, {"n": 2}]}));
        let input: Value = first.run.view().await.unwrap().input.read().unwrap();
        assert_eq!(input, json!([{"n": 1}, {"n": 2}]), "each item is decoded");
        let late = onward.start(&REPORT, &json!({"n": 3})).batch(policy()).await.unwrap();
        assert_ne!(late.run.id(), first.run.id());
        site.pass(&onward, hours(1)).await;
        assert_eq!(late.run.result().await.unwrap(), json!({"of": [{"n": 3}]}));
    }

    async fn a_start_with_a_policy_has_no_id_and_no_signal(site) {
        let onward = site.builder().await.workflow(&REPORT, report).start().await.unwrap();
        let start = || onward.start(&REPORT, &json!(1));
        for refused in [start().id("mine").singleton("k").await, start().signal("paid", &1).singleton("k").await, start().singleton("").await] {
            assert_eq!(refused.err().unwrap().code(), "start_policy_invalid");
        }
        let unknown = onward.start::<Value, _>("nothing", &1).singleton("k").await;
        assert!(site.is_remote() || matches!(unknown, Err(Error::UnknownKind { .. })));
    }
}
