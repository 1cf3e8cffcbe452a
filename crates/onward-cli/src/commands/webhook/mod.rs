//! `onward webhook …`: signed webhooks that a server takes in. Works on the hook file, beside a running server, which follows it.
//!
//! Must never print a secret but once, on stdout, when it is made.

mod create;
mod delete;
mod list;
mod rotate;
mod shown;

use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use onward_server::webhooks::{HOOKS, Secret, WebhookFile};

use crate::args::Global;

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Make a hook; its secret is printed once
    Create(Box<create::CreateArgs>),
    /// List hooks, without their secrets
    #[command(visible_alias = "ls")]
    List(list::ListArgs),
    /// Give a hook another secret, and let the one before end after a while
    Rotate(rotate::RotateArgs),
    /// Remove a hook; a running server hears of it within seconds
    Delete(delete::DeleteArgs),
}

#[derive(Debug, Args)]
pub struct WebhookArgs {
    /// The hook file; otherwise onward.hooks.json in the data directory
    #[arg(long, value_name = "FILE")]
    webhooks: Option<PathBuf>,
}

impl WebhookArgs {
    fn file(&self, global: &Global) -> WebhookFile {
        WebhookFile::at(self.webhooks.clone().unwrap_or_else(|| global.directory().join(HOOKS)))
    }
}

#[derive(Debug, Args)]
pub struct SecretArgs {
    /// A file with the secret that the sender has made up; - is stdin
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
}

impl SecretArgs {
    /// Never from the command line itself: others can see that.
    fn read(&self) -> Result<Option<Secret>> {
        let Some(path) = &self.secret_file else { return Ok(None) };
        let mut text = String::new();
        if path.as_os_str() == "-" {
            std::io::stdin().read_to_string(&mut text).context("the secret could not be read from stdin")?;
        } else {
            text = std::fs::read_to_string(path).with_context(|| format!("{} could not be read", path.display()))?;
        }
        Ok(Some(Secret::new(text.trim())))
    }
}

pub fn execute(command: WebhookCommand, global: &Global) -> Result<ExitCode> {
    global.without_server("hook")?;
    match command {
        WebhookCommand::Create(args) => create::execute(*args, global),
        WebhookCommand::List(args) => list::execute(&args, global),
        WebhookCommand::Rotate(args) => rotate::execute(&args, global),
        WebhookCommand::Delete(args) => delete::execute(&args, global),
    }
}
