//! A conversation of three turns, with concurrent tools and a message in between.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use onward::agent::{AgentCtx, Provider, Role, Tool, Tools, Turn};
use onward::prelude::*;
use onward::{Builder, RunView, TaskCtx, join_all};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply, When};
use schemars::JsonSchema;
use serde::Deserialize;

use super::stage::{Actor, insist};
use super::{Left, Scenario};

/// Gets three answers: the first calls tools, and a message arrives while they run.
async fn conversation(ctx: AgentCtx, first: String) -> Result<u32> {
    ctx.append(Role::User, &first).await?;
    ctx.turns(0u32, async |turn| {
        for message in ctx.signal("message").drain::<String>()? {
            ctx.append(Role::User, &message).await?;
        }
        let tools = ctx.dep::<Tools>();
        let reply = ctx.llm("m").system("Be brief.").tools(&tools).await?;
        ctx.append(Role::Assistant, &reply).await?;
        if reply.wants_tools() {
            for outcome in join_all(reply.calls().map(|call| ctx.tool(call))).await? {
                ctx.append(Role::Tool, &outcome).await?;
            }
            return Ok(Turn::Next(turn + 1));
        }
        Ok(if turn == 2 { Turn::Done(turn) } else { Turn::Await(turn + 1, "message") })
    })
    .await
}

#[derive(Deserialize, JsonSchema)]
pub struct Amount {
    cents: u64,
}

/// The environment: payments by their idempotency key.
#[derive(Clone, Default)]
pub struct Till {
    paid: Arc<Mutex<BTreeSet<String>>>,
}

impl Till {
    pub fn pay(&self) -> Tool {
        let paid = self.paid.clone();
        let pay = move |ctx: TaskCtx, Amount { cents }| {
            paid.lock().unwrap().insert(format!("{} {cents}", ctx.idempotency_key()));
            async move { Ok::<_, Failure>(format!("paid {cents}")) }
        };
        Tool::new("pay", "Pays", pay).keyed().retry(9)
    }

    pub fn paid(&self) -> usize {
        self.paid.lock().unwrap().len()
    }
}

/// Returns the requests to the model, in order.
pub fn requests_of(model: &ScriptedModel) -> Vec<String> {
    model.requests().into_iter().map(|request| request.body.to_string()).collect()
}

/// Adds this model, as `m`.
pub fn with_model(builder: Builder, model: &ScriptedModel) -> Builder {
    builder.model("m", &Provider::openai(&format!("{}/v1", model.url()), None).unwrap())
}

/// Returns whether the run waits for such a signal.
pub fn awaits(view: &RunView, signal: &str) -> bool {
    view.awaiting.iter().any(|awaited| awaited.name.as_ref().is_some_and(|name| name.as_str() == signal))
}

#[derive(Clone)]
pub struct Conversation {
    model: Arc<ScriptedModel>,
    till: Till,
    client: Arc<Mutex<Option<Onward>>>,
}

impl Conversation {
    fn tools(&self) -> Tools {
        let client = self.client.clone();
        let look = move |_: Amount| {
            let client = client.lock().unwrap().clone().unwrap();
            async move {
                // Steering: sent while the tools run, and always before this one has answered.
                let run = client.run::<u32>("c").unwrap();
                insist(|| run.signal("message", "and be quick").id("steering")).await;
                Ok::<_, Failure>("it is there")
            }
        };
        Tools::new().with(self.till.pay()).with(Tool::new("look", "Looks", look).pure().retry(9))
    }
}

impl Scenario for Conversation {
    const ANSWERS: u64 = 3;

    async fn new() -> Self {
        let model = ScriptedModel::start().await.unwrap();
        let calls = ScriptedReply::text("Let me see.").and_call("pay", r#"{"cents":42}"#).and_call("look", r#"{"cents":1}"#);
        let turn =
            |turn: usize, answer: ScriptedReply| Rule { when: When { turn: Some(turn), ..When::default() }, answer, times: None };
        model.rule(turn(0, calls));
        model.rule(turn(1, ScriptedReply::text("It is paid, and I was quick.")));
        model.rule(turn(2, ScriptedReply::text("Goodbye.")));
        Conversation { model: Arc::new(model), till: Till::default(), client: Arc::default() }
    }

    fn first(&self, builder: Builder) -> Builder {
        builder.agent("conversation", conversation).dep(self.tools())
    }

    fn second(&self, builder: Builder) -> Builder {
        with_model(builder, &self.model).tools(self.tools())
    }

    async fn talk(&self, client: &Onward, first: &Actor) {
        *self.client.lock().unwrap() = Some(client.clone());
        insist(|| async { first.engine().await.start::<u32, _>("conversation", "pay and look").id("c").await }).await;
        let run = client.run::<u32>("c").unwrap();
        insist(|| run.until(|view| awaits(view, "message"))).await;
        insist(|| run.signal("message", "thank you").id("second")).await;
        assert_eq!(insist(|| run.result()).await, 2);
        self.client.lock().unwrap().take();
    }

    fn requests(&self) -> Vec<String> {
        requests_of(&self.model)
    }

    fn paid(&self) -> usize {
        self.till.paid()
    }

    fn judge(left: &Left) {
        let run = &left.runs[0];
        assert_eq!((left.runs.len(), run.entries, run.tasks.len(), left.paid), (1, 8, 5, 1), "{left:?}");
        assert_eq!(run.signals, [r#""and be quick""#, r#""thank you""#]);
    }
}
