//! `onward webhook delete`: deletes a webhook.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::Name;

use super::WebhookArgs;
use crate::args::Global;
use crate::output::{escape, print, print_json};

#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// Webhook name
    #[arg(value_parser = |text: &str| Name::new(text))]
    name: Name,
    #[command(flatten)]
    webhooks: WebhookArgs,
}

pub fn execute(args: &DeleteArgs, global: &Global) -> Result<ExitCode> {
    args.webhooks.file(global).delete(&args.name)?;
    if global.json {
        print_json(&serde_json::json!({"deleted": args.name}))?;
    } else {
        print(&format!("{}: deleted", escape::text(args.name.as_str())))?;
    }
    Ok(ExitCode::SUCCESS)
}
