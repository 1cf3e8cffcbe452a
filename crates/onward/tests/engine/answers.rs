//! Structured answers of approvals (AN1 to AN4): typed in the code, checked where they enter.

use onward::prelude::*;
use onward::testing::Script;
use onward::{Answered, Encryption, Payload};
use onward_core::view::AwaitedKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::embedded;
use crate::sealing::key;
use crate::site::{Site, awaited, count, everywhere};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
struct Payment {
    /// The amount to pay.
    #[schemars(range(min = 1))]
    cents: u32,
    account: String,
}

async fn pay(ctx: Ctx, _: ()) -> Result<String> {
    let decision = ctx.approval("pay", "Pay?").describe("The invoice is due.").answer::<Payment>().await?;
    Ok(match decision.answer {
        Some(Payment { cents, account }) => format!("{cents} to {account}"),
        None => format!("rejected: {}", decision.feedback.unwrap_or_default()),
    })
}

fn decide(approved: bool, answer: Option<Value>, id: &str) -> Decide {
    let answer = answer.map(|answer| Payload::json(&answer).unwrap());
    Decide { approved, feedback: None, decided_by: None, answer, decision_id: id.to_owned() }
}

everywhere! {
    async fn an_answer_is_typed_and_one_that_does_not_fit_decides_nothing(site) {
        let onward = site.builder().await.workflow("pay", pay).start().await.unwrap();
        let run = onward.start::<String, _>("pay", &()).id("r").await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        let open = onward.list_approvals().await.unwrap();
        let schema: Value = open[0].answer_schema.as_ref().unwrap().read().unwrap();
        assert_eq!(schema["properties"]["cents"]["description"], "The amount to pay.");
        for (wrong, path) in [
            (None, "requires an answer"),
            (Some(json!({"cents": 0, "account": "a"})), "/cents"),
            (Some(json!({"cents": 3, "account": 4})), "/account"),
            (Some(json!("3")), "is not of type"),
        ] {
            let refused = onward.decide_approval(&approval, decide(true, wrong, "d")).await.unwrap_err();
            assert_eq!(refused.code(), "answer_invalid", "{refused}");
            assert!(refused.to_string().contains(path), "{refused}");
            assert!(refused.hint().is_some_and(|hint| hint.contains("answer_schema")));
        }
        assert_eq!(count(&run, "approval_decided").await, 0);
        onward.approve_with(&approval, &Payment { cents: 7, account: "DE89".to_owned() }).await.unwrap();
        assert_eq!(run.result().await.unwrap(), "7 to DE89");
    }

    async fn a_rejection_needs_no_answer(site) {
        let onward = site.builder().await.workflow("pay", pay).start().await.unwrap();
        let run = onward.start::<String, _>("pay", &()).id("r").await.unwrap();
        let approval = awaited(&run, AwaitedKind::Approval).await;
        onward.disapprove(&approval, "too early").await.unwrap();
        assert_eq!(run.result().await.unwrap(), "rejected: too early");
    }
}

/// AN3: the store cannot read the schema, so an answer of a caller without the key is checked by the worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_store_could_not_check_fails_the_approval() {
    async fn caught(ctx: Ctx, _: ()) -> Result<String> {
        let failed = ctx.approval("pay", "Pay?").answer::<Payment>().await.map(drop).unwrap_err();
        Ok(format!("{}: {}", failed.code, failed.message))
    }
    let directory = tempfile::tempdir().unwrap();
    let encryption = Encryption::new([key("k1", 1)]).unwrap();
    let onward = embedded(directory.path()).workflow("pay", caught).codec(encryption).start().await.unwrap();
    let run = onward.start::<String, _>("pay", &()).await.unwrap();
    let approval = awaited(&run, AwaitedKind::Approval).await;
    let runtime = onward.runtime().unwrap();
    let call = onward::CallRef::parse(&onward_core::Namespace::default(), &approval).unwrap();
    let unanswered = runtime.decide_approval(&call, decide(true, None, "d")).await.unwrap_err();
    assert_eq!(unanswered.code(), "answer_invalid", "the store sees that there is a schema");
    runtime.decide_approval(&call, decide(true, Some(json!({"cents": 0, "account": "a"})), "d")).await.unwrap();
    let outcome = run.result().await.unwrap();
    assert!(outcome.starts_with("answer_invalid: ") && outcome.contains("/cents"), "{outcome}");
    onward.shutdown().await;
}

#[tokio::test]
async fn an_unusable_schema_fails_the_approval() {
    async fn code(ctx: Ctx, _: ()) -> Result<Answered<Value>> {
        ctx.approval("pay", "Pay?")
            .answer_schema::<Value>(&json!({"$ref": "https://example.com/schema"}))
            .await
            .map(|_| unreachable!())
    }
    async fn outcome(ctx: Ctx, _: ()) -> Result<String> {
        Ok(code(ctx, ()).await.map(drop).unwrap_err().code)
    }
    let site = Site::memory();
    let onward = site.builder().await.workflow("bad", outcome).start().await.unwrap();
    let run = onward.start::<String, _>("bad", &()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), "schema_invalid");
    onward.shutdown().await;
}

#[test]
fn a_script_answers_and_checks_its_answers() {
    let script = Script::new(pay, &()).approve_with("pay", &json!({"cents": 5, "account": "b"}));
    assert_eq!(script.run().output::<String>(), "5 to b");
    for script in
        [Script::new(pay, &()).approve_with("pay", &json!({"cents": 0, "account": "b"})), Script::new(pay, &()).approve("pay")]
    {
        assert_eq!(script.run().failure().code, "answer_invalid");
    }
}
