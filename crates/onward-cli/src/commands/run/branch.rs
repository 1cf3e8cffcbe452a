//! `onward run branch`: continues a conversation from an earlier entry.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::{BranchEntry, BranchRequest, BranchRun};
use onward_core::{Name, Payload};
use onward_runtime::RuntimeError;

use super::act::answer;
use crate::args::Global;
use crate::connection::Connection;
use crate::directory::shell_word;
use crate::error::Mistake;

/// Word for the start of a conversation.
const START: &str = "start";

#[derive(Debug, Args)]
pub struct BranchArgs {
    /// Run id
    id: String,
    /// Entry after which the conversation continues, or `start`
    entry: String,
    /// Text of the next entry; to replace an entry, name its parent
    text: Option<String>,
    /// Role of the next entry
    #[arg(long, default_value = "user")]
    role: String,
    /// Idempotency key: a repeated key returns the first branch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn execute(args: BranchArgs, global: &Global) -> Result<ExitCode> {
    let from = match args.entry.as_str() {
        START => None,
        text => {
            let message = format!("`{}` is not an entry id", text.chars().take(100).collect::<String>());
            let hint = format!("use an id of `onward run entries {}`, or `{START}`", shell_word(&args.id));
            Some(text.parse().map_err(|_| Mistake::usage("usage", message, &hint))?)
        }
    };
    let role = Name::new(&args.role).map_err(RuntimeError::from)?;
    let content = args.text.as_ref().map(Payload::json).transpose()?;
    let entry = content.map(|content| BranchEntry { role, content });
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let branch = BranchRun { from, entry, idempotency_key: args.idempotency_key };
    let appended = connection.branch_run(BranchRequest { run: key.clone(), branch }).await?;
    answer(global, &key, "branch requested", &appended)
}
