//! `onward run message`: sends a message to an agent.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onward::agent::{Attachment, Block, Source};
use onward_core::api::{Signal, SignalRequest};
use onward_core::{Name, Payload};
use onward_runtime::{Runtime, RuntimeError};
use serde::Serialize;

use super::act::answer;
use crate::args::Global;
use crate::connection::Connection;
use crate::error::Mistake;

#[derive(Debug, Args)]
pub struct MessageArgs {
    /// Run id
    id: String,
    /// Text of the message
    text: String,
    /// Attach a file to the message (repeatable)
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// Idempotency key: a repeated id sends the message once
    #[arg(long, value_name = "ID")]
    message_id: Option<String>,
    /// Signal that the agent waits for
    #[arg(long, value_name = "NAME", default_value = onward_core::conversation::MESSAGE)]
    signal: String,
}

pub async fn execute(args: MessageArgs, global: &Global) -> Result<ExitCode> {
    let name = Name::new(&args.signal).map_err(RuntimeError::from)?;
    let payload = payload(&args.text, &args.attach)?;
    Runtime::check_message(&payload)?;
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    let signal = Signal { name, payload, signal_id: args.message_id };
    let appended = connection.signal_run(SignalRequest { run: key.clone(), signal }).await?;
    answer(global, &key, "message received", &appended)
}

/// Builds the message: a plain text, or blocks if files are attached.
fn payload(text: &str, files: &[PathBuf]) -> Result<Payload> {
    #[derive(Serialize)]
    struct Blocks {
        blocks: Vec<Block>,
    }
    if files.is_empty() {
        return Ok(Payload::json(text)?);
    }
    let attached = files.iter().map(|path| attachment(path));
    let blocks = std::iter::once(Ok(Block::text(text))).chain(attached).collect::<Result<_>>()?;
    Ok(Payload::json(&Blocks { blocks })?)
}

fn attachment(path: &Path) -> Result<Block> {
    let media_type = media_type(path).ok_or_else(|| {
        let message = format!("unknown file type: {}", path.display());
        Mistake::usage("usage", message, "use a file whose name ends in png, jpg, jpeg, gif, webp, pdf, txt, md, csv, mp3 or wav")
    })?;
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(Block::Attachment(Attachment { media_type: media_type.to_owned(), source: Source::bytes(&bytes) }))
}

fn media_type(path: &Path) -> Option<&'static str> {
    Some(match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "txt" | "md" => "text/plain",
        "csv" => "text/csv",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        _ => return None,
    })
}
