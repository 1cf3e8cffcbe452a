//! `onward run update` and `onward run query`: requests that the code of a run answers.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use onward_core::api::{AskReply, AskRequest};
use onward_core::{ErrorCode, Failure, Name, Payload, RunKey};
use onward_runtime::RuntimeError;
use serde::Serialize;

use super::start::WaitTimeout;
use crate::args::{Global, read_optional_payload};
use crate::connection::Connection;
use crate::error::{Exit, FAILURE, Mistake};
use crate::new_id;
use crate::output::document::{Outcome, UpdateAnswer};
use crate::output::{escape, print, print_json};

/// Wait for an answer on a directory, where no worker runs: it may be recorded already.
const POLL_TIMEOUT: Duration = Duration::from_millis(50);

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
    wait_timeout: WaitTimeout,
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
pub async fn update(args: UpdateArgs, global: &Global) -> Result<()> {
    let (name, payload) = question(&args.name, args.payload.as_deref())?;
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    connection.read_head(key.clone()).await?; // fails at once for a missing run or server
    let update_id = args.update_id.unwrap_or_else(new_id::unique);
    let request = AskRequest { run: key.clone(), name, payload, update_id: update_id.clone() };
    let answered = connection.update_run(request);
    let answer = if connection.is_directory {
        tokio::time::timeout(POLL_TIMEOUT, answered).await.ok()
    } else {
        args.wait_timeout.or_none(answered).await
    };
    match answer.transpose()? {
        Some(AskReply { answer: Some(answer) }) => {
            let document = UpdateAnswer { run: &key.id, update_id: &update_id, outcome: Some(Outcome::from(&answer)) };
            show_answer(&key, &answer, &document, global)
        }
        // No worker runs while this process locks the directory.
        _ if connection.is_directory => global.show(&UpdateAnswer { run: &key.id, update_id: &update_id, outcome: None }, || {
            format!("{}: update {} recorded; a worker will answer it", escape::text(key.id.as_str()), escape::text(&update_id))
        }),
        _ => {
            let message = format!("run {key} did not answer update `{update_id}` in time");
            let hint = format!("the update is recorded; wait again with `--update-id {update_id}`");
            Err(Mistake::new(ErrorCode::WaitTimedOut, message, Some(&hint)).into())
        }
    }
}

pub async fn query(args: QueryArgs, global: &Global) -> Result<()> {
    let (name, payload) = question(&args.name, args.payload.as_deref())?;
    let connection = Connection::to_read(global).await?;
    let key = connection.key(&args.id)?;
    let request = AskRequest { run: key.clone(), name, payload, update_id: String::new() };
    let AskReply { answer: Some(answer) } = connection.query_run(request).await? else {
        let message = format!("run {key} has no query `{}`", args.name);
        let hint = "register it with `ctx.query(name, ..)`; it is available once the code has made that call";
        return Err(Mistake::new(ErrorCode::UnknownQuery, message, Some(hint)).into());
    };
    show_answer(&key, &answer, &Outcome::from(&answer), global)
}

fn question(name: &str, payload: Option<&str>) -> Result<(Name, Payload)> {
    let name = Name::new(name).map_err(RuntimeError::from)?;
    Ok((name, read_optional_payload(payload)?))
}

/// Prints an answer. A failure is an error, and with `--json` only an exit code.
fn show_answer(key: &RunKey, answer: &Result<Payload, Failure>, document: &impl Serialize, global: &Global) -> Result<()> {
    match answer {
        answer if global.json => {
            print_json(document)?;
            if answer.is_ok() { Ok(()) } else { Err(Exit(FAILURE).into()) }
        }
        Ok(value) => Ok(print(&escape::text(&format!("{value:?}")))?),
        Err(failure) => {
            let message = format!("run {key} answered with a failure: [{}] {failure}", failure.code);
            Err(Mistake::new(ErrorCode::AnswerFailed, message, None).into())
        }
    }
}
