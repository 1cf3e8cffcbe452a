//! `onward worker list`: connected workers with their kinds and queues.

use anyhow::Result;
use clap::Subcommand;
use onward_core::api::VersionedKind;

use super::queue::queue_name;
use crate::args::Global;
use crate::connection::Connection;
use crate::output::{TextTable, cells, time};

#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// List connected workers
    #[command(visible_alias = "ls")]
    List,
}

pub async fn execute(command: WorkerCommand, global: &Global) -> Result<()> {
    let WorkerCommand::List = command;
    let connection = Connection::to_read(global).await?;
    let reply = connection.list_workers(connection.namespace.clone()).await?;
    let mut table = TextTable::new(&["ID", "RUNS", "LAST SEEN", "QUEUES", "TASKS", "KINDS"]);
    let now = time::now();
    for worker in &reply.workers {
        let kind = |known: &VersionedKind| match &known.version {
            Some(version) => format!("{}@{version}", known.kind),
            None => known.kind.to_string(),
        };
        let runs = format!("{}/{}", worker.runs, worker.runs_max);
        let last_seen = worker.last_seen_at.map_or("embedded".to_owned(), |at| time::ago(at, now));
        let queues = worker.queues.iter().map(queue_name).collect::<Vec<_>>().join(",");
        let tasks = worker.task_kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        let kinds = worker.kinds.iter().map(kind).collect::<Vec<_>>().join(",");
        table.row(cells![worker.id, runs, last_seen, queues, tasks, kinds]);
    }
    let none = match connection.is_directory {
        true => "no workers: a directory does not list them; set `--server URL`",
        false => "no workers",
    };
    global.show_table(&reply, table, none)
}
