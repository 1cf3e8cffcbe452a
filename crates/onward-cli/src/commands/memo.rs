//! `onward memo invalidate`: recorded results that are not to be used again.

use anyhow::Result;
use clap::Subcommand;
use onward_core::api::InvalidateMemosRequest;

use crate::args::Global;
use crate::connection::Connection;
use crate::output::{print_json, print_stderr};

#[derive(Debug, Subcommand)]
pub enum MemoCommand {
    /// Invalidate memos: calls that begin later compute again
    Invalidate {
        /// Key of the memo; a key that was not given in code is KIND#HASH for a task and WORKFLOW/STEP#HASH for a step
        key: String,
        /// Invalidate all memos whose keys begin with KEY
        #[arg(long)]
        prefix: bool,
        /// Invalidate memos of the tree of this run instead of those of the namespace
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
    },
}

pub async fn execute(command: MemoCommand, global: &Global) -> Result<()> {
    let MemoCommand::Invalidate { key, prefix, run } = command;
    let connection = Connection::to_write(global).await?;
    let run = run.map(|run| connection.key(&run)).transpose()?;
    let request = InvalidateMemosRequest { namespace: connection.namespace.clone(), key, is_prefix: prefix, run };
    let reply = connection.invalidate_memos(request).await?;
    if global.json {
        return print_json(&reply);
    }
    print_stderr(&match reply.invalidated {
        0 => "no memo has such a key".to_owned(),
        1 => "1 memo is invalidated".to_owned(),
        count => format!("{count} memos are invalidated"),
    });
    Ok(())
}
