//! `onward promise …`: resolves or rejects a promise by its id or its key.

use anyhow::Result;
use clap::{Args, Subcommand};
use onward_core::api::{FindPromiseRequest, ResolveRequest};
use onward_core::{Failure, Payload};

use crate::args::{Global, read_optional_payload};
use crate::commands::run::answer;
use crate::connection::Connection;
use crate::new_id;

#[derive(Debug, Subcommand)]
pub enum PromiseCommand {
    /// Resolve a promise with a value
    Resolve(ResolveArgs),
    /// Reject a promise with a failure
    Reject(RejectArgs),
}

#[derive(Debug, Args)]
pub struct ResolveArgs {
    #[command(flatten)]
    promise: PromiseArgs,
    /// Value: JSON, @FILE, or - for stdin [default: null]
    payload: Option<String>,
}

#[derive(Debug, Args)]
pub struct RejectArgs {
    #[command(flatten)]
    promise: PromiseArgs,
    /// Failure message
    #[arg(long, value_name = "TEXT", default_value = "the promise was rejected")]
    message: String,
    /// Failure code, on which the workflow can branch
    #[arg(long, default_value = "rejected")]
    code: String,
}

#[derive(Debug, Args)]
pub struct PromiseArgs {
    /// Promise id, as handed out by the run and shown by `onward run show`
    id: String,
    /// The id is the key that the code has set
    #[arg(long)]
    by_key: bool,
    /// Idempotency key: a repeated id returns the first result
    #[arg(long, value_name = "ID")]
    resolution_id: Option<String>,
}

pub async fn execute(command: PromiseCommand, global: &Global) -> Result<()> {
    match command {
        PromiseCommand::Resolve(args) => {
            let payload = read_optional_payload(args.payload.as_deref())?;
            settle(args.promise, Ok(payload), global).await
        }
        PromiseCommand::Reject(args) => {
            let failure = Failure { retryable: false, ..Failure::new(&args.code, args.message) };
            settle(args.promise, Err(failure), global).await
        }
    }
}

async fn settle(promise: PromiseArgs, result: Result<Payload, Failure>, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let namespace = connection.namespace.clone();
    let id = match promise.by_key {
        true => connection.find_promise(FindPromiseRequest { namespace, key: promise.id }).await?.promise,
        false => promise.id,
    };
    let call = connection.call(&id)?;
    let resolution_id = promise.resolution_id.unwrap_or_else(new_id::unique);
    let what = if result.is_ok() { "promise resolved" } else { "promise rejected" };
    let (namespace, promise) = (connection.namespace.clone(), id);
    let appended = connection.resolve_promise(ResolveRequest { namespace, promise, result, resolution_id }).await?;
    answer(global, &call.run, what, &appended)
}
