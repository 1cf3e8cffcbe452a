//! `onward run message`: say something to an agent.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use onward_core::{Name, Payload};
use onward_runtime::{Runtime, RuntimeError, SendSignal};

use super::act::answer;
use crate::args::Global;
use crate::site::Site;

#[derive(Debug, Args)]
pub struct MessageArgs {
    /// The run
    id: String,
    /// What to say
    text: String,
    /// The same id again is the same message
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// The signal that the agent waits for
    #[arg(long, value_name = "NAME", default_value = onward_core::conversation::MESSAGE)]
    signal: String,
}

pub async fn execute(args: MessageArgs, global: &Global) -> Result<ExitCode> {
    let name = Name::new(&args.signal).map_err(RuntimeError::from)?;
    let payload = Payload::json(&args.text)?;
    Runtime::check_message(&payload)?;
    let site = Site::to_write(global)?;
    let key = site.key(&args.id)?;
    let signal = SendSignal { name, payload, signal_id: args.message_id, sender: None };
    let appended = site.signal_run(key.clone(), signal).await?;
    answer(global, &key, "message received", &appended)
}
