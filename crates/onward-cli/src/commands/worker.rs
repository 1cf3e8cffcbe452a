//! `onward worker list`: connected workers with their kinds and queues.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use onward_core::api::{VersionedKind, WorkerInfo};

use crate::args::Global;
use crate::connection::Connection;
use crate::output::{TextTable, print, print_json, say, time};

#[derive(Debug, Subcommand)]
pub enum WorkerCommand {
    /// List connected workers
    #[command(visible_alias = "ls")]
    List,
}

pub async fn execute(command: WorkerCommand, global: &Global) -> Result<ExitCode> {
    let WorkerCommand::List = command;
    let connection = Connection::to_read(global)?;
    let reply = connection.list_workers(connection.namespace.clone()).await?;
    if global.json {
        print_json(&reply)?;
    } else if !reply.workers.is_empty() {
        print(&tell(&reply.workers))?;
    } else if connection.is_directory {
        say("no workers: a directory does not list them; set `--server URL`");
    } else {
        say("no workers");
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(workers: &[WorkerInfo]) -> String {
    let mut table = TextTable::new(&["ID", "RUNS", "LAST SEEN", "QUEUES", "TASKS", "KINDS"]);
    let now = time::now();
    for worker in workers {
        let queue = |queue: &Option<onward_core::Name>| queue.as_ref().map_or("default".to_owned(), ToString::to_string);
        let kind = |known: &VersionedKind| match &known.version {
            Some(version) => format!("{}@{version}", known.kind),
            None => known.kind.to_string(),
        };
        table.row(vec![
            worker.id.to_string().into(),
            format!("{}/{}", worker.runs, worker.runs_max).into(),
            worker.heard_at.map_or("embedded".to_owned(), |at| time::ago(at, now)).into(),
            worker.queues.iter().map(queue).collect::<Vec<_>>().join(",").into(),
            worker.task_kinds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",").into(),
            worker.kinds.iter().map(kind).collect::<Vec<_>>().join(",").into(),
        ]);
    }
    table.take()
}
