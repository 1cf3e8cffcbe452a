//! A tool that needs an approval, and a summary that replaces the conversation before it.

use std::sync::Arc;

use onward::agent::{AgentCtx, EntryId, MESSAGE, Role, Tools, Turn};
use onward::prelude::*;
use onward::{Builder, Decide, RunView, join_all};
use onward_core::view::{Awaited, AwaitedKind};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply, When};

use super::conversation::{Till, awaits, requests_of, with_model};
use super::stage::{Actor, insist};
use super::{Left, Scenario};

/// Gets four answers: the payment, its confirmation, the summary, and goodbye.
async fn cashier(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append(Role::User, &first).await?;
    ctx.turns(0u32, async |turn| {
        for message in ctx.signal(MESSAGE).drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        if turn == 2 {
            let entries = ctx.messages().await?;
            let covers = EntryId::from(&entries[entries.len() - 2]);
            let summary = ctx.llm("m").at(covers).ask("Sum it up.").await?;
            ctx.compact(&summary.text(), covers).await?;
        }
        let tools = ctx.dep::<Tools>();
        let reply = ctx.llm("m").system("Be careful.").tools(&tools).await?;
        ctx.append(Role::Assistant, &reply).await?;
        if reply.wants_tools() {
            for outcome in join_all(reply.calls().map(|call| ctx.tool(call))).await? {
                ctx.append(Role::Tool, &outcome).await?;
            }
            return Ok(Turn::Next(turn + 1));
        }
        Ok(if turn == 2 { Turn::Done(turn) } else { Turn::Await(turn + 1, MESSAGE) })
    })
    .await
}

#[derive(Clone)]
pub struct Approval {
    model: Arc<ScriptedModel>,
    till: Till,
}

impl Approval {
    fn tools(&self) -> Tools {
        Tools::new().with(self.till.pay().needs_approval())
    }
}

impl Scenario for Approval {
    const ANSWERS: u64 = 4;

    async fn new() -> Self {
        let model = ScriptedModel::start().await.unwrap();
        model.rule(Rule::when_user_says("Sum it up", ScriptedReply::text("42 cents were paid.")));
        model.rule(Rule::when_user_says("thank you", ScriptedReply::text("Goodbye.")));
        let turn =
            |turn: usize, answer: ScriptedReply| Rule { when: When { turn: Some(turn), ..When::default() }, answer, times: None };
        model.rule(turn(0, ScriptedReply::call("pay", r#"{"cents":42}"#)));
        model.rule(turn(1, ScriptedReply::text("It is paid.")));
        Approval { model: Arc::new(model), till: Till::default() }
    }

    fn first(&self, builder: Builder) -> Builder {
        builder.agent("cashier", cashier).dep(self.tools())
    }

    fn second(&self, builder: Builder) -> Builder {
        with_model(builder, &self.model).tools(self.tools())
    }

    async fn talk(&self, client: &Onward, first: &Actor) {
        insist(|| async { first.engine().await.start::<u32, _>("cashier", "pay the bill").id("c").await }).await;
        let run = client.run::<u32>("c").unwrap();
        let question = |view: &RunView| view.awaiting.iter().find(|awaited| awaited.kind == AwaitedKind::Approval).map(id);
        let view = insist(|| run.until(|view| question(view).is_some())).await;
        let approval_id = question(&view).expect("it was waited for");
        let decide = || Decide { approved: true, feedback: None, decided_by: None, answer: None, decision_id: "yes".to_owned() };
        insist(|| client.decide_approval(&approval_id, decide())).await;
        insist(|| run.until(|view| awaits(view, MESSAGE))).await;
        insist(|| run.message("thank you").id("thanks")).await;
        assert_eq!(insist(|| run.result()).await, 2);
    }

    fn requests(&self) -> Vec<String> {
        requests_of(&self.model)
    }

    fn paid(&self) -> usize {
        self.till.paid()
    }

    fn judge(left: &Left) {
        let run = &left.runs[0];
        assert_eq!((left.runs.len(), run.entries, run.tasks.len(), left.paid), (1, 7, 5, 1), "{left:?}");
        assert_eq!(run.decided, [(true, "yes".to_owned())]);
        let last = left.requests.last().unwrap();
        assert!(last.contains("42 cents were paid.") && !last.contains("pay the bill"), "the summary is in its place: {last}");
    }
}

fn id(awaited: &Awaited) -> String {
    awaited.id.clone()
}
