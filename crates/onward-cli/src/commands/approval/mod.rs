//! `onward approval …`: lists and decides approvals.

mod decide;
mod list;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List open approvals, oldest first
    #[command(visible_alias = "ls")]
    List(list::ApprovalListArgs),
    /// Approve or reject an approval
    Decide(decide::DecideArgs),
}

pub async fn execute(command: ApprovalCommand, global: &Global) -> Result<ExitCode> {
    match command {
        ApprovalCommand::List(args) => list::execute(args, global).await,
        ApprovalCommand::Decide(args) => decide::execute(args, global).await,
    }
}
