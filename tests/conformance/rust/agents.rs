//! The agents of claims.json.

use std::sync::Arc;

use onward::Builder;
use onward::agent::{Agent, AgentCtx, Provider, Role, Tool, Tools, Turn};
use onward::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{does, hold, mark};

const MODEL: &str = "scripted";

#[derive(Deserialize, JsonSchema)]
struct Word {
    word: String,
}

fn agent<F, Fut>(builder: Builder, name: &str, code: F) -> Builder
where
    F: Fn(AgentCtx, Value) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Value>> + Send + 'static,
{
    let code = Arc::new(code);
    builder.agent(name, move |ctx: AgentCtx, given: Value| {
        let code = code.clone();
        async move {
            let output = code(ctx.clone(), given["in"].clone()).await;
            hold(&ctx, &given).await?;
            output
        }
    })
}

fn lookup() -> Tool {
    let lookup = async |Word { word }: Word| {
        mark(&word, "lookup");
        Ok::<_, Failure>(format!("{word} is a word"))
    };
    Tool::new("lookup", "Looks up a word.", lookup).pure()
}

fn pay() -> Tool {
    let pay = async |Word { word }: Word| {
        mark(&word, "pay");
        Ok::<_, Failure>(format!("paid {word}"))
    };
    Tool::new("pay", "Pays.", pay).needs_approval()
}

pub fn register(builder: Builder) -> anyhow::Result<Builder> {
    let builder = match std::env::var("CONFORMANCE_MODEL") {
        Ok(url) => builder.model(MODEL, &Provider::openai(&format!("{url}/v1"), None)?),
        Err(_) => builder,
    };
    let builder = builder.tools(Tools::new().with(lookup()));
    let builder = builder.register(Agent::new("talker").model(MODEL).system("You help.").tool(lookup()));
    let builder = builder.register(Agent::new("payer").model(MODEL).tool(pay()));
    Ok(models(turns(builder)))
}

fn turns(builder: Builder) -> Builder {
    let builder = agent(builder, "turns", async |ctx: AgentCtx, count: Value| {
        let turn = async |number: u64| {
            does(&ctx, &format!("turn-{number}"), Value::Null).await?;
            ctx.append(Role::System, &format!("turn {number}")).await?;
            if number + 1 < count.as_u64().expect("a number") {
                return Ok(Turn::Next(number + 1));
            }
            Ok(Turn::Done(json!([number + 1, ctx.entry_count()])))
        };
        ctx.turns(0, turn).await
    });
    let builder = agent(builder, "turns-wait", async |ctx: AgentCtx, count: Value| {
        let turn = async |mut heard: Vec<String>| {
            heard.extend(ctx.signal("message").drain::<String>()?);
            does(&ctx, &format!("heard-{}", heard.len()), Value::Null).await?;
            let is_over = heard.len() as u64 >= count.as_u64().expect("a number");
            Ok(if is_over { Turn::Done(heard.into()) } else { Turn::Await(heard, "message") })
        };
        ctx.turns(Vec::new(), turn).await
    });
    let builder = agent(builder, "checkpoints", async |ctx: AgentCtx, count: Value| {
        let number = ctx.checkpointed::<u64>()?.unwrap_or_default();
        does(&ctx, &format!("part-{number}"), Value::Null).await?;
        if number < count.as_u64().expect("a number") {
            return ctx.checkpoint(&(number + 1)).await;
        }
        Ok(number.into())
    });
    agent(builder, "entries", async |ctx: AgentCtx, _| {
        let first = ctx.append(Role::User, "hello").await?;
        let once = ctx.append_once("only", "system", &json!({"n": 1})).await?;
        let again = ctx.append_once("only", "system", &json!({"n": 1})).await?;
        ctx.state().set("ready", &true)?;
        let _: Value = ctx.signal("go").recv().await?;
        let taken = ctx.take_in().await.len();
        let roles: Vec<_> = ctx.messages().await?.iter().map(|entry| entry.role.to_string()).collect();
        Ok(json!([first != once, once == again, taken, ctx.entry_count(), roles]))
    })
}

fn models(builder: Builder) -> Builder {
    let builder = agent(builder, "asks-model", async |ctx: AgentCtx, text: Value| {
        ctx.append(Role::User, &text).await?;
        let reply = ctx.llm(MODEL).system("Be brief.").await?;
        ctx.append(Role::Assistant, &reply).await?;
        does(&ctx, "after", Value::Null).await?;
        Ok(json!([reply.text(), ctx.entry_count()]))
    });
    agent(builder, "uses-tool", async |ctx: AgentCtx, text: Value| {
        ctx.append(Role::User, &text).await?;
        let tools = ctx.dep::<Tools>();
        let turn = async |count: u64| {
            let reply = ctx.llm(MODEL).tools(&tools).await?;
            ctx.append(Role::Assistant, &reply).await?;
            let outcomes = join_all(reply.calls().map(|call| ctx.tool(call))).await?;
            for outcome in &outcomes {
                ctx.append(Role::Tool, outcome).await?;
            }
            Ok(if outcomes.is_empty() { Turn::Done(json!([count + 1, reply.text()])) } else { Turn::Next(count + 1) })
        };
        ctx.turns(0, turn).await
    })
}
