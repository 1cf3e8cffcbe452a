//! `onward run signal`: sends a signal to a run.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::api::{Signal, SignalRequest};
use onward_core::{Name, Payload};
use onward_runtime::RuntimeError;

use super::act::answer;
use super::payload::read_payload;
use crate::args::Global;
use crate::connection::Connection;

#[derive(Debug, Args)]
pub struct SignalArgs {
    /// Run id
    id: String,
    /// Signal name
    name: String,
    /// Payload: JSON, @FILE, or - for stdin [default: null]
    payload: Option<String>,
    /// Idempotency key: a repeated id sends the signal once
    #[arg(long, value_name = "ID")]
    signal_id: Option<String>,
}

pub async fn execute(args: SignalArgs, global: &Global) -> Result<ExitCode> {
    let name = Name::new(&args.name).map_err(RuntimeError::from)?;
    let payload = args.payload.as_deref().map_or(Ok(Payload::null()), read_payload)?;
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let signal = Signal { name, payload, signal_id: args.signal_id };
    let appended = connection.signal_run(SignalRequest { run: key.clone(), signal }).await?;
    answer(global, &key, "signal received", &appended)
}
