//! `onward queue …`: lists task queues and changes their settings, lists and retries quarantined tasks, lists and reopens
//! rate-limited keys.

pub mod settings;

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{QueueInfo, QueuesReply, TaskQuery, TaskRequest, TasksReply};
use onward_core::{Name, Timestamp};
use onward_runtime::CallRef;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::args::Global;
use crate::connection::{Connection, Endpoint};
use crate::output::document::{OpenTasks, Partly, Queues};
use crate::output::{TextTable, cells, escape, print_json, print_missing_databases, print_stderr, time};

#[derive(Debug, Subcommand)]
pub enum QueueCommand {
    /// List queues with their tasks, the oldest task and the number of workers
    #[command(visible_alias = "ls")]
    List,
    /// Show a queue with its settings and the keys whose tasks wait
    Show {
        /// Name of the queue; `default` is the default queue
        queue: String,
    },
    /// Change settings of a queue; others stay as they are
    Set(SetArgs),
    /// Stop handing out tasks of a queue; running ones continue
    Pause {
        /// Name of the queue; `default` is the default queue
        queue: String,
    },
    /// Hand out tasks of a paused queue again
    Resume {
        /// Name of the queue; `default` is the default queue
        queue: String,
    },
    /// Remove all settings of a queue
    Reset {
        /// Name of the queue; `default` is the default queue
        queue: String,
    },
    /// List quarantined tasks: those that lost too many workers
    Quarantined,
    /// Put a quarantined task back on its queue
    Retry {
        /// Task id, as shown by `onward queue quarantined`
        id: String,
    },
    /// List kinds of tasks whose provider key is rate-limited
    Limits,
    /// Release all waiting tasks of a rate-limited kind now
    Reopen {
        /// Kind of the tasks, as shown by `onward queue limits`: `llm.NAME` for a model
        kind: String,
    },
}

/// Settings to change. A limit of `none` is removed.
#[derive(Debug, Args)]
pub struct SetArgs {
    /// Name of the queue; `default` is the default queue
    pub queue: String,
    /// Maximum number of its tasks that run at a time, or `none`
    #[arg(long, value_name = "N")]
    pub concurrency: Option<String>,
    /// Maximum number of tasks of one key that run at a time, or `none`
    #[arg(long, value_name = "N")]
    pub key_concurrency: Option<String>,
    /// Starts in a period, as `100/1m`, or `none`
    #[arg(long, value_name = "N/PERIOD")]
    pub rate: Option<String>,
    /// Starts of one key in a period, as `100/1m`, or `none`
    #[arg(long, value_name = "N/PERIOD")]
    pub key_rate: Option<String>,
    /// Number of waiting tasks at which it takes no further standalone task, or `none`; 0 drains the queue
    #[arg(long, value_name = "N")]
    pub depth: Option<String>,
    /// Weight of a key, as `KEY=N`; 1 removes it. May be repeated
    #[arg(long, value_name = "KEY=N")]
    pub weight: Vec<String>,
}

#[derive(Deserialize)]
struct RateLimitLine {
    kind: String,
    until: Timestamp,
}

pub async fn execute(command: QueueCommand, global: &Global) -> Result<()> {
    match command {
        QueueCommand::List => list(global).await,
        QueueCommand::Show { queue } => settings::show(&queue, global).await,
        QueueCommand::Set(args) => settings::set(args, global).await,
        QueueCommand::Pause { queue } => settings::pause(&queue, true, global).await,
        QueueCommand::Resume { queue } => settings::pause(&queue, false, global).await,
        QueueCommand::Reset { queue } => settings::reset(&queue, global).await,
        QueueCommand::Quarantined => quarantined(global).await,
        QueueCommand::Retry { id } => {
            let connection = Connection::to_write(global).await?;
            connection.retry_task(TaskRequest { namespace: connection.namespace.clone(), task: id.clone() }).await?;
            confirm(global, &json!({"retried": id}), &format!("{id} is queued again"))
        }
        QueueCommand::Limits => {
            let found = http(global, "GET", "/v1/rate-limits", None).await?;
            let (mut table, now) = (TextTable::new(&["KIND", "UNTIL"]), time::now());
            for RateLimitLine { kind, until } in serde_json::from_value::<Vec<_>>(found["rate_limits"].clone())? {
                table.row(cells![kind, time::moment(until, now)]);
            }
            global.show_table(&found, table, "no kind is rate-limited")
        }
        QueueCommand::Reopen { kind } => {
            let done = http(global, "POST", "/v1/rate-limits/reopen", Some(json!({"kind": kind}))).await?;
            let outcome = match done["reopened"] == true {
                true => "is released; waiting and refused calls continue",
                false => "was not rate-limited",
            };
            confirm(global, &done, &format!("{} {outcome}", escape::text(&kind)))
        }
    }
}

/// Prints the document of an action with `--json`, otherwise a line on stderr.
fn confirm(global: &Global, document: &Value, text: &str) -> Result<()> {
    if global.json {
        return print_json(document);
    }
    print_stderr(text);
    Ok(())
}

/// Sends a request to the server. Rate limits are in the memory of servers, so a directory has none.
async fn http(global: &Global, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
    let http = Endpoint::http(global, "rate limits are in the memory of a server")?;
    let answer = http.request(method, path, body.map(|body| body.to_string())).await?;
    if answer.status >= 400 {
        return Err(answer.problem().await.into());
    }
    Ok(serde_json::from_str(&answer.text().await?)?)
}

/// Returns the name of a queue.
pub fn queue_name(queue: &Option<Name>) -> &str {
    queue.as_ref().map_or("default", |queue| queue.as_str())
}

async fn list(global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let QueuesReply { queues, settings } = connection.list_queues(connection.namespace.clone()).await?;
    let mut table = TextTable::new(&["QUEUE", "KIND", "QUEUED", "RUNNING", "QUARANTINED", "OLDEST", "WORKERS"]);
    let now = time::now();
    for QueueInfo { count, workers } in &queues {
        let (queue, oldest) = (queue_name(&count.queue), count.oldest_at.map_or("-".to_owned(), |at| time::ago(at, now)));
        table.row(cells![queue, count.kind, count.queued, count.running, count.quarantined, oldest, workers]);
    }
    global.show_table(&Queues::from((&*queues, &*settings)), table, "no queues: no tasks and no workers for tasks")
}

async fn quarantined(global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let query = TaskQuery { namespace: connection.namespace.clone(), limit: 1_000, partly: true, run: None };
    let TasksReply { tasks, missing } = connection.list_quarantined(query).await?;
    print_missing_databases(&missing);
    let mut table = TextTable::new(&["TASK", "KIND", "QUEUE", "LOST WORKERS"]);
    for task in &tasks {
        let queue = queue_name(&task.options.queue);
        table.row(cells![CallRef::from(task.id.clone()), task.kind, queue, task.lost_workers]);
    }
    global.show_table(&Partly::new(OpenTasks::from(&*tasks), missing), table, "no quarantined tasks")
}
