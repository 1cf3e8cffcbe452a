//! `onward run signal`: something for a run's mailbox.

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::{Name, Payload};
use onward_runtime::{RuntimeError, SendSignal};
use serde_json::value::RawValue;

use super::act::answer;
use crate::args::Global;
use crate::directory::{open_to_write, run_key};
use crate::error::Mistake;

#[derive(Debug, Args)]
pub struct SignalArgs {
    /// The run
    id: String,
    /// The signal's name
    name: String,
    /// JSON, @FILE, or - for stdin; null otherwise
    payload: Option<String>,
    /// The same id again is the same signal
    #[arg(long, value_name = "ID")]
    signal_id: Option<String>,
}

pub async fn execute(args: SignalArgs, global: &Global) -> Result<ExitCode> {
    let key = run_key(&args.id)?;
    let name = Name::new(&args.name).map_err(RuntimeError::from)?;
    let payload = args.payload.as_deref().map_or(Ok(Payload::null()), read_payload)?;
    let runtime = open_to_write(&global.directory())?;
    let signal = SendSignal { name, payload, signal_id: args.signal_id, sender: None };
    let appended = runtime.signal_run(&key, signal).await?;
    answer(global, &key, "signal received", &appended)
}

/// Takes JSON as it is written: its very bytes are recorded, without the blanks around it.
fn read_payload(text: &str) -> Result<Payload> {
    let text = match text {
        "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("cannot read the payload from stdin")?;
            text
        }
        text => match text.strip_prefix('@') {
            Some(path) => std::fs::read_to_string(path).with_context(|| format!("cannot read the payload from {path}"))?,
            None => text.to_owned(),
        },
    };
    let text = text.trim();
    if let Err(error) = serde_json::from_str::<&RawValue>(text) {
        let hint = "text needs quotes: '\"hello\"'; @FILE reads a file and - reads stdin";
        return Err(Mistake::usage("payload_invalid", format!("the payload is not JSON: {error}"), hint).into());
    }
    Ok(Payload::from_json_text(text.to_owned()))
}
