//! `onward key …`: manages the API keys of a server. Edits the key file; a running server applies changes.
//!
//! Must never print a secret except once, on stdout, when its key is created.

mod create;
mod document;
mod list;
mod revoke;
mod rotate;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_server::keys::{KEYS_FILE, KeyFile};

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Create a key and print it once
    Create(create::CreateArgs),
    /// List keys without their secrets
    #[command(visible_alias = "ls")]
    List(list::KeyListArgs),
    /// Revoke a key; a running server applies this within seconds
    Revoke(revoke::RevokeArgs),
    /// Create a successor of a key; the old key stays valid for a while
    Rotate(rotate::RotateArgs),
}

#[derive(Debug, Args)]
pub struct KeysArgs {
    /// Key file [default: the setting server.keys, or onward.keys.json in the data directory]
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,
}

impl KeysArgs {
    fn file(&self, global: &Global) -> KeyFile {
        let named = self.keys.clone().or_else(|| global.config.text("server.keys").map(PathBuf::from));
        KeyFile::at(named.unwrap_or_else(|| global.directory().join(KEYS_FILE)))
    }
}

pub fn execute(command: KeyCommand, global: &Global) -> Result<ExitCode> {
    global.without_server("key")?;
    match command {
        KeyCommand::Create(args) => create::execute(args, global),
        KeyCommand::List(args) => list::execute(&args, global),
        KeyCommand::Revoke(args) => revoke::execute(&args, global),
        KeyCommand::Rotate(args) => rotate::execute(&args, global),
    }
}
