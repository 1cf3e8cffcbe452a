//! `onward webhook create`.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use onward_core::Name;
use onward_server::webhooks::{Custom, Encoding, Format, IdAt, Named, NewWebhook, Pointer, Target, TimestampAt};

use super::{SecretArgs, WebhookArgs, shown};
use crate::args::Global;
use crate::output::time;

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// What it is called; requests go to /v1/hooks/NAME
    #[arg(value_parser = |text: &str| Name::new(text))]
    name: Name,
    #[command(flatten)]
    target: TargetArgs,
    /// How requests are signed
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
    /// Start a run of this kind with the body as its input
    #[arg(long, value_name = "KIND", value_parser = |text: &str| Name::new(text), required_unless_present_any = ["signal", "signal_at"])]
    start: Option<Name>,
    /// The version of the code that runs are pinned to
    #[arg(long, value_name = "VERSION", requires = "start", value_parser = |text: &str| Name::new(text))]
    version: Option<Name>,
    /// Send the body as a signal of this name
    #[arg(long, value_name = "NAME", conflicts_with = "start", requires = "run_id", value_parser = |text: &str| Name::new(text))]
    signal: Option<Name>,
    /// Send the body as a signal whose name is there in the body
    #[arg(long, value_name = "POINTER", conflicts_with_all = ["start", "signal"], requires = "run_id", value_parser = pointer)]
    signal_at: Option<Pointer>,
    /// Where in the body the run's id is, like /order/id; for --start otherwise NAME and the request's id
    #[arg(long, value_name = "POINTER", value_parser = pointer)]
    run_id: Option<Pointer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatWord {
    /// Standard Webhooks
    Standard,
    Github,
    Stripe,
    /// As the options below say
    Custom,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "With --format custom")]
struct CustomArgs {
    /// The header with the signature
    #[arg(long, value_name = "HEADER", required_if_eq("format", "custom"))]
    signature_header: Option<String>,
    /// How the signature is written
    #[arg(long, value_name = "ENCODING", default_value = "hex")]
    encoding: EncodingWord,
    /// What stands before a signature, like sha256=
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// The header with the time, signed before the body with a dot between them
    #[arg(long, value_name = "HEADER")]
    timestamp_header: Option<String>,
    /// What stands before the time in the signature's header, like t=
    #[arg(long, value_name = "TEXT", conflicts_with = "timestamp_header")]
    timestamp_field: Option<String>,
    /// Where in the body the request's id is; without one, the same body is the same request
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
    shown::show_made(&made, given, global.json)?;
    Ok(ExitCode::SUCCESS)
}

impl TargetArgs {
    fn target(self) -> Target {
        let TargetArgs { start, version, signal, signal_at, run_id } = self;
        match (start, signal.map(Named::Name).or(signal_at.map(Named::Pointer)), run_id) {
            (Some(kind), _, run_id) => Target::Start { kind, version, run_id },
            (None, Some(signal), Some(run_id)) => Target::Signal { run_id, signal },
            _ => unreachable!("the grammar asks for a start, or for a signal and its run"),
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
