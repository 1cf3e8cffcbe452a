//! `onward webhook …`: manages webhooks. Edits the webhook file; a running server applies changes.
//!
//! Must never print a secret except once, on stdout, when it is created.

mod create;
mod delete;
mod document;
mod list;
mod rotate;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use onward_server::webhooks::{Secret, WEBHOOKS_FILE, WebhookFile};

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Create a webhook and print its secret once
    Create(Box<create::CreateArgs>),
    /// List webhooks without their secrets
    #[command(visible_alias = "ls")]
    List(list::WebhookListArgs),
    /// Replace the secret of a webhook; the old one stays valid for a while
    Rotate(rotate::RotateArgs),
    /// Delete a webhook; a running server applies this within seconds
    Delete(delete::DeleteArgs),
}

#[derive(Debug, Args)]
pub struct WebhookArgs {
    /// Webhook file [default: onward.webhooks.json in the data directory]
    #[arg(long, value_name = "FILE")]
    webhooks: Option<PathBuf>,
}

impl WebhookArgs {
    fn file(&self, global: &Global) -> WebhookFile {
        WebhookFile::at(self.webhooks.clone().unwrap_or_else(|| global.directory().join(WEBHOOKS_FILE)))
    }
}

#[derive(Debug, Args)]
pub struct SecretArgs {
    /// File with a secret chosen by the sender; - for stdin
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretArgs {
    /// Reads the secret from a file or stdin. It is not an argument, because other users can see the command line.
    fn read(&self) -> Result<Option<Secret>> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).context("cannot read the secret from stdin")?;
        } else {
            text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        }
        Ok(Some(Secret::new(text.trim())))
    }
}

pub fn execute(command: WebhookCommand, global: &Global) -> Result<ExitCode> {
    global.without_server("webhook")?;
    match command {
        WebhookCommand::Create(args) => create::execute(*args, global),
        WebhookCommand::List(args) => list::execute(&args, global),
        WebhookCommand::Rotate(args) => rotate::execute(&args, global),
        WebhookCommand::Delete(args) => delete::execute(&args, global),
    }
}
