//! `onward key rotate`: creates a successor of a key.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::{KeysArgs, document};
use crate::args::Global;
use crate::output::{say, time};
use crate::span;

#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Key id, as shown by `onward key list`
    id: String,
    /// Remaining lifetime of the old key, like 24h; 0s ends it at once
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = span::parse)]
    overlap: Duration,
    #[command(flatten)]
    keys: KeysArgs,
}

pub fn execute(args: &RotateArgs, global: &Global) -> Result<ExitCode> {
    let now = time::now();
    let (made, old) = args.keys.file(global).rotate(&args.id, args.overlap, now)?;
    document::show_made(&made, global.json)?;
    if let Some(at) = old.expires_at.filter(|_| !global.json) {
        say(&format!("key {} expires {}", old.id, time::until(at, now)));
    }
    Ok(ExitCode::SUCCESS)
}
