//! `onward key list`: lists keys without their secrets.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::KeysArgs;
use super::document::{KeyDocument, scopes};
use crate::args::Global;
use crate::output::{TextTable, print, print_json, say, time};

#[derive(Debug, Args)]
pub struct KeyListArgs {
    #[command(flatten)]
    keys: KeysArgs,
}

pub fn execute(args: &KeyListArgs, global: &Global) -> Result<ExitCode> {
    let file = args.keys.file(global);
    let entries = match file.read() {
        Err(error) if error.is_missing() => Vec::new(),
        read => read?,
    };
    let (used, now) = (file.last_used(), time::now());
    let shown: Vec<KeyDocument> =
        entries.iter().map(|entry| KeyDocument::new(entry, used.get(&entry.id).copied(), now)).collect();
    if global.json {
        print_json(&serde_json::json!({"keys": shown}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if shown.is_empty() {
        say("no keys");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["ID", "NAME", "STATE", "NAMESPACE", "CREATED", "EXPIRES", "LAST USED", "SCOPES"]);
    for key in &shown {
        table.row(vec![
            key.id.into(),
            key.name.into(),
            key.state.into(),
            key.namespace.as_str().into(),
            time::ago(key.created_at, now).into(),
            key.expires_at.map_or("never".to_owned(), |at| time::until(at, now)).into(),
            key.last_used_at.map_or("never".to_owned(), |at| time::ago(at, now)).into(),
            scopes(key.scopes).into(),
        ]);
    }
    print(&table.take())?;
    Ok(ExitCode::SUCCESS)
}
