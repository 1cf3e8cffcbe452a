//! `onward approval …`: questions that wait for a person.

mod decide;
mod list;

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum ApprovalCommand {
    /// List open questions, oldest first
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Answer a question, once
    Decide(decide::DecideArgs),
}

pub async fn execute(command: ApprovalCommand, global: &Global) -> Result<ExitCode> {
    match command {
        ApprovalCommand::List(args) => list::execute(args, global).await,
        ApprovalCommand::Decide(args) => decide::execute(args, global).await,
    }
}
