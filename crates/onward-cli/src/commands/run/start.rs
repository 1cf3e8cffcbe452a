//! `onward run start`: starts a run, or returns the existing one with its id.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::{Signal, StartReply, StartRequest};
use onward_core::{Name, Payload, RunKey};
use onward_runtime::RuntimeError;

use super::filter::attribute;
use super::payload::read_payload;
use super::wait::{Patience, wait};
use crate::args::Global;
use crate::budget;
use crate::connection::Connection;
use crate::error::Mistake;
use crate::new_id;
use crate::output::document::{Receipt, Run, StartedRun};
use crate::output::{escape, print, print_json, say};

#[derive(Debug, Args)]
pub struct StartArgs {
    /// Kind of workflow or agent to start
    kind: String,
    /// Run id; a repeated start with the same id and input returns the same run [default: a new id]
    #[arg(long)]
    id: Option<String>,
    /// Input: JSON, @FILE, or - for stdin [default: null]
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// Code version to pin the run to
    #[arg(long, value_name = "VERSION")]
    code_version: Option<String>,
    /// Set an attribute (repeatable); quote a text that looks like a number: 'order="42"'
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
    /// Budget of the run: tokens=N, cost=DOLLARS, turns=N or seconds=N (repeatable)
    #[arg(long, value_name = "LIMIT")]
    budget: Vec<String>,
    /// Send a signal with the start; the payload is JSON or @FILE
    #[arg(long, value_name = "NAME=JSON")]
    signal: Option<String>,
    /// Wait until the run has ended and print its result
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    patience: Patience,
}

pub async fn execute(args: StartArgs, global: &Global) -> Result<ExitCode> {
    let name = |text: &str| Name::new(text).map_err(RuntimeError::from);
    let (kind, version) = (name(&args.kind)?, args.code_version.as_deref().map(name).transpose()?);
    let input = args.input.as_deref().map_or(Ok(Payload::null()), read_payload)?;
    let signal = args.signal.as_deref().map(read_signal).transpose()?;
    let attributes = args.attr.iter().map(|text| attribute(text)).collect::<Result<_, _>>().map_err(RuntimeError::from)?;
    let budget = budget::parse(&args.budget)?;
    let connection = Connection::to_write(global)?;
    if args.wait && connection.is_directory {
        return Err(nobody_works().into());
    }
    let key = connection.key(&args.id.unwrap_or_else(new_id::run))?;
    let seed = new_id::random_u64();
    let start = StartRequest { run: key.clone(), kind, version, input, seed, signal, attributes, trace: None, budget };
    let started = connection.start_run(start).await?;
    if !args.wait {
        tell(&started, &key, global)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !global.json {
        say(&format!("started {}", escape::text(key.id.as_str())));
    }
    wait(&connection, &key, &args.patience, global).await
}

fn read_signal(text: &str) -> Result<Signal> {
    let (name, payload) = text.split_once('=').unwrap_or((text, "null"));
    let name = Name::new(name).map_err(RuntimeError::from)?;
    Ok(Signal { name, payload: read_payload(payload)?, signal_id: None })
}

fn tell(started: &StartReply, key: &RunKey, global: &Global) -> Result<()> {
    if global.json {
        let (run, created) = (Run::from(&started.head), started.created);
        let signal = started.signal.as_ref().map(|signal| Receipt::new(&key.id, signal));
        return print_json(&StartedRun { run, created, signal });
    }
    let note = if started.created { "" } else { " by an earlier request; nothing changed" };
    Ok(print(&format!("{}: started{note}", escape::text(key.id.as_str())))?)
}

/// Returns the error for `--wait` on a directory, which this process locks, so no worker can run.
fn nobody_works() -> Mistake {
    let message = "`--wait` needs a server: this command locks the directory, so no worker can run";
    Mistake::usage("usage", message, "set `--server`, or omit `--wait` and use `onward run wait` while a worker runs")
}
