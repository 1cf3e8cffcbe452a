//! `onward run cancel`, `terminate`, `pause` and `resume`: each appends one input.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::RunKey;
use onward_core::api::{Appended, ReasonRequest, ResumeRequest};

use crate::args::Global;
use crate::budget;
use crate::connection::Connection;
use crate::output::document::Receipt;
use crate::output::{escape, print, print_json};

#[derive(Debug, Args)]
pub struct ReasonArgs {
    /// Run id
    id: String,
    /// Reason, recorded in the log
    #[arg(long, default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Run id
    id: String,
    /// New total budget: tokens=N, cost=DOLLARS, turns=N or seconds=N (repeatable)
    #[arg(long, value_name = "LIMIT")]
    budget: Vec<String>,
}

pub async fn cancel(args: ReasonArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let appended = connection.cancel_run(ReasonRequest { run: key.clone(), reason: args.reason }).await?;
    answer(global, &key, "cancel requested", &appended)
}

pub async fn terminate(args: ReasonArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let appended = connection.terminate_run(ReasonRequest { run: key.clone(), reason: args.reason }).await?;
    answer(global, &key, "terminated", &appended)
}

pub async fn pause(args: ReasonArgs, global: &Global) -> Result<ExitCode> {
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let appended = connection.pause_run(ReasonRequest { run: key.clone(), reason: args.reason }).await?;
    answer(global, &key, "paused", &appended)
}

pub async fn resume(args: ResumeArgs, global: &Global) -> Result<ExitCode> {
    let budget = budget::parse(&args.budget)?;
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let appended = connection.resume_run(ResumeRequest { run: key.clone(), budget }).await?;
    answer(global, &key, "resumed", &appended)
}

/// Prints the appended input: its index, whether it is a repeat, and whether the run continues.
pub fn answer(global: &Global, key: &RunKey, what: &str, appended: &Appended) -> Result<ExitCode> {
    if global.json {
        print_json(&Receipt::new(&key.id, appended))?;
        return Ok(ExitCode::SUCCESS);
    }
    let note = match (appended.repeated, appended.woke) {
        (true, _) => " by an earlier request with the same id",
        (false, true) => "; the run continues when a worker is available",
        (false, false) => "",
    };
    print(&format!("{}: {what} at event {}{note}", escape::text(key.id.as_str()), appended.index))?;
    Ok(ExitCode::SUCCESS)
}
