//! The example of the guide, end to end.

use onward::agent::{Agent, Provider};
use onward::prelude::*;
use onward::{Builder, ReplayCheck, RunHandle};
use onward_core::view::AwaitedKind;
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use crate::requests::reply;
use crate::script;

pub const RESEARCH: &str = include_str!("../../../../examples/flows/research.yaml");

async fn model() -> ScriptedModel {
    let model = ScriptedModel::start().await.unwrap();
    model.next(ScriptedReply::text("I would ask this: why, and how?"));
    model.rule(Rule::when_user_says("questions about tea", ScriptedReply::text(r#"["Why tea?", "Which tea?"]"#)));
    model.rule(Rule::when_user_says("Write a page", ScriptedReply::text("All about tea.")));
    model
}

fn equipped(builder: Builder, model: &ScriptedModel) -> Builder {
    let search = async |input: Value| Ok::<_, Failure>(format!("found: {}", input["query"].as_str().unwrap()));
    builder
        .check_replay(ReplayCheck::Every)
        .flow_text(RESEARCH)
        .model("small", &Provider::openai(&format!("{}/v1", model.url()), None).unwrap())
        .register(Agent::new("writer").model("small"))
        .task("web-search", search)
}

/// Starts a run, decides its approval, and returns its result.
async fn decided(onward: &Onward, approve: bool) -> Value {
    let run: RunHandle<Value> = onward.start("research", &json!({"topic": "tea"})).await.unwrap();
    let question = |view: &onward::RunView| view.awaiting.iter().find(|awaited| awaited.kind == AwaitedKind::Approval).cloned();
    let view = run.until(|view| question(view).is_some()).await.unwrap();
    let approval = question(&view).unwrap();
    if approve {
        onward.approve(&approval.id).await.unwrap();
    } else {
        onward.disapprove(&approval.id, "no").await.unwrap();
    }
    let result = run.result().await.unwrap();
    let spend = run.view().await.unwrap().head.spend.expect("model calls cost something");
    assert!(spend.attempts >= 1 && spend.tokens.total() > 0, "{spend:?}");
    result
}

/// The first answer of the model is not JSON, so the question is repeated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_asks_searches_writes_and_publishes() {
    let model = model().await;
    let directory = tempfile::tempdir().unwrap();
    for builder in [Onward::in_memory(), Onward::embedded(directory.path())] {
        let before = model.request_count();
        let onward = equipped(builder, &model).start().await.unwrap();
        assert_eq!(decided(&onward, true).await, json!({"page": "All about tea."}));
        assert!(matches!(model.request_count() - before, 2 | 3), "{}", model.request_count());
        assert_eq!(decided(&onward, false).await, json!({"page": ""}));
        onward.shutdown().await;
    }
    let asked = model.requests();
    let again = asked[1].body.to_string();
    assert!(again.contains("I would ask this"), "the second question has the answer that did not fit: {again}");
}

/// In virtual time, with a search that takes too long: the run goes on with the apology.
#[test]
fn a_search_that_times_out_leads_to_the_apology() {
    let script = script(RESEARCH, &json!({"topic": "tea", "depth": 1}))
        .task("llm.small", |_: Value| Ok(reply(r#"["Why tea?"]"#)))
        .task_with("web-search", |_: Value, _| Err::<(), _>(Failure::timed_out("the search")));
    assert_eq!(script.run().output::<Value>(), json!({"page": ""}));
    script.crash_everywhere();
}

/// Every run with a crash before or after a commit has the same calls as the one without.
#[test]
fn the_example_crashes_before_and_after_every_commit() {
    let answer = |input: Value| {
        let asked = input["settings"]["ask"].as_str().unwrap_or_default().to_owned();
        let is_plan = asked.contains("questions about");
        Ok(if is_plan { reply(r#"["Why tea?", "Which tea?", "When?"]"#) } else { reply("short") })
    };
    let script = script(RESEARCH, &json!({"topic": "tea", "depth": 3}))
        .task("llm.small", answer)
        .task("web-search", |input: Value| Ok(input["query"].clone()))
        .child("writer", |_: Value| Ok(json!({"text": "long ".repeat(4_001)})))
        .approve_after(hours(1), "review");
    assert_eq!(script.run().output::<Value>(), json!({"page": "short"}));
    script.crash_everywhere();
    script.schedules(20);
}
