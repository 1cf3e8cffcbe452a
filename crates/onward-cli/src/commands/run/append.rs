//! `onward run append`: appends an entry to the conversation of an agent.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::Name;
use onward_core::api::{AppendEntry, AppendEntryRequest};
use onward_runtime::RuntimeError;

use super::payload::read_payload;
use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::EntryAnswer;
use crate::output::{escape, print, print_json};

#[derive(Debug, Args)]
pub struct AppendArgs {
    /// Run id
    id: String,
    /// Role of the entry: system, user, assistant, tool or any other name
    role: String,
    /// Content: JSON, @FILE, or - for stdin
    content: String,
    /// Idempotency key: a repeated key returns the first entry
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

pub async fn execute(args: AppendArgs, global: &Global) -> Result<ExitCode> {
    let role = Name::new(&args.role).map_err(RuntimeError::from)?;
    let content = read_payload(&args.content)?;
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let entry = AppendEntry { role, content, idempotency_key: args.idempotency_key };
    let appended = connection.append_entry(AppendEntryRequest { run: key.clone(), entry, is_looked_up: false }).await?;
    if global.json {
        print_json(&EntryAnswer::new(&key.id, &appended))?;
        return Ok(ExitCode::SUCCESS);
    }
    let id = escape::text(key.id.as_str());
    print(&match (appended.already_existed, appended.entry) {
        (true, Some(entry)) => format!("{id}: entry already exists: {entry}"),
        (true, None) => format!("{id}: entry already accepted; it joins the conversation when the next turn starts"),
        (false, _) => format!("{id}: entry accepted; it joins the conversation when the next turn starts"),
    })?;
    Ok(ExitCode::SUCCESS)
}
