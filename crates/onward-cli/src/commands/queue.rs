//! `onward queue …`: lists task queues, and lists and retries quarantined tasks.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use onward_core::api::{QueueInfo, TaskQuery, TaskRequest, TasksReply};
use onward_runtime::CallRef;
use serde::Serialize;

use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::{OpenTasks, Partly, Queues};
use crate::output::{TextTable, print, print_json, say, say_missing, time};

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
    }
    Ok(ExitCode::SUCCESS)
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
