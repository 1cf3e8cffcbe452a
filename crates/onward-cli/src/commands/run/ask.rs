//! `onward run update` and `onward run query`: requests that the code of a run answers.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::api::{AskReply, AskRequest};
use onward_core::{Failure, Name, Payload, RunKey};
use onward_runtime::RuntimeError;

use super::payload::read_payload;
use super::wait::Patience;
use crate::args::Global;
use crate::connection::Connection;
use crate::error::{FAILURE, Mistake, NOT_FOUND, TIMED_OUT};
use crate::new_id;
use crate::output::document::{Outcome, UpdateAnswer};
use crate::output::{escape, print, print_json};

/// Wait for an answer on a directory, where no worker runs: it may be recorded already.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct UpdateArgs {
    /// Run id
    id: String,
    /// Update name
    name: String,
    /// Input: JSON, @FILE, or - for stdin [default: null]
    payload: Option<String>,
    /// Idempotency key: a repeated id returns the first answer
    #[arg(long, value_name = "ID")]
    update_id: Option<String>,
    #[command(flatten)]
    patience: Patience,
}

#[derive(Debug, Args)]
pub struct QueryArgs {
    /// Run id
    id: String,
    /// Query name
    name: String,
    /// Input: JSON, @FILE, or - for stdin [default: null]
    payload: Option<String>,
}

/// Sends an update and waits for its answer. The update stays recorded if the wait ends early.
pub async fn update(args: UpdateArgs, global: &Global) -> Result<ExitCode> {
    let (name, payload) = question(&args.name, args.payload.as_deref())?;
    let connection = Connection::to_write(global)?;
    let key = connection.key(&args.id)?;
    connection.read_head(key.clone()).await?; // fails at once for a missing run or server
    let update_id = args.update_id.unwrap_or_else(new_id::unique);
    let request = AskRequest { run: key.clone(), name, payload, update_id: update_id.clone() };
    let answered = connection.update_run(request);
    let answer = if connection.is_directory {
        tokio::time::timeout(LOOK, answered).await.ok()
    } else {
        args.patience.or_none(answered).await
    };
    match answer.transpose()? {
        Some(AskReply { answer: Some(answer) }) => format_answer(&key, &update_id, &answer, global),
        _ if connection.is_directory => tell_recorded(&key, &update_id, global),
        _ => {
            let message = format!("run {key} did not answer update `{update_id}` in time");
            let hint = Some(format!("the update is recorded; wait again with `--update-id {update_id}`"));
            Err(Mistake { code: "wait_timed_out", message, hint, exit: TIMED_OUT }.into())
        }
    }
}

/// Prints an update without an answer: no worker runs while this process locks the directory.
fn tell_recorded(key: &RunKey, update_id: &str, global: &Global) -> Result<ExitCode> {
    if global.json {
        print_json(&UpdateAnswer { run: &key.id, update_id, outcome: None })?;
    } else {
        let (id, update_id) = (escape::text(key.id.as_str()), escape::text(update_id));
        print(&format!("{id}: update {update_id} recorded; a worker will answer it"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn format_answer(key: &RunKey, update_id: &str, answer: &Result<Payload, Failure>, global: &Global) -> Result<ExitCode> {
    if global.json {
        print_json(&UpdateAnswer { run: &key.id, update_id, outcome: Some(Outcome::from(answer)) })?;
        return Ok(ExitCode::from(if answer.is_ok() { 0 } else { FAILURE }));
    }
    tell(key, answer)
}

pub async fn query(args: QueryArgs, global: &Global) -> Result<ExitCode> {
    let (name, payload) = question(&args.name, args.payload.as_deref())?;
    let connection = Connection::to_read(global)?;
    let key = connection.key(&args.id)?;
    let request = AskRequest { run: key.clone(), name, payload, update_id: String::new() };
    let AskReply { answer: Some(answer) } = connection.query_run(request).await? else {
        let message = format!("run {key} has no query `{}`", args.name);
        let hint = Some("register it with `ctx.query(name, ..)`; it is available once the code has made that call".to_owned());
        return Err(Mistake { code: "unknown_query", message, hint, exit: NOT_FOUND }.into());
    };
    if global.json {
        print_json(&Outcome::from(&answer))?;
        return Ok(ExitCode::from(if answer.is_ok() { 0 } else { FAILURE }));
    }
    tell(&key, &answer)
}

fn question(name: &str, payload: Option<&str>) -> Result<(Name, Payload)> {
    let name = Name::new(name).map_err(RuntimeError::from)?;
    Ok((name, payload.map_or(Ok(Payload::null()), read_payload)?))
}

fn tell(key: &RunKey, answer: &Result<Payload, Failure>) -> Result<ExitCode> {
    match answer {
        Ok(value) => {
            print(&escape::text(&format!("{value:?}")))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failure) => {
            let message = format!("run {key} answered with a failure: [{}] {failure}", failure.code);
            Err(Mistake { code: "answer_failed", message, hint: None, exit: FAILURE }.into())
        }
    }
}
