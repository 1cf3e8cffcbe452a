//! `onward queue …`: lists task queues, lists and retries quarantined tasks, lists and reopens rate-limited keys.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use onward_core::Timestamp;
use onward_core::api::{QueueInfo, TaskQuery, TaskRequest, TasksReply};
use onward_runtime::CallRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::args::Global;
use crate::connection::{Connection, Endpoint};
use crate::error::Mistake;
use crate::output::document::{OpenTasks, Partly, Queues};
use crate::output::{TextTable, escape, print, print_json, say, say_missing, time};

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List queues with their tasks, the oldest task and the number of workers
    #[command(visible_alias = "ls")]
    List,
    /// List quarantined tasks: those that lost too many workers
    Quarantined,
    /// Put a quarantined task back on its queue
    Retry {
        /// Task id, as shown by `onward queue quarantined`
        id: String,
    },
    /// List kinds of tasks whose provider key is rate-limited
    Limits,
    /// Release the tasks of a rate-limited kind now
    Reopen {
        /// Kind of the tasks, as shown by `onward queue limits`: `llm.NAME` for a model
        kind: String,
    },
}

#[derive(Deserialize)]
struct RateLimitLine {
    kind: String,
    until: Timestamp,
}

#[derive(Serialize)]
struct Retried<'a> {
    retried: &'a str,
}

pub async fn execute(command: QueueCommand, global: &Global) -> Result<ExitCode> {
    match command {
        QueueCommand::List => list(global).await?,
        QueueCommand::Quarantined => quarantined(global).await?,
        QueueCommand::Retry { id } => {
            let connection = Connection::to_write(global)?;
            connection.retry_task(TaskRequest { namespace: connection.namespace.clone(), task: id.clone() }).await?;
            if global.json { print_json(&Retried { retried: &id })? } else { say(&format!("{id} is queued again")) }
        }
        QueueCommand::Limits => limits(global).await?,
        QueueCommand::Reopen { kind } => reopen(&kind, global).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn limits(global: &Global) -> Result<()> {
    let found = http(global, "GET", "/v1/rate-limits", None).await?;
    if global.json {
        return print_json(&found);
    }
    let limits: Vec<RateLimitLine> = serde_json::from_value(found["rate_limits"].clone())?;
    if limits.is_empty() {
        say("no kind is rate-limited");
        return Ok(());
    }
    let (mut table, now) = (TextTable::new(&["KIND", "UNTIL"]), time::now());
    for RateLimitLine { kind, until } in limits {
        table.row(vec![kind.into(), time::moment(until, now).into()]);
    }
    Ok(print(&table.take())?)
}

async fn reopen(kind: &str, global: &Global) -> Result<()> {
    let body = serde_json::json!({"kind": kind});
    let done = http(global, "POST", "/v1/rate-limits/reopen", Some(body)).await?;
    if global.json {
        return print_json(&done);
    }
    let is_done = done["reopened"] == true;
    say(&format!("{} {}", escape::text(kind), if is_done { "is released" } else { "was not rate-limited" }));
    Ok(())
}

/// Sends a request to the server. Rate limits are in the memory of servers, so a directory has none.
async fn http(global: &Global, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
    let Endpoint::Server { url, key } = Endpoint::of(global)? else {
        let hint = "set `--server URL` or ONWARD_URL";
        return Err(Mistake::usage("usage", "rate limits are in the memory of a server", hint).into());
    };
    let http = onward::connect_http(&url, &global.namespace()?, key.as_deref())?;
    let answer = http.ask(method, path, body.map(|body| body.to_string())).await?;
    if answer.status >= 400 {
        return Err(answer.problem().await.into());
    }
    Ok(serde_json::from_str(&answer.text().await?)?)
}

async fn list(global: &Global) -> Result<()> {
    let connection = Connection::to_read(global)?;
    let queues = connection.list_queues(connection.namespace.clone()).await?.queues;
    if global.json {
        print_json(&Queues::from(&*queues))
    } else if queues.is_empty() {
        say("no queues: no tasks and no workers for tasks");
        Ok(())
    } else {
        Ok(print(&tell(&queues))?)
    }
}

fn tell(queues: &[QueueInfo]) -> String {
    let mut table = TextTable::new(&["QUEUE", "KIND", "QUEUED", "RUNNING", "QUARANTINED", "OLDEST", "WORKERS"]);
    let now = time::now();
    for QueueInfo { count, workers } in queues {
        table.row(vec![
            count.queue.as_ref().map_or("default".to_owned(), ToString::to_string).into(),
            count.kind.to_string().into(),
            count.queued.to_string().into(),
            count.running.to_string().into(),
            count.quarantined.to_string().into(),
            count.oldest_at.map_or("-".to_owned(), |at| time::ago(at, now)).into(),
            workers.to_string().into(),
        ]);
    }
    table.take()
}

async fn quarantined(global: &Global) -> Result<()> {
    let connection = Connection::to_read(global)?;
    let query = TaskQuery { namespace: connection.namespace.clone(), limit: 1_000, partly: true, run: None };
    let TasksReply { tasks, missing } = connection.list_quarantined(query).await?;
    say_missing(&missing);
    if global.json {
        return print_json(&Partly::new(OpenTasks::from(&*tasks), missing));
    }
    if tasks.is_empty() {
        say("no quarantined tasks");
        return Ok(());
    }
    let mut table = TextTable::new(&["TASK", "KIND", "QUEUE", "LOST WORKERS"]);
    for task in &tasks {
        table.row(vec![
            CallRef::from(task.id.clone()).to_string().into(),
            task.kind.to_string().into(),
            task.options.queue.as_ref().map_or("default".to_owned(), ToString::to_string).into(),
            task.lost_workers.to_string().into(),
        ]);
    }
    Ok(print(&table.take())?)
}
