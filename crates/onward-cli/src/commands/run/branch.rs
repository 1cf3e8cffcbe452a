//! `onward run branch`: go on from an earlier entry of a conversation.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::{Name, Payload};
use onward_runtime::{BranchEntry, BranchRun, RuntimeError};

use super::act::answer;
use crate::args::Global;
use crate::connection::Site;
use crate::directory::shell_word;
use crate::error::Mistake;

/// What stands for the beginning of a conversation.
const START: &str = "start";

#[derive(Debug, Args)]
pub struct BranchArgs {
    /// The run
    id: String,
    /// The entry behind which the conversation goes on, or `start`
    entry: String,
    /// What is said there; to edit an entry, name its parent
    text: Option<String>,
    /// Who says it
    #[arg(long, default_value = "user")]
    role: String,
    /// The same key again is the same branch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn execute(args: BranchArgs, global: &Global) -> Result<ExitCode> {
    let from = match args.entry.as_str() {
        START => None,
        text => {
            let message = format!("`{}` is no id of an entry", text.chars().take(100).collect::<String>());
            let hint = format!("`onward run entries {}` shows the ids; `{START}` is the beginning", shell_word(&args.id));
            Some(text.parse().map_err(|_| Mistake::usage("usage", message, &hint))?)
        }
    };
    let role = Name::new(&args.role).map_err(RuntimeError::from)?;
    let content = args.text.as_ref().map(Payload::json).transpose()?;
    let entry = content.map(|content| BranchEntry { role, content });
    let site = Site::to_write(global)?;
    let key = site.key(&args.id)?;
    let appended = site.branch_run(key.clone(), BranchRun { from, entry, idempotency_key: args.idempotency_key }).await?;
    answer(global, &key, "branch requested", &appended)
}
