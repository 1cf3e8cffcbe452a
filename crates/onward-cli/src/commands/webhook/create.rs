//! `onward webhook create`: creates a webhook.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use onward_core::Name;
use onward_server::webhooks::{Custom, Encoding, Format, IdAt, Named, NewWebhook, Pointer, TimestampAt, WebhookTarget};

use super::{SecretArgs, WebhookArgs, document};
use crate::args::Global;
use crate::output::time;

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
    #[arg(long, value_name = "ENCODING", default_value = "hex")]
    encoding: EncodingWord,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EncodingWord {
    Hex,
    Base64,
}

fn pointer(text: &str) -> Result<Pointer, &'static str> {
    Pointer::try_from(text.to_owned())
}

pub fn execute(args: CreateArgs, global: &Global) -> Result<ExitCode> {
    let format = match args.format {
        FormatWord::Standard => Format::Standard,
        FormatWord::Github => Format::github(),
        FormatWord::Stripe => Format::stripe(),
        FormatWord::Custom => args.custom.format(),
    };
    let (secret, target) = (args.secret.read()?, args.target.target());
    let given = secret.is_some();
    let wanted = NewWebhook { name: args.name, namespace: global.namespace()?, format, target, secret };
    let made = args.webhooks.file(global).create(wanted, time::now())?;
    document::show_made(&made, given, global.json)?;
    Ok(ExitCode::SUCCESS)
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
        let encoding = match self.encoding {
            EncodingWord::Hex => Encoding::Hex,
            EncodingWord::Base64 => Encoding::Base64,
        };
        let timestamp = self.timestamp_header.map(TimestampAt::Header).or(self.timestamp_field.map(TimestampAt::Field));
        let id = self.id_at.map_or(IdAt::Body, IdAt::Pointer);
        let signature_header = self.signature_header.unwrap_or_default();
        Format::Custom(Box::new(Custom { signature_header, encoding, prefix: self.prefix, timestamp, id }))
    }
}
