//! `onward run deleted`: runs that were deleted on request, with their reasons.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::{DeletedQuery, DeletedReply};

use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::{DeletedRuns, Partly};
use crate::output::{TextTable, print, print_json, say, say_missing, time};

#[derive(Debug, Args)]
pub struct DeletedArgs {
    /// Show only runs with this id
    id: Option<String>,
    /// Maximum number of runs
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

pub async fn execute(args: DeletedArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_read(global)?;
    let run = args.id.as_deref().map(|id| connection.key(id)).transpose()?;
    let query = DeletedQuery { namespace: connection.namespace.clone(), run, limit: args.limit as usize, partly: true };
    let DeletedReply { runs, missing } = connection.list_deleted(query).await?;
    say_missing(&missing);
    if global.json {
        print_json(&Partly::new(DeletedRuns::from(&*runs), missing))?;
        return Ok(ExitCode::SUCCESS);
    }
    if runs.is_empty() {
        say("no deleted runs");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["ID", "KIND", "DELETED", "REASON"]);
    for run in &runs {
        let deleted = time::ago(run.deleted_at, time::now());
        table.row(vec![run.key.id.as_str().into(), run.kind.as_str().into(), deleted.into(), run.reason.as_str().into()]);
    }
    print(&table.take())?;
    Ok(ExitCode::SUCCESS)
}
