//! `onward approval list`: open approvals, oldest first.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::{WaitQuery, WaitsReply};
use onward_core::run::Wait;
use onward_runtime::CallRef;

use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::{Approval, Approvals, Partly};
use crate::output::{TextTable, print, print_json, say, say_missing, time};

#[derive(Debug, Args)]
pub struct ApprovalListArgs {
    /// Show only approvals of this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,
    /// Show only approvals of this run and of all its descendants
    #[arg(long, value_name = "ID", conflicts_with = "run")]
    below: Option<String>,
    /// Maximum number of approvals
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
}

pub async fn execute(args: ApprovalListArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_read(global)?;
    let below = args.below.is_some();
    let run = args.below.or(args.run).as_deref().map(|id| connection.key(id)).transpose()?;
    if let Some(key) = &run {
        connection.read_head(key.clone()).await?; // an unknown run is an error, not an empty list
    }
    let query = WaitQuery { namespace: connection.namespace.clone(), run, below, limit: args.limit as usize, partly: true };
    let WaitsReply { waits, missing } = connection.list_approvals(query).await?;
    if global.json {
        let approvals = Approvals { approvals: waits.iter().map(Approval::from).collect() };
        print_json(&Partly::new(approvals, missing.clone()))?;
    } else if waits.is_empty() {
        say("no open approvals");
    } else {
        print(&tell(&waits))?;
    }
    if !global.json && waits.len() == args.limit as usize {
        say("the list may be incomplete; raise --limit");
    }
    say_missing(&missing);
    Ok(ExitCode::SUCCESS)
}

fn tell(waits: &[Wait]) -> String {
    let now = time::now();
    let mut table = TextTable::new(&["ID", "SINCE", "DEADLINE", "DECIDERS", "QUESTION"]);
    for wait in waits {
        let mut deciders = if wait.deciders.is_empty() { "any".to_owned() } else { wait.deciders.join(", ") };
        if wait.not_by_requester {
            deciders.push_str(", not the requester");
        }
        table.row(vec![
            CallRef::from(wait).to_string().into(),
            time::ago(wait.requested_at, now).into(),
            wait.deadline.map(|deadline| time::until(deadline, now)).unwrap_or_default().into(),
            deciders.into(),
            wait.title.as_str().into(),
        ]);
    }
    table.take()
}
