//! A worker with agents whose answers are scripted, for whoever tries out a front end: `chat_worker URL [PACE_MS]`.
//!
//! What `support` is told decides what it does: `tool` calls a tool, `refund` asks a person first, `think` thinks aloud, `flaky` fails once
//! in the middle, `fail` ends the run, `note TEXT` keeps a note; everything else is answered word by word, with a pause between words.
//! `ready` is the ready-made loop, with a model that calls the tools which it is told by name: `weather`, and `refund`, which a person
//! decides about. `boss` lets `ready` work, as its tool `desk`, and `brief` takes one turn for a message.

use std::time::Duration;

use onward::agent::{Agent, AgentCtx, Provider, Tool, Turn};
use onward::prelude::*;
use onward::{RetryPolicy, TaskCtx};
use onward_llm_scripted::ScriptedModel;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

const MESSAGE: Signal<ChatMessage> = Signal::new("message");

/// What a person says, as a client named it.
#[derive(Clone, Serialize, Deserialize)]
struct ChatMessage {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    text: String,
}

async fn support(ctx: AgentCtx, first: ChatMessage) -> Result<()> {
    ctx.turns(Some(first), |first: Option<ChatMessage>| {
        let ctx = ctx.clone();
        async move {
            let mut question = String::new();
            for message in first.into_iter().chain(ctx.signal(&MESSAGE).drain()?) {
                ctx.append("user", &message).await?;
                question = message.text;
            }
            answer(&ctx, &question).await?;
            Ok(if question == "bye" { Turn::Done(()) } else { Turn::wait_for(None, &MESSAGE) })
        }
    })
    .await
}

async fn answer(ctx: &AgentCtx, question: &str) -> Result<()> {
    if let Some(note) = question.strip_prefix("note ") {
        ctx.state().set("note", &note)?;
    }
    if question == "refund" {
        let decision = ctx.approval("refund", "Refund 20 EUR?").show(&json!({"amount": 20})).await?;
        let said = if decision.approved { "refunded" } else { "not refunded" };
        ctx.append("assistant", said).await?;
        return Ok(());
    }
    let retry = RetryPolicy::attempts(3).delay(Duration::from_millis(10));
    let reply: Value = ctx.task("model", question).pure().retry(retry).await?;
    ctx.append("assistant", &reply).await?;
    if let Some(call) = reply["blocks"].as_array().and_then(|blocks| blocks.iter().find(|block| block["type"] == "tool_call")) {
        let weather: String = ctx.task("weather", &call["arguments"]).pure().await?;
        let result = json!({"type": "tool_result", "call_id": call["id"], "blocks": [{"type": "text", "text": weather}]});
        ctx.append("tool", &json!({"blocks": [result]})).await?;
        let reply: Value = ctx.task("model", &format!("It is {weather} there")).pure().await?;
        ctx.append("assistant", &reply).await?;
    }
    Ok(())
}

/// Stands for a model: says its answer as it comes to it.
async fn model(ctx: TaskCtx, question: String) -> Result<Value> {
    let pace = *ctx.dep::<Duration>();
    if question == "fail" {
        return Err(Failure::fatal("the model is broken").with_code("model_broken"));
    }
    ctx.stream(&json!({"type": "begin", "response_id": "r", "model": "scripted"}));
    if question == "tool" {
        let call = json!({"type": "tool_call", "id": "call-1", "name": "weather", "arguments": "{\"city\":\"Oslo\"}"});
        ctx.stream(&json!({"type": "tool_call_begin", "call": 0, "id": "call-1", "name": "weather"}));
        for part in ["{\"city\":", "\"Oslo\"}"] {
            ctx.stream(&json!({"type": "tool_call_arguments", "call": 0, "text": part}));
        }
        return Ok(json!({"blocks": [call]}));
    }
    let mut blocks = Vec::new();
    if question == "think" {
        ctx.stream(&json!({"type": "reasoning", "text": "let me see"}));
        blocks.push(json!({"type": "reasoning", "text": "let me see"}));
    }
    let text = format!("You said: {question}. That is an answer with a few words in it.");
    for (n, word) in text.split_inclusive(' ').enumerate() {
        ctx.stream(&json!({"type": "text", "text": word}));
        tokio::time::sleep(pace).await;
        if question == "flaky" && ctx.attempt() == 1 && n == 3 {
            return Err(Failure::retryable("the line is dead").with_code("line_dead"));
        }
    }
    ctx.stream(&json!({"type": "usage", "input": 7, "cached_read": 0, "cached_write": 0, "output": 13, "reasoning": 0}));
    blocks.push(json!({"type": "text", "text": text}));
    Ok(json!({ "blocks": blocks }))
}

#[derive(Deserialize, JsonSchema)]
struct Refund {
    cents: u64,
}

#[derive(Deserialize, JsonSchema)]
struct City {
    city: String,
}

/// The ready-made loop.
fn ready() -> Agent {
    let weather = |City { city }| async move { Ok::<_, Failure>(format!("sunny in {city}")) };
    let refund = |Refund { cents }| async move { Ok::<_, Failure>(format!("{cents} cents are paid back")) };
    Agent::new("ready")
        .model("scripted")
        .system("Be brief.")
        .tool(Tool::new("weather", "Tells the weather in a city", weather).pure())
        .tool(Tool::new("refund", "Pays money back", refund).at_most_once().needs_approval())
        .converse()
}

/// One that lets another one work.
fn boss() -> Agent {
    Agent::new("boss").model("scripted").tool(Tool::agent("desk", "Does what customers want", "ready")).converse()
}

/// One that is stopped before it can tell what its tool has said.
fn brief() -> Agent {
    let weather = |City { city }| async move { Ok::<_, Failure>(format!("sunny in {city}")) };
    Agent::new("brief").model("scripted").tool(Tool::new("weather", "Tells the weather", weather).pure()).max_turns(1).converse()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:7766".to_owned());
    let pace = Duration::from_millis(arguments.next().map_or(Ok(0), |pace| pace.parse())?);
    let weather = |_: Value| async { Ok::<_, Failure>("sunny".to_owned()) };
    let builder = Onward::connect(&url).agent("support", support).task("model", model).task("weather", weather).dep(pace);
    let scripted = ScriptedModel::start().await?;
    let provider = Provider::openai(&format!("{}/v1", scripted.url()), None)?;
    let builder = builder.model("scripted", &provider).register(ready()).register(boss()).register(brief());
    let onward = builder.start().await?;
    println!("ready");
    tokio::signal::ctrl_c().await?;
    onward.shutdown().await;
    Ok(())
}
