//! `onward webhook …`: manages webhooks. Edits the webhook file; a running server applies changes.
//!
//! Must never print a secret except once, on stdout, when it is created.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use onward_core::{Name, Timestamp};
use onward_server::webhooks::{
    Custom, Encoding, Format, IdAt, Named, NewWebhook, Pointer, Secret, TimestampAt, WEBHOOKS_FILE, WebhookEntry, WebhookFile,
    WebhookTarget,
};
use serde::Serialize;

use crate::args::{Global, read_file};
use crate::output::{TextTable, cells, escape, print, print_json, print_stderr, time};
use crate::serving::WebhookArgs;
use crate::span;

#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// Create a webhook and print its secret once
    Create(Box<CreateArgs>),
    /// List webhooks without their secrets
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        webhooks: WebhookArgs,
    },
    /// Replace the secret of a webhook; the old one stays valid for a while
    Rotate {
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
    },
    /// Delete a webhook; a running server applies this within seconds
    Delete {
        /// Webhook name
        #[arg(value_parser = |text: &str| Name::new(text))]
        name: Name,
        #[command(flatten)]
        webhooks: WebhookArgs,
    },
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
        let text = self.secret_file.as_ref().map(|path| read_file(path, "the secret")).transpose()?;
        Ok(text.map(|text| Secret::new(text.trim())))
    }
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Webhook name; requests go to /v1/webhooks/NAME
    #[arg(value_parser = |text: &str| Name::new(text))]
    name: Name,
    #[command(flatten)]
    target: TargetArgs,
    /// Signature format of requests
    #[arg(long, value_name = "FORMAT", default_value = "standard")]
    format: FormatWord,
    #[command(flatten)]
    custom: CustomArgs,
    #[command(flatten)]
    secret: SecretArgs,
    #[command(flatten)]
    webhooks: WebhookArgs,
}

#[derive(Debug, Args)]
struct TargetArgs {
    /// Start a run of this kind with the request body as input
    #[arg(long, value_name = "KIND", value_parser = |text: &str| Name::new(text), required_unless_present_any = ["signal", "signal_at"])]
    start: Option<Name>,
    /// Code version to pin runs to
    #[arg(long, value_name = "VERSION", requires = "start", value_parser = |text: &str| Name::new(text))]
    version: Option<Name>,
    /// Send the request body as a signal with this name
    #[arg(long, value_name = "NAME", conflicts_with = "start", requires = "run_id", value_parser = |text: &str| Name::new(text))]
    signal: Option<Name>,
    /// Send the request body as a signal; JSON pointer to its name in the body
    #[arg(long, value_name = "POINTER", conflicts_with_all = ["start", "signal"], requires = "run_id", value_parser = pointer)]
    signal_at: Option<Pointer>,
    /// JSON pointer to the run id in the body, like /order/id [default with --start: NAME and the request id]
    #[arg(long, value_name = "POINTER", value_parser = pointer)]
    run_id: Option<Pointer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatWord {
    /// Standard Webhooks
    Standard,
    Github,
    Stripe,
    /// Defined by the options below
    Custom,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "With --format custom")]
struct CustomArgs {
    /// Header with the signature
    #[arg(long, value_name = "HEADER", required_if_eq("format", "custom"))]
    signature_header: Option<String>,
    /// Encoding of the signature
    #[arg(long, value_name = "ENCODING", default_value = "hex", value_parser = ["hex", "base64"])]
    encoding: String,
    /// Text before the signature, like sha256=
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Header with the timestamp; the signature covers the timestamp, a dot and the body
    #[arg(long, value_name = "HEADER")]
    timestamp_header: Option<String>,
    /// Text before the timestamp in the signature header, like t=
    #[arg(long, value_name = "TEXT", conflicts_with = "timestamp_header")]
    timestamp_field: Option<String>,
    /// JSON pointer to the request id in the body; without one, requests with equal bodies are duplicates
    #[arg(long, value_name = "POINTER", value_parser = pointer)]
    id_at: Option<Pointer>,
}

fn pointer(text: &str) -> Result<Pointer, &'static str> {
    Pointer::try_from(text.to_owned())
}

