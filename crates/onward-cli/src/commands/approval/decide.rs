//! `onward approval decide`: one answer, once.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_runtime::Decide;

use crate::args::Global;
use crate::commands::run::answer;
use crate::connection::Site;
use crate::new_id;

#[derive(Debug, Args)]
pub struct DecideArgs {
    /// The question, as `onward approval list` shows it
    id: String,
    /// Say yes
    #[arg(long, conflicts_with = "reject", required_unless_present = "reject")]
    approve: bool,
    /// Say no
    #[arg(long)]
    reject: bool,
    /// What the run is told besides
    #[arg(long, value_name = "TEXT")]
    feedback: Option<String>,
    /// Who decides
    #[arg(long, value_name = "NAME")]
    by: Option<String>,
    /// The same id again is the same decision
    #[arg(long, value_name = "ID")]
    decision_id: Option<String>,
}

pub async fn execute(args: DecideArgs, global: &Global) -> Result<ExitCode> {
    let site = Site::to_write(global)?;
    let call = site.call(&args.id)?;
    let decision_id = args.decision_id.unwrap_or_else(new_id::unique);
    let decide = Decide { approved: args.approve, feedback: args.feedback, decided_by: args.by, decision_id };
    let appended = site.decide_approval(call.clone(), decide).await?;
    answer(global, &call.run, if args.approve { "approved" } else { "rejected" }, &appended)
}
