//! `onward run append`: something for the conversation of an agent.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::Name;
use onward_runtime::{AppendEntry, RuntimeError};

use super::payload::read_payload;
use crate::args::Global;
use crate::connection::Site;
use crate::output::document::EntryAnswer;
use crate::output::{escape, print, print_json};

#[derive(Debug, Args)]
pub struct AppendArgs {
    /// The run
    id: String,
    /// Whose entry it is: system, user, assistant, tool or any other name
    role: String,
    /// JSON, @FILE, or - for stdin
    content: String,
    /// The same key again is the same entry
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn execute(args: AppendArgs, global: &Global) -> Result<ExitCode> {
    let role = Name::new(&args.role).map_err(RuntimeError::from)?;
    let content = read_payload(&args.content)?;
    let site = Site::to_write(global)?;
    let key = site.key(&args.id)?;
    let append = AppendEntry { role, content, idempotency_key: args.idempotency_key };
    let appended = site.append_entry(key.clone(), append).await?;
    if global.json {
        print_json(&EntryAnswer::new(&key.id, &appended))?;
        return Ok(ExitCode::SUCCESS);
    }
    let id = escape::text(key.id.as_str());
    print(&match (appended.already_existed, appended.entry) {
        (true, Some(entry)) => format!("{id}: the entry was there before: {entry}"),
        (true, None) => format!("{id}: the entry was appended before and is not taken in yet"),
        (false, _) => format!("{id}: entry appended; it is taken in when the next turn begins"),
    })?;
    Ok(ExitCode::SUCCESS)
}
