//! A ready-made agent whose model delegates to another agent: the tool is a run of its own, with a model and a tool, in another
//! process.

use std::sync::Arc;

use onward::agent::{Agent, AgentCtx, AgentOutcome, Role, Stop, Tool, Tools, Turn};
use onward::prelude::*;
use onward::{Builder, join_all};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply, When};

use super::conversation::{Till, requests_of, with_model};
use super::stage::{Actor, insist};
use super::{Left, Scenario};

/// Executes its task with tools.
async fn clerk(ctx: AgentCtx, task: String) -> Result<String> {
    ctx.append(Role::User, &task).await?;
    let tools = ctx.dep::<Tools>();
    ctx.turns((), async |()| {
        let reply = ctx.llm("m").system("Do as you are told.").tools(&tools).await?;
        ctx.append(Role::Assistant, &reply).await?;
        for outcome in join_all(reply.calls().map(|call| ctx.tool(call))).await? {
            ctx.append(Role::Tool, &outcome).await?;
        }
        Ok(if reply.wants_tools() { Turn::Next(()) } else { Turn::Done(reply.text()) })
    })
    .await
}

#[derive(Clone)]
pub struct Delegation {
    model: Arc<ScriptedModel>,
    till: Till,
}

impl Scenario for Delegation {
    const ANSWERS: u64 = 4;

    async fn new() -> Self {
        let model = ScriptedModel::start().await.unwrap();
        let rule = |text: &str, turn: usize, answer: ScriptedReply| {
            let when = When { user_says: Some(text.to_owned()), turn: Some(turn), ..When::default() };
            Rule { when, answer, times: None }
        };
        model.rule(rule("see to the bill", 0, ScriptedReply::call("clerk", r#"{"task":"pay 42 cents"}"#)));
        model.rule(rule("see to the bill", 1, ScriptedReply::text("The clerk has paid.")));
        model.rule(rule("pay 42 cents", 0, ScriptedReply::call("pay", r#"{"cents":42}"#)));
        model.rule(rule("pay 42 cents", 1, ScriptedReply::text("It is paid.")));
        Delegation { model: Arc::new(model), till: Till::default() }
    }

    fn first(&self, builder: Builder) -> Builder {
        let boss = Agent::new("boss").model("m").system("Let others work.").tool(Tool::agent("clerk", "Does things", "clerk"));
        builder.register(boss)
    }

    fn second(&self, builder: Builder) -> Builder {
        with_model(builder.agent("clerk", clerk), &self.model).tools(Tools::new().with(self.till.pay()))
    }

    async fn talk(&self, client: &Onward, first: &Actor) {
        insist(|| async { first.engine().await.start::<AgentOutcome, _>("boss", "see to the bill").id("c").await }).await;
        let run = client.run::<AgentOutcome>("c").unwrap();
        let outcome = insist(|| run.result()).await;
        assert_eq!((outcome.stop, outcome.text.as_str()), (Stop::Done, "The clerk has paid."));
    }

    fn requests(&self) -> Vec<String> {
        requests_of(&self.model)
    }

    fn paid(&self) -> usize {
        self.till.paid()
    }

    fn judge(left: &Left) {
        let shape: Vec<(usize, usize)> = left.runs.iter().map(|run| (run.entries, run.tasks.len())).collect();
        assert_eq!((shape, left.paid), (vec![(4, 2), (4, 3)], 1), "a run and the one child that it has: {left:?}");
    }
}
