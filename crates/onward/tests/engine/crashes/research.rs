//! The example of flows: its first process has the flow and the agent, the second one the model and the searches.

use std::sync::Arc;

use onward::agent::{Agent, Provider};
use onward::prelude::*;
use onward::{Builder, Decide, RunView};
use onward_core::view::AwaitedKind;
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply};
use serde_json::{Value, json};

use super::conversation::requests_of;
use super::stage::{Actor, insist};
use super::{Left, Scenario};

#[derive(Clone)]
pub struct Research {
    model: Arc<ScriptedModel>,
}

impl Scenario for Research {
    /// The plan, and the page of the agent.
    const ANSWERS: u64 = 2;

    async fn new() -> Self {
        let model = ScriptedModel::start().await.unwrap();
        model.rule(Rule::when_user_says(
            "questions about tea",
            ScriptedReply::text(r#"["Why tea?", "Which tea?", "When?", "Where?"]"#),
        ));
        model.rule(Rule::when_user_says("Write a page", ScriptedReply::text("All about tea.")));
        Research { model: Arc::new(model) }
    }

    fn first(&self, builder: Builder) -> Builder {
        let builder = builder.flow_text(include_str!("../../../../../examples/flows/research.yaml"));
        builder.register(Agent::new("writer").model("small"))
    }

    fn second(&self, builder: Builder) -> Builder {
        let search = async |input: Value| Ok::<_, Failure>(format!("found: {}", input["query"].as_str().unwrap()));
        let provider = Provider::openai(&format!("{}/v1", self.model.url()), None).unwrap();
        builder.model("small", &provider).task("web-search", search)
    }

    async fn talk(&self, client: &Onward, first: &Actor) {
        let input = json!({"topic": "tea", "depth": 4});
        insist(|| async { first.engine().await.start::<Value, _>("research", &input).id("c").await }).await;
        let run = client.run::<Value>("c").unwrap();
        let question = |view: &RunView| view.awaiting.iter().find(|awaited| awaited.kind == AwaitedKind::Approval).cloned();
        let view = insist(|| run.until(|view| question(view).is_some())).await;
        let approval = question(&view).expect("it was waited for");
        let decide = || Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: "yes".to_owned() };
        insist(|| client.decide_approval(&approval.id, decide())).await;
        assert_eq!(insist(|| run.result()).await, json!({"page": "All about tea."}));
    }

    fn requests(&self) -> Vec<String> {
        requests_of(&self.model)
    }

    fn judge(left: &Left) {
        let shape: Vec<(&str, usize)> = left.runs.iter().map(|run| (run.kind.as_str(), run.tasks.len())).collect();
        assert_eq!(shape, [("research", 5), ("writer", 1)], "a run and the one child that it has: {left:?}");
    }
}
