//! Commands that append one input to a run: `onward run signal`, `message`, `append`, `branch`, `cancel`, `terminate`, `pause` and
//! `resume`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use onward::agent::{Attachment, Block, Source};
use onward_core::api::{
    AppendEntry, AppendEntryRequest, Appended, BranchEntry, BranchRequest, BranchRun, ReasonRequest, ResumeRequest, Signal,
    SignalRequest,
};
use onward_core::{ErrorCode, Name, Payload, RunKey};
use onward_runtime::{Runtime, RuntimeError};

use crate::args::{Global, read_optional_payload, read_payload};
use crate::budget;
use crate::connection::Connection;
use crate::directory::shell_word;
use crate::error::Mistake;
use crate::output::document::{EntryAnswer, Receipt};
use crate::output::escape;

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

#[derive(Debug, Args)]
pub struct AppendArgs {
    /// Run id
    id: String,
    /// Role of the entry: system, user, assistant, tool or any other name
    role: String,
    /// Content: JSON, @FILE, or - for stdin
    content: String,
    /// Idempotency key: a repeated key returns the first entry
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

/// Word for the start of a conversation.
const START: &str = "start";

#[derive(Debug, Args)]
pub struct BranchArgs {
    /// Run id
    id: String,
    /// Entry after which the conversation continues, or `start`
    entry: String,
    /// Text of the next entry; to replace an entry, name its parent
    text: Option<String>,
    /// Role of the next entry
    #[arg(long, default_value = "user")]
    role: String,
    /// Idempotency key: a repeated key returns the first branch
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReasonArgs {
    /// Run id
    id: String,
    /// Reason, recorded in the log
    #[arg(long, default_value = "")]
    reason: String,
}

#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// Run id
    id: String,
    /// New total budget: tokens=N, cost=DOLLARS, turns=N or seconds=N (repeatable)
    #[arg(long, value_name = "LIMIT")]
    budget: Vec<String>,
}

/// Input with a reason.
pub enum ReasonInput {
    Cancel,
    Terminate,
    Pause,
}

pub async fn signal(args: SignalArgs, global: &Global) -> Result<()> {
    let name = Name::new(&args.name).map_err(RuntimeError::from)?;
    let payload = read_optional_payload(args.payload.as_deref())?;
    send(&args.id, Signal { name, payload, signal_id: args.signal_id }, "signal received", global).await
}

pub async fn message(args: MessageArgs, global: &Global) -> Result<()> {
    let name = Name::new(&args.signal).map_err(RuntimeError::from)?;
    let payload = message_payload(&args.text, &args.attach)?;
    Runtime::check_message(&payload)?;
    send(&args.id, Signal { name, payload, signal_id: args.message_id }, "message received", global).await
}

async fn send(id: &str, signal: Signal, what: &str, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let key = connection.key(id)?;
    let appended = connection.signal_run(SignalRequest { run: key.clone(), signal }).await?;
    answer(global, &key, what, &appended)
}

pub async fn append(args: AppendArgs, global: &Global) -> Result<()> {
    let role = Name::new(&args.role).map_err(RuntimeError::from)?;
    let content = read_payload(&args.content)?;
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    let entry = AppendEntry { role, content, idempotency_key: args.idempotency_key };
    let appended = connection.append_entry(AppendEntryRequest { run: key.clone(), entry, is_looked_up: false }).await?;
    let id = escape::text(key.id.as_str());
    global.show(&EntryAnswer::new(&key.id, &appended), || match (appended.already_existed, appended.entry) {
        (true, Some(entry)) => format!("{id}: entry already exists: {entry}"),
        (true, None) => format!("{id}: entry already accepted; it joins the conversation when the next turn starts"),
        (false, _) => format!("{id}: entry accepted; it joins the conversation when the next turn starts"),
    })
}

/// Continues a conversation from an earlier entry.
pub async fn branch(args: BranchArgs, global: &Global) -> Result<()> {
    let from = match args.entry.as_str() {
        START => None,
        text => {
            let message = format!("`{}` is not an entry id", text.chars().take(100).collect::<String>());
            let hint = format!("use an id of `onward run entries {}`, or `{START}`", shell_word(&args.id));
            Some(text.parse().map_err(|_| Mistake::usage(ErrorCode::Usage, message, &hint))?)
        }
    };
    let role = Name::new(&args.role).map_err(RuntimeError::from)?;
    let content = args.text.as_ref().map(Payload::json).transpose()?;
    let entry = content.map(|content| BranchEntry { role, content });
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    let branch = BranchRun { from, entry, idempotency_key: args.idempotency_key };
    let appended = connection.branch_run(BranchRequest { run: key.clone(), branch }).await?;
    answer(global, &key, "branch requested", &appended)
}

pub async fn with_reason(input: ReasonInput, args: ReasonArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    let request = ReasonRequest { run: key.clone(), reason: args.reason };
    let (what, appended) = match input {
        ReasonInput::Cancel => ("cancel requested", connection.cancel_run(request).await?),
        ReasonInput::Terminate => ("terminated", connection.terminate_run(request).await?),
        ReasonInput::Pause => ("paused", connection.pause_run(request).await?),
    };
    answer(global, &key, what, &appended)
}

pub async fn resume(args: ResumeArgs, global: &Global) -> Result<()> {
    let budget = budget::parse(&args.budget)?;
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    let appended = connection.resume_run(ResumeRequest { run: key.clone(), budget }).await?;
    answer(global, &key, "resumed", &appended)
}

/// Prints the appended input: its index, whether it is a repeat, and whether the run continues.
pub fn answer(global: &Global, key: &RunKey, what: &str, appended: &Appended) -> Result<()> {
    let note = match (appended.repeated, appended.woke) {
        (true, _) => " by an earlier request with the same id",
        (false, true) => "; the run continues when a worker is available",
        (false, false) => "",
    };
    let text = || format!("{}: {what} at event {}{note}", escape::text(key.id.as_str()), appended.index);
    global.show(&Receipt::new(&key.id, appended), text)
}

/// Builds the message: a plain text, or blocks if files are attached.
fn message_payload(text: &str, files: &[PathBuf]) -> Result<Payload> {
    if files.is_empty() {
        return Ok(Payload::json(text)?);
    }
    let attached = files.iter().map(|path| attachment(path));
    let blocks: Vec<Block> = std::iter::once(Ok(Block::text(text))).chain(attached).collect::<Result<_>>()?;
    Ok(Payload::json(&BTreeMap::from([("blocks", blocks)]))?)
}

fn attachment(path: &Path) -> Result<Block> {
    let media_type = media_type(path).ok_or_else(|| {
        let message = format!("unknown file type: {}", path.display());
        Mistake::usage(
            ErrorCode::Usage,
            message,
            "use a file whose name ends in png, jpg, jpeg, gif, webp, pdf, txt, md, csv, mp3 or wav",
        )
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
