//! `onward webhook list`: lists webhooks without their secrets.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::WebhookArgs;
use super::document::WebhookDocument;
use crate::args::Global;
use crate::output::{TextTable, print, print_json, say, time};

#[derive(Debug, Args)]
pub struct WebhookListArgs {
    #[command(flatten)]
    webhooks: WebhookArgs,
}

pub fn execute(args: &WebhookListArgs, global: &Global) -> Result<ExitCode> {
    let webhooks = match args.webhooks.file(global).read() {
        Err(error) if error.is_missing() => Vec::new(),
        read => read?,
    };
    let now = time::now();
    let shown: Vec<WebhookDocument> = webhooks.iter().map(|webhook| WebhookDocument::new(webhook, now)).collect();
    if global.json {
        print_json(&serde_json::json!({"webhooks": shown}))?;
        return Ok(ExitCode::SUCCESS);
    }
    if shown.is_empty() {
        say("no webhooks");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["NAME", "FORMAT", "NAMESPACE", "CREATED", "SECRETS", "TARGET"]);
    for webhook in &shown {
        table.row(vec![
            webhook.name.into(),
            webhook.format.into(),
            webhook.namespace.into(),
            time::ago(webhook.created_at, now).into(),
            webhook.secrets.to_string().into(),
            webhook.sentence().into(),
        ]);
    }
    print(&table.take())?;
    Ok(ExitCode::SUCCESS)
}
