//! `onward run bulk`: applies one action to all runs that match a filter, in batches.

use std::io::IsTerminal;

use anyhow::Result;
use clap::Args;
use onward_core::api::{BulkRequest, BulkVerb, RefusedRun};
use onward_core::{ErrorCode, Timestamp};
use onward_store::{Clock, SystemClock};

use super::filter::FilterArgs;
use crate::args::{Global, one_of};
use crate::connection::Connection;
use crate::error::{Exit, FAILURE, Mistake};
use crate::output::{escape, print_stderr};

/// Runs per batch.
const BATCH: usize = 200;

#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Action for each run
    #[arg(value_parser = one_of(&BulkVerb::ALL, BulkVerb::as_str))]
    verb: BulkVerb,
    #[command(flatten)]
    filter: FilterArgs,
    /// Select every run
    #[arg(long)]
    all: bool,
    /// Count the runs and show a sample, without changes
    #[arg(long)]
    dry_run: bool,
    /// Skip the confirmation
    #[arg(long)]
    yes: bool,
    /// Reason, recorded in the logs
    #[arg(long, default_value = "")]
    reason: String,
    /// Continue an interrupted bulk action by the id that it printed
    #[arg(long)]
    bulk_id: Option<String>,
    /// With retry: also retry calls that failed with outcome_unknown; otherwise such runs are refused
    #[arg(long)]
    include_outcome_unknown: bool,
}

pub async fn execute(args: BulkArgs, global: &Global) -> Result<()> {
    let connection = Connection::to_read(global).await?;
    let filter = args.filter.query(connection.namespace.clone(), BATCH)?;
    let Timestamp(now) = SystemClock.now();
    let bulk_id = args.bulk_id.unwrap_or_else(|| format!("bulk_{now:x}{:x}", std::process::id()));
    let include_outcome_unknown = args.include_outcome_unknown;
    let (all, reason) = (args.all, args.reason);
    let verb = args.verb.as_str().to_owned();
    let bulk = BulkRequest { verb, filter, all, dry_run: true, bulk_id, reason, include_outcome_unknown };
    let count = connection.execute_bulk(bulk.clone()).await?;
    if args.dry_run {
        let sample = &count.sample;
        let document = serde_json::json!({"verb": bulk.verb, "matched": count.matched, "sample": sample});
        let lines = sample.iter().map(|id| format!("\n  {}", escape::text(id.as_str())));
        let text = || format!("{} would apply to {} runs{}", bulk.verb, count.matched, lines.collect::<String>());
        return global.show(&document, text);
    }
    if !args.yes && !agreed(&bulk.verb, count.matched)? {
        return Err(Exit(FAILURE).into());
    }
    all_batches(&Connection::to_write(global).await?, BulkRequest { dry_run: false, ..bulk }, count.matched, global).await
}

/// Asks for confirmation at the terminal. Fails without a terminal.
fn agreed(verb: &str, matched: u64) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let hint = "check with `--dry-run`, then confirm with `--yes`";
        return Err(
            Mistake::new(ErrorCode::NotConfirmed, format!("{verb} of {matched} runs was not confirmed"), Some(hint)).into()
        );
    }
    print_stderr(&format!("{verb} {matched} runs? Type yes to continue:"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

async fn all_batches(connection: &Connection, mut bulk: BulkRequest, matched: u64, global: &Global) -> Result<()> {
    let (mut done, mut refused, mut seen) = (0, Vec::new(), 0);
    loop {
        let batch = connection.execute_bulk(bulk.clone()).await?;
        (done, seen) = (done + batch.done, seen + batch.matched);
        refused.extend(batch.refused);
        if batch.next.is_none() {
            break;
        }
        bulk.filter.cursor = batch.next;
        print_stderr(&format!("{seen} of {matched} (if interrupted, continue with --bulk-id {})", bulk.bulk_id));
    }
    let document = serde_json::json!({"bulk_id": bulk.bulk_id, "done": done, "refused": refused});
    let lines = refused.iter().map(|RefusedRun { run, code }| format!("\n  {} {code}", escape::text(run.as_str())));
    global.show(&document, || format!("{}: {done} runs, {} refused{}", bulk.verb, refused.len(), lines.collect::<String>()))
}
