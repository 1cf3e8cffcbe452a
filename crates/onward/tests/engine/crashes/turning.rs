//! A conversation that continues from an earlier entry, and is then handed over to another agent, in the other process.

use std::sync::Arc;

use onward::agent::{AgentCtx, MESSAGE, Role, Turn};
use onward::prelude::*;
use onward::{Builder, Entry, RunHandle};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply};

use super::conversation::{awaits, requests_of, with_model};
use super::stage::{Actor, insist};
use super::{Left, Scenario};

/// Answers the last message, until that is about a bill.
async fn front(ctx: AgentCtx, first: String) -> Result<String> {
    ctx.append(Role::User, &first).await?;
    ctx.turns((), async |()| {
        for message in ctx.signal(MESSAGE).drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        let last = ctx.messages().last(1).await?.pop().expect("it has a first entry");
        if last.role.as_str() != "user" {
            return Ok(Turn::Await((), MESSAGE));
        }
        if last.content.read::<String>()?.contains("bill") {
            return ctx.handoff("back", "Count.").await;
        }
        let reply = ctx.llm("m").system("Be brief.").await?;
        ctx.append(Role::Assistant, &reply).await?;
        Ok(Turn::Await((), MESSAGE))
    })
    .await
}

async fn back(ctx: AgentCtx, system: String) -> Result<String> {
    ctx.turns((), async |()| {
        let reply = ctx.llm("m").system(&system).await?;
        ctx.append(Role::Assistant, &reply).await?;
        Ok(Turn::Done(reply.text()))
    })
    .await
}

/// Returns the conversation, once its last message is this one, is answered, and the run waits for the next.
async fn answered(run: &RunHandle<String>, message: &str) -> Vec<Entry> {
    let is_message = |entry: &Entry| entry.content.read::<String>().is_ok_and(|text| text == message);
    insist(|| async {
        let entries = run.entries().limit(100).await.map_err(|error| error.to_string())?.entries;
        let is_answered = matches!(&entries[..], [.., last, answer] if answer.role.as_str() == "assistant" && is_message(last));
        let waits = awaits(&run.view().await.map_err(|error| error.to_string())?, MESSAGE);
        if is_answered && waits { Ok(entries) } else { Err(format!("{} entries", entries.len())) }
    })
    .await
}

#[derive(Clone)]
pub struct Turning {
    model: Arc<ScriptedModel>,
}

impl Scenario for Turning {
    const ANSWERS: u64 = 4;

    async fn new() -> Self {
        let model = ScriptedModel::start().await.unwrap();
        for (message, answer) in [("hello", "Hi."), ("one", "First."), ("two", "Second."), ("bill", "It is enough.")] {
            model.rule(Rule::when_user_says(message, ScriptedReply::text(answer)));
        }
        Turning { model: Arc::new(model) }
    }

    fn first(&self, builder: Builder) -> Builder {
        builder.agent("front", front)
    }

    fn second(&self, builder: Builder) -> Builder {
        with_model(builder.agent("back", back), &self.model)
    }

    async fn talk(&self, client: &Onward, first: &Actor) {
        insist(|| async { first.engine().await.start::<String, _>("front", "hello").id("c").await }).await;
        let run = client.run::<String>("c").unwrap();
        let hello = answered(&run, "hello").await;
        insist(|| run.message("one").id("one")).await;
        answered(&run, "one").await;
        insist(|| async { run.branch(Some(hello[1].id)).entry("user", "two").id("edit").await }).await;
        answered(&run, "two").await;
        insist(|| run.message("is there a bill").id("bill")).await;
        assert_eq!(insist(|| run.result()).await, "It is enough.");
    }

    fn requests(&self) -> Vec<String> {
        requests_of(&self.model)
    }

    fn judge(left: &Left) {
        let run = &left.runs[0];
        assert_eq!((left.runs.len(), run.kind.as_str(), run.tasks.len()), (1, "back", 4), "{left:?}");
        assert_eq!(run.signals, [r#""one""#, r#""is there a bill""#]);
    }
}
