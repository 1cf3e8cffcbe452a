//! `onward key revoke`: ends a key at once.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::KeysArgs;
use super::document::KeyDocument;
use crate::args::Global;
use crate::output::{print, print_json, time};

#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Key id, as shown by `onward key list`
    id: String,
    #[command(flatten)]
    keys: KeysArgs,
}

pub fn execute(args: &RevokeArgs, global: &Global) -> Result<ExitCode> {
    let file = args.keys.file(global);
    let entry = file.revoke(&args.id, time::now())?;
    if global.json {
        print_json(&KeyDocument::new(&entry, file.last_used().get(&entry.id).copied(), time::now()))?;
    } else {
        print(&format!("{}: revoked", entry.id))?;
    }
    Ok(ExitCode::SUCCESS)
}
