//! `onward run entries`: prints the conversation of an agent.

use anyhow::Result;
use clap::Args;
use onward_core::api::{EntriesRequest, EntryPage, EntryQuery};
use onward_core::conversation::EntryCursor;
use onward_core::{Name, Payload};
use onward_runtime::RuntimeError;
use onward_store::StoreError;

use crate::args::Global;
use crate::connection::Connection;
use crate::output::document::Entries;
use crate::output::{Style, entry_text, escape, print, print_json, print_stderr, time};

#[derive(Debug, Args)]
pub struct EntriesArgs {
    /// Run id
    id: String,
    /// Maximum number of entries
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Show entries before this one, as printed with the previous page
    #[arg(long, value_name = "ENTRY")]
    before: Option<String>,
    /// Show the conversation that ends with this entry [default: the current one]
    #[arg(long, value_name = "ENTRY")]
    leaf: Option<String>,
}

pub async fn execute(args: EntriesArgs, global: &Global) -> Result<()> {
    let cursor = |text: &String| -> Result<EntryCursor, RuntimeError> {
        text.parse().map_err(|_| StoreError::CursorInvalid { cursor: text.clone() }.into())
    };
    let (leaf, before) = (args.leaf.as_ref().map(cursor).transpose()?, args.before.as_ref().map(cursor).transpose()?);
    let connection = Connection::to_read(global).await?;
    let key = connection.key(&args.id)?;
    let query = EntryQuery { leaf, before, limit: args.limit as usize };
    let page = connection.read_entries(EntriesRequest { run: key.clone(), query }).await?;
    if global.json {
        return print_json(&Entries::new(&key.id, &page));
    }
    if page.entries.is_empty() && page.pending.is_empty() {
        print_stderr("no entries");
        return Ok(());
    }
    print(&page_text(&page))?;
    if let Some(before) = page.before {
        print_stderr(&format!("for older entries: --before {before}"));
    }
    if let Some(depth) = page.depth {
        print_stderr(&format!("entries in the conversation: {depth}"));
    }
    Ok(())
}

/// Formats the entries with their roles, oldest first.
fn page_text(page: &EntryPage) -> String {
    let style = Style::stdout();
    let mut text = String::new();
    let mut add = |role: &Name, beside: String, content: &Payload| {
        let (role, beside) = (style.bold(&escape::text(role.as_str())), style.dim(&beside));
        text += &format!("{role}  {beside}\n{}", entry_text::indented(content));
    };
    for entry in &page.entries {
        let mark = if entry.is_abandoned { " (abandoned)" } else { "" };
        add(&entry.role, format!("{}  {}{mark}", entry.id, time::ago(entry.at, time::now())), &entry.content);
    }
    for entry in &page.pending {
        add(&entry.role, format!("waits for the next turn  {}", time::ago(entry.at, time::now())), &entry.content);
    }
    text
}