pub fn execute(command: WebhookCommand, global: &Global) -> Result<()> {
    global.without_server("webhook")?;
    let now = time::now();
    match command {
        WebhookCommand::Create(args) => create(*args, global),
        WebhookCommand::List { webhooks } => list(&file(&webhooks, global), global),
        WebhookCommand::Rotate { name, overlap, secret, webhooks } => {
            let secret = secret.read()?;
            let given = secret.is_some();
            show_made(&file(&webhooks, global).rotate(&name, secret, overlap, now)?, given, global.json)?;
            if !global.json {
                print_stderr(&format!("the old secret expires {}", time::until(now.after(overlap), now)));
            }
            Ok(())
        }
        WebhookCommand::Delete { name, webhooks } => {
            file(&webhooks, global).delete(&name)?;
            global.show(&serde_json::json!({"deleted": name}), || format!("{}: deleted", escape::text(name.as_str())))
        }
    }
}

fn file(webhooks: &WebhookArgs, global: &Global) -> WebhookFile {
    WebhookFile::at(webhooks.webhooks.clone().unwrap_or_else(|| global.directory().join(WEBHOOKS_FILE)))
}

fn create(args: CreateArgs, global: &Global) -> Result<()> {
    let format = match args.format {
        FormatWord::Standard => Format::Standard,
        FormatWord::Github => Format::github(),
        FormatWord::Stripe => Format::stripe(),
        FormatWord::Custom => args.custom.format(),
    };
    let (secret, target) = (args.secret.read()?, args.target.target());
    let given = secret.is_some();
    let wanted = NewWebhook { name: args.name, namespace: global.namespace()?, format, target, secret };
    show_made(&file(&args.webhooks, global).create(wanted, time::now())?, given, global.json)
}

impl TargetArgs {
    fn target(self) -> WebhookTarget {
        let TargetArgs { start, version, signal, signal_at, run_id } = self;
        match (start, signal.map(Named::Name).or(signal_at.map(Named::Pointer)), run_id) {
            (Some(kind), _, run_id) => WebhookTarget::Start { kind, version, run_id },
            (None, Some(signal), Some(run_id)) => WebhookTarget::Signal { run_id, signal },
            _ => unreachable!("the grammar requires --start, or a signal with --run-id"),
        }
    }
}

impl CustomArgs {
    fn format(self) -> Format {
        let encoding = if self.encoding == "hex" { Encoding::Hex } else { Encoding::Base64 };
        let timestamp = self.timestamp_header.map(TimestampAt::Header).or(self.timestamp_field.map(TimestampAt::Field));
        let id = self.id_at.map_or(IdAt::Body, IdAt::Pointer);
        let signature_header = self.signature_header.unwrap_or_default();
        Format::Custom(Box::new(Custom { signature_header, encoding, prefix: self.prefix, timestamp, id }))
    }
}

fn list(file: &WebhookFile, global: &Global) -> Result<()> {
    let webhooks = match file.read() {
        Err(error) if error.is_missing() => Vec::new(),
        read => read?,
    };
    let now = time::now();
    let webhooks: Vec<WebhookDocument> = webhooks.iter().map(|webhook| WebhookDocument::new(webhook, now)).collect();
    let mut table = TextTable::new(&["NAME", "FORMAT", "NAMESPACE", "CREATED", "SECRETS", "TARGET"]);
    for webhook in &webhooks {
        let created = time::ago(webhook.created_at, now);
        table.row(cells![webhook.name, webhook.format, webhook.namespace, created, webhook.secrets, webhook.sentence()]);
    }
    global.show_table(&serde_json::json!({"webhooks": webhooks}), table, "no webhooks")
}

/// A webhook without its secrets.
#[derive(Serialize)]
struct WebhookDocument<'a> {
    name: &'a str,
    namespace: &'a str,
    format: &'static str,
    target: &'a WebhookTarget,
    created_at: Timestamp,
    /// Number of valid secrets.
    secrets: usize,
    /// The new secret, only after its creation.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

impl<'a> WebhookDocument<'a> {
    fn new(webhook: &'a WebhookEntry, now: Timestamp) -> WebhookDocument<'a> {
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
    fn sentence(&self) -> String {
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
fn show_made(webhook: &WebhookEntry, given: bool, json: bool) -> Result<()> {
    let shown = WebhookDocument::new(webhook, time::now());
    let secret = webhook.secrets.last().map(|made| made.secret.reveal()).filter(|_| !given);
    if json {
        return print_json(&WebhookDocument { secret, ..shown });
    }
    if let Some(secret) = secret {
        print(secret)?;
    }
    let (name, sentence) = (escape::text(shown.name), shown.sentence());
    print_stderr(&format!("webhook {name} receives POST /v1/webhooks/{name} ({}): {}", shown.format, escape::text(&sentence)));
    if secret.is_some() {
        print_stderr("give the secret to the sender now; it cannot be shown again");
    }
    Ok(())
}
