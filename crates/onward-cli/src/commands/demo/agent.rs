//! `onward demo agent`: a chat with an agent and a scripted model, all in this process.
//!
//! Kill it at any time and start it again: the conversation is in the directory and continues there.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use onward::agent::{Agent, Provider, Tool};
use onward::{Failure, Onward, TaskCtx};
use onward_core::{ErrorCode, Name};
use onward_llm_scripted::{Rule, ScriptedModel, ScriptedReply, When};
use onward_runtime::RuntimeError;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::args::Global;
use crate::commands::chat::{Chat, Screen, leave};
use crate::connection::Connection;
use crate::directory::{own_command, shell_path};
use crate::output::print_stderr;

const DIRECTORY: &str = "onward-demo-agent";
const KIND: &str = "shop";
const MODEL: &str = "scripted";

/// Delay between streamed chunks: slow enough to kill the process in the middle of a word.
const CHUNK_DELAY_MS: u64 = 80;

/// Duration of the `stock` tool.
const WALK: Duration = Duration::from_millis(1_500);

/// Number of entries to show after a restart.
const ENTRIES: usize = 10;

const STORY: &str = "Once upon a time there was a bicycle shop whose only clerk was killed in the middle of every sentence. \
    The customers did not mind. Whenever a new clerk came in, he read the book on the counter, in which everything stood that was \
    ever said and done, and went on with the very next word. Nothing was sold twice, and nothing was forgotten.";

pub async fn execute(global: &Global) -> Result<()> {
    let directory = global.named_directory().unwrap_or_else(|| PathBuf::from(DIRECTORY));
    let model = ScriptedModel::start().await.context("cannot start the scripted model")?;
    script(&model);
    let provider = Provider::openai(&format!("{}/v1", model.url()), None)?;
    let worker = Onward::embedded(&directory).model(MODEL, &provider).register(shop()).start().await?;
    let runtime = worker.runtime().cloned().context("the directory is not here")?;
    let connection = Connection::of(runtime, global)?;
    let run = open_run(&connection).await?;
    introduce(&directory);
    let again = format!("{} demo agent --data {}", own_command(), shell_path(&directory));
    let (agent, run) = (Some(Name::new(KIND).map_err(RuntimeError::from)?), Some(run));
    let chat = Chat {
        connection,
        agent,
        run,
        entries: ENTRIES,
        by: None,
        waits: false,
        tools_of: None,
        again,
        is_named: false,
        is_alone: true,
    };
    let code = chat.hold(Screen::new(global.json)).await;
    leave(worker).await;
    code
}

fn introduce(directory: &std::path::Path) {
    print_stderr("A bicycle shop with a scripted model; no API key is needed. It has two tools:");
    print_stderr("`stock` checks the shelf, `order` needs your approval.");
    print_stderr(&format!("The conversation is stored in {}. Try:", shell_path(directory)));
    print_stderr("  I need a bell");
    print_stderr("  tell me a story");
    print_stderr(&format!("While it answers, run `kill -9 {}` in another terminal, then start it again.", std::process::id()));
    print_stderr("");
}

/// Returns the id of the open conversation, or of the next one.
async fn open_run(connection: &Connection) -> Result<String> {
    let mut number = 1;
    loop {
        let id = format!("demo-{number}");
        match connection.read_head(connection.key(&id)?).await {
            Ok(head) if head.status.is_closed() => number += 1,
            Err(error) if error.code() != ErrorCode::RunNotFound => return Err(error.into()),
            Ok(_) | Err(_) => return Ok(id),
        }
    }
}

fn script(model: &ScriptedModel) {
    let slowly = |answer: ScriptedReply| ScriptedReply { chunk_delay_ms: CHUNK_DELAY_MS, ..answer };
    let rule = |words: Option<&str>, after_tools: bool, answer: ScriptedReply| {
        let when = When { user_says: words.map(str::to_owned), after_tools: Some(after_tools), ..When::default() };
        model.rule(Rule { when, answer: slowly(answer), times: None });
    };
    let sells = |item: &str| {
        let arguments = format!("{{\"item\": \"{item}\", \"count\": 1}}");
        let text = format!("Let me look at the shelf, and write the order for a {item}.");
        ScriptedReply::text(&text).and_call("stock", &format!("{{\"item\": \"{item}\"}}")).and_call("order", &arguments)
    };
    for item in ["bell", "lamp", "saddle"] {
        rule(Some(item), false, sells(item));
    }
    rule(Some("story"), false, ScriptedReply::text(STORY));
    rule(None, false, ScriptedReply::text("I sell bells, lamps and saddles. Ask for one, or for a story."));
}

fn shop() -> Agent {
    let stock = Tool::new("stock", "Counts an item on the shelf", stock).pure();
    let order = Tool::new("order", "Orders an item, which costs money", order).keyed().needs_approval();
    Agent::new(KIND).model(MODEL).system("You sell parts of bicycles.").tool(stock).tool(order).converse()
}

#[derive(Deserialize, JsonSchema)]
struct Item {
    item: String,
}

async fn stock(Item { item }: Item) -> Result<String, Failure> {
    tokio::time::sleep(WALK).await;
    Ok(format!("{} of {item}, shelf 7", item.len() + 3))
}

#[derive(Deserialize, JsonSchema)]
struct Ordered {
    item: String,
    count: u32,
}

async fn order(ctx: TaskCtx, Ordered { item, count }: Ordered) -> Result<String, Failure> {
    // The key is the same for every attempt, so a repeated attempt places no second order.
    let number: String = ctx.idempotency_key().chars().take(6).collect();
    Ok(format!("{count} of {item} ordered, number {number}"))
}
