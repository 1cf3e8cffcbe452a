//! `onward webhook rotate`: replaces the secret of a webhook.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::Name;

use super::{SecretArgs, WebhookArgs, document};
use crate::args::Global;
use crate::output::{say, time};
use crate::span;

#[derive(Debug, Args)]
pub struct RotateArgs {
    /// Webhook name
    #[arg(value_parser = |text: &str| Name::new(text))]
    name: Name,
    /// Remaining lifetime of the old secret, like 24h; 0s ends it at once
    #[arg(long, value_name = "SPAN", default_value = "24h", value_parser = span::parse)]
    overlap: Duration,
    #[command(flatten)]
    secret: SecretArgs,
    #[command(flatten)]
    webhooks: WebhookArgs,
}

pub fn execute(args: &RotateArgs, global: &Global) -> Result<ExitCode> {
    let now = time::now();
    let secret = args.secret.read()?;
    let given = secret.is_some();
    let webhook = args.webhooks.file(global).rotate(&args.name, secret, args.overlap, now)?;
    document::show_made(&webhook, given, global.json)?;
    if !global.json {
        say(&format!("the old secret expires {}", time::until(now.after(args.overlap), now)));
    }
    Ok(ExitCode::SUCCESS)
}
