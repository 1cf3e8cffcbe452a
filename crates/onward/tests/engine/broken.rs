//! Broken responses of models: nothing of them is executed or recorded, and a run continues or ends with a reason.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward::agent::{Agent, AgentOutcome, ModelRetries, Provider, Tool};
use onward::prelude::*;
use onward_llm_scripted::{Fault, Rule, ScriptedModel, ScriptedReply};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::in_memory;
use crate::models::roles;

const MALFORMED: Fault = Fault::MalformedAfter { chunks: 2 };

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

/// Creates an engine with an agent that has a tool, for a model of either API format; also returns the number of calls of the
/// tool.
async fn with_helper(model: &ScriptedModel, is_anthropic: bool) -> (Onward, Arc<AtomicU32>) {
    let provider = match is_anthropic {
        true => Provider::anthropic(&model.url(), None),
        false => Provider::openai(&format!("{}/v1", model.url()), None),
    };
    let retries = ModelRetries { first_delay: Duration::from_millis(1), ..ModelRetries::default() };
    let calls = Arc::new(AtomicU32::new(0));
    let counts = calls.clone();
    let weather = Tool::new("weather", "Tells the weather of a city", move |City { city }| {
        counts.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, Failure>(format!("sunny in {city}")) }
    });
    let builder = in_memory().model("m", &provider.unwrap().with_retries(retries));
    (builder.register(Agent::new("helper").model("m").tool(weather)).start().await.unwrap(), calls)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_answer_is_requested_again_and_nothing_of_it_is_done_or_stored() {
    for is_anthropic in [false, true] {
        let model = ScriptedModel::start().await.unwrap();
        let (onward, calls) = with_helper(&model, is_anthropic).await;
        for answer in [ScriptedReply::call("weather", r#"{"city":"Ulm"}"#), ScriptedReply::text("It is sunny in Ulm.")] {
            model.next(answer.clone().with_fault(MALFORMED));
            model.next(answer);
        }
        let run = onward.start::<AgentOutcome, _>("helper", "How is the weather?").id("r").await.unwrap();
        assert_eq!(run.result().await.unwrap().text, "It is sunny in Ulm.");
        assert_eq!((model.request_count(), calls.load(Ordering::SeqCst)), (4, 1));
        assert_eq!(roles(&onward, "r").await, ["user", "assistant", "tool", "assistant"]);
        let spend = run.view().await.unwrap().head.spend.unwrap();
        assert_eq!((spend.attempts, spend.unknown), (4, 2), "what came apart may have cost");
        onward.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_whose_answers_are_all_malformed_fails_the_run_by_name_and_it_can_be_tried_again() {
    for is_anthropic in [false, true] {
        let model = ScriptedModel::start().await.unwrap();
        let (onward, calls) = with_helper(&model, is_anthropic).await;
        let malformed = ScriptedReply::call("weather", r#"{"city":"Ulm"}"#).with_fault(MALFORMED);
        model.rule(Rule { times: Some(3), ..Rule::always(malformed) });
        let run = onward.start::<AgentOutcome, _>("helper", "hello").id("r").await.unwrap();
        let onward::Error::RunFailed { failure, .. } = run.result().await.unwrap_err() else { panic!("it fails") };
        assert_eq!((failure.code.as_str(), model.request_count()), ("model_answer_broken", 3));
        assert_eq!((calls.load(Ordering::SeqCst), roles(&onward, "r").await), (0, vec!["user".to_owned()]));
        let spend = run.view().await.unwrap().head.spend.unwrap();
        assert_eq!((spend.attempts, spend.unknown), (3, 3));
        run.retry("the model is well again").await.unwrap();
        let text = run.result().await.unwrap().text;
        assert!(text.starts_with("You said: hello"), "{text}");
        assert_eq!(roles(&onward, "r").await, ["user", "assistant"]);
        onward.shutdown().await;
    }
}
