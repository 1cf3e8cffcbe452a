//! `onward run retry`, `fork` and `reset`: continue from a copy of a log.

use anyhow::Result;
use clap::{Args, ValueEnum};
use onward_core::api::{ForkRequest, Restored, RetryRequest};
use onward_core::{Index, Name, RunId};

use crate::args::Global;
use crate::connection::Connection;
use crate::new_id;
use crate::output::document::{Run, StartedRun};
use crate::output::escape;

#[derive(Debug, Args)]
pub struct RetryArgs {
    /// Run id
    id: String,
    /// Reason, recorded in the log
    #[arg(long, default_value = "")]
    reason: String,
    /// Idempotency key: a repeated id returns the first result
    #[arg(long)]
    request_id: Option<String>,
    /// Also retry calls that failed with outcome_unknown, although they may have had their effect
    #[arg(long)]
    include_outcome_unknown: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Children {
    /// Wait for their results like the original
    Await,
    /// Start them again with new ids
    Restart,
}

#[derive(Debug, Args)]
struct CopyArgs {
    /// Run to copy
    id: String,
    /// Id of the new run; a repeated fork with the same id returns the same run
    #[arg(long)]
    new_id: Option<String>,
    /// Generation to copy [default: the latest]
    #[arg(long)]
    generation: Option<u32>,
    /// Signals received after the copied part
    #[arg(long, default_value = "keep", value_parser = ["keep", "drop"])]
    signals: String,
    /// Children without a result in the copied part
    #[arg(long)]
    children: Option<Children>,
    /// Code version of the new run [default: that of the original]
    #[arg(long)]
    version: Option<String>,
    /// Reason, recorded in the log
    #[arg(long, default_value = "")]
    reason: String,
    /// Execute calls after the point again even if their outcome is unknown and their effect may have happened
    #[arg(long)]
    include_outcome_unknown: bool,
}

#[derive(Debug, Args)]
pub struct ForkArgs {
    /// Last event to copy; must end a commit [default: the last event]
    #[arg(long)]
    from: Option<u64>,
    #[command(flatten)]
    copy: CopyArgs,
}

#[derive(Debug, Args)]
pub struct ResetArgs {
    /// Last event to copy; must end a commit [default: the last event]
    #[arg(long)]
    to: Option<u64>,
    #[command(flatten)]
    copy: CopyArgs,
}

pub async fn retry(args: RetryArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    let request_id = args.request_id.unwrap_or_else(new_id::unique);
    let (reason, include_outcome_unknown) = (args.reason, args.include_outcome_unknown);
    let retry = RetryRequest { run: key, request_id, reason, include_outcome_unknown };
    let restored = connection.retry_run(retry).await?;
    answer(global, &args.id, "continues as generation", &restored, &restored.head.generation.to_string())
}

pub async fn fork(args: ForkArgs, global: &Global) -> Result<()> {
    copy(args.copy, args.from, false, global).await
}

pub async fn reset(args: ResetArgs, global: &Global) -> Result<()> {
    copy(args.copy, args.to, true, global).await
}

async fn copy(args: CopyArgs, index: Option<u64>, is_reset: bool, global: &Global) -> Result<()> {
    let connection = Connection::to_write(global).await?;
    let key = connection.key(&args.id)?;
    let fork = ForkRequest {
        id: args.new_id.map(RunId::new).transpose()?,
        generation: args.generation,
        index: index.map(Index),
        drop_signals: args.signals == "drop",
        restart_children: args.children.map_or(is_reset, |children| children == Children::Restart),
        version: args.version.map(Name::new).transpose()?,
        reason: args.reason,
        include_outcome_unknown: args.include_outcome_unknown,
        ..ForkRequest::new(key, new_id::random_u64())
    };
    let restored = match is_reset {
        true => connection.reset_run(fork).await?,
        false => connection.fork_run(fork).await?,
    };
    let what = if is_reset { "was reset to run" } else { "was forked as run" };
    answer(global, &args.id, what, &restored, restored.head.key.id.as_str())
}

fn answer(global: &Global, id: &str, what: &str, restored: &Restored, which: &str) -> Result<()> {
    let document = StartedRun { run: Run::from(&restored.head), created: restored.created, signal: None };
    let note = if restored.created { "; the run continues when a worker is available" } else { " by an earlier request" };
    global.show(&document, || format!("{} {what} {}{note}", escape::text(id), escape::text(which)))
}
