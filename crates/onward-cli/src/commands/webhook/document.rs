//! Output of a webhook.

use anyhow::Result;
use onward_core::Timestamp;
use onward_server::webhooks::{Named, WebhookEntry, WebhookTarget};
use serde::Serialize;

use crate::output::{escape, print, print_json, say, time};

#[derive(Serialize)]
pub struct WebhookDocument<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub format: &'static str,
    pub target: &'a WebhookTarget,
    pub created_at: Timestamp,
    /// Number of valid secrets.
    pub secrets: usize,
    /// The new secret, only after its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<&'a str>,
}

impl<'a> WebhookDocument<'a> {
    pub fn new(webhook: &'a WebhookEntry, now: Timestamp) -> WebhookDocument<'a> {
        WebhookDocument {
            name: webhook.name.as_str(),
            namespace: webhook.namespace.as_str(),
            format: webhook.format.name(),
            target: &webhook.target,
            created_at: webhook.created_at,
            secrets: webhook.usable_secrets(now).count(),
            secret: None,
        }
    }

    /// Describes the target: `start order, run /id` or `signal paid, run /order`.
    pub fn sentence(&self) -> String {
        match self.target {
            WebhookTarget::Start { kind, run_id: None, .. } => format!("start {kind}"),
            WebhookTarget::Start { kind, run_id: Some(run_id), .. } => format!("start {kind}, run {run_id}"),
            WebhookTarget::Signal { run_id, signal: Named::Name(name) } => format!("signal {name}, run {run_id}"),
            WebhookTarget::Signal { run_id, signal: Named::Pointer(at) } => format!("signal {at}, run {run_id}"),
        }
    }
}

/// Prints a generated secret alone on stdout, so that it can be redirected, and everything else on stderr. Does not print a
/// secret that the caller supplied.
pub fn show_made(webhook: &WebhookEntry, given: bool, json: bool) -> Result<()> {
    let shown = WebhookDocument::new(webhook, time::now());
    let secret = webhook.secrets.last().map(|made| made.secret.reveal()).filter(|_| !given);
    if json {
        return print_json(&WebhookDocument { secret, ..shown });
    }
    if let Some(secret) = secret {
        print(secret)?;
    }
    let (name, sentence) = (escape::text(shown.name), shown.sentence());
    say(&format!("webhook {name} receives POST /v1/webhooks/{name} ({}): {}", shown.format, escape::text(&sentence)));
    if secret.is_some() {
        say("give the secret to the sender now; it cannot be shown again");
    }
    Ok(())
}
