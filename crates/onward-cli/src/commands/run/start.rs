//! `onward run start`: a new run, or the one that is there already.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::budget::Allowance;
use onward_core::{Name, Payload, RunKey};
use onward_runtime::{RuntimeError, SendSignal, StartRun};
use onward_store::Started;

use super::act::budget;
use super::filter::attribute;
use super::payload::read_payload;
use super::wait::{Patience, wait};
use crate::args::Global;
use crate::connection::Site;
use crate::error::Mistake;
use crate::new_id;
use crate::output::document::{Answer, Run, StartedRun};
use crate::output::{escape, print, print_json, say};

#[derive(Debug, Args)]
pub struct StartArgs {
    /// The workflow
    kind: String,
    /// The run's id: the same id again with the same input is the same run; a new one otherwise
    #[arg(long)]
    id: Option<String>,
    /// JSON, @FILE, or - for stdin; null otherwise
    #[arg(long, value_name = "JSON")]
    input: Option<String>,
    /// The version of the code that the run is pinned to
    #[arg(long, value_name = "VERSION")]
    code_version: Option<String>,
    /// What the run is found by; may be given several times. A text that looks like a number goes in quotes: 'order="42"'
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
    /// What the run may spend: tokens=N, cost=DOLLARS, turns=N or seconds=N; may be given several times
    #[arg(long, value_name = "LIMIT")]
    budget: Vec<String>,
    /// A signal that is delivered with the start; @FILE works here too
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
    let budget = budget(&args.budget)?.map(Allowance::granted);
    let site = Site::to_write(global)?;
    if args.wait && site.is_directory {
        return Err(nobody_works().into());
    }
    let key = site.key(&args.id.unwrap_or_else(new_id::run))?;
    let seed = new_id::random_u64();
    let start = StartRun { key: key.clone(), kind, version, input, seed, signal, attributes, trace: None, budget };
    let (started, _) = site.start_and_watch(start).await?;
    if !args.wait {
        tell(&started, &key, global)?;
        return Ok(ExitCode::SUCCESS);
    }
    if !global.json {
        say(&format!("started {}", escape::text(key.id.as_str())));
    }
    wait(&site, &key, &args.patience, global).await
}

fn read_signal(text: &str) -> Result<SendSignal> {
    let (name, payload) = text.split_once('=').unwrap_or((text, "null"));
    let name = Name::new(name).map_err(RuntimeError::from)?;
    Ok(SendSignal { name, payload: read_payload(payload)?, signal_id: None, sender: None })
}

fn tell(started: &Started, key: &RunKey, global: &Global) -> Result<()> {
    if global.json {
        let (run, created) = (Run::from(&started.head), started.created);
        let signal = started.signal.as_ref().map(|signal| Answer::new(&key.id, signal));
        return print_json(&StartedRun { run, created, signal });
    }
    let note = if started.created { "" } else { " before; it is the same run" };
    Ok(print(&format!("{}: started{note}", escape::text(key.id.as_str())))?)
}

/// While this process has the directory, no worker can.
fn nobody_works() -> Mistake {
    let message = "`--wait` needs a server: while this command has the directory, nobody works on the run";
    Mistake::usage(
        "usage",
        message,
        "go through a server with `--server`, or leave it out and use `onward run wait` beside a worker",
    )
}
