//! A run and a child that it spawned, in another process: they exchange messages over turns of both, and the child's result comes
//! last.

use std::future::ready;

use onward::Builder;
use onward::agent::{AgentCtx, MESSAGE, ReceivedSignal, Role, Spawned, Turn};
use onward::prelude::*;
use serde::{Deserialize, Serialize};

use super::stage::{Actor, insist};
use super::{Left, Scenario};

/// Messages to the child, each sent when the previous one was answered.
const WORDS: [&str; 3] = ["one", "two", "end"];

#[derive(Default, Serialize, Deserialize)]
struct TurnState {
    helper: Option<Spawned<Vec<String>>>,
    words: usize,
}

async fn boss(ctx: AgentCtx, first: String) -> Result<Vec<String>> {
    ctx.append(Role::User, &first).await?;
    ctx.turns(TurnState::default(), async |state: TurnState| {
        let helper = match state.helper {
            Some(helper) => helper,
            None => ctx.spawn("helper", "fetch what I say")?,
        };
        for ReceivedSignal { from, value } in ctx.signal(MESSAGE).drain_with_sender::<String>()? {
            assert_eq!(from.as_ref(), Some(helper.run_id()));
            ctx.append(Role::User, &value).await?;
        }
        helper.message(&ctx, WORDS[state.words])?;
        let words = state.words + 1;
        if words < WORDS.len() {
            return Ok(Turn::Await(TurnState { helper: Some(helper), words }, MESSAGE));
        }
        let fetched = helper.result(&ctx).await?;
        ctx.append(Role::Assistant, &fetched).await?;
        Ok(Turn::Done(fetched))
    })
    .await
}

async fn helper(ctx: AgentCtx, task: String) -> Result<Vec<String>> {
    ctx.append(Role::User, &task).await?;
    ctx.turns(Vec::new(), async |mut fetched: Vec<String>| {
        for word in ctx.signal(MESSAGE).drain::<String>()? {
            ctx.append(Role::User, &word).await?;
            if word == "end" {
                return Ok(Turn::Done(fetched));
            }
            let found: String = ctx.task("fetch", &word).pure().retry(9).await?;
            ctx.parent().expect("it was spawned").message(&format!("here is {found}"))?;
            fetched.push(found);
        }
        Ok(Turn::Await(fetched, MESSAGE))
    })
    .await
}

#[derive(Clone)]
pub struct Errand;

impl Scenario for Errand {
    const ANSWERS: u64 = 0;

    async fn new() -> Self {
        Errand
    }

    fn first(&self, builder: Builder) -> Builder {
        builder.agent("boss", boss)
    }

    fn second(&self, builder: Builder) -> Builder {
        builder.agent("helper", helper).task("fetch", |word: String| ready(Ok::<_, Failure>(format!("number {word}"))))
    }

    async fn talk(&self, client: &Onward, first: &Actor) {
        insist(|| async { first.engine().await.start::<Vec<String>, _>("boss", "fetch all of it").id("c").await }).await;
        let run = client.run::<Vec<String>>("c").unwrap();
        assert_eq!(insist(|| run.result()).await, ["number one", "number two"]);
    }

    fn judge(left: &Left) {
        let shape: Vec<(usize, usize)> = left.runs.iter().map(|run| (run.entries, run.tasks.len())).collect();
        assert_eq!(shape, [(4, 0), (4, 2)], "a run and the one child that it has: {left:?}");
        let signals: Vec<&[String]> = left.runs.iter().map(|run| &run.signals[..]).collect();
        assert_eq!(signals[0], [r#""here is number one""#, r#""here is number two""#]);
        assert_eq!(signals[1], WORDS.map(|word| format!("{word:?}")));
    }
}
