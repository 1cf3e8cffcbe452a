//! `onward run bulk`: applies one action to all runs that match a filter, in batches.

use std::io::IsTerminal;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use onward_core::Timestamp;
use onward_core::api::{BulkRequest, BulkVerb, RefusedRun};
use onward_store::{Clock, SystemClock};

use super::filter::FilterArgs;
use crate::args::Global;
use crate::connection::Connection;
use crate::error::{FAILURE, Mistake};
use crate::output::{escape, print, print_json, say};

/// Runs per batch.
const BATCH: usize = 200;

#[derive(Debug, Args)]
pub struct BulkArgs {
    /// Action for each run
    verb: Verb,
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

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Verb {
    Cancel,
    Terminate,
    Pause,
    Resume,
    Retry,
    Delete,
}

impl From<Verb> for BulkVerb {
    fn from(verb: Verb) -> BulkVerb {
        match verb {
            Verb::Cancel => BulkVerb::Cancel,
            Verb::Terminate => BulkVerb::Terminate,
            Verb::Pause => BulkVerb::Pause,
            Verb::Resume => BulkVerb::Resume,
            Verb::Retry => BulkVerb::Retry,
            Verb::Delete => BulkVerb::Delete,
        }
    }
}

pub async fn execute(args: BulkArgs, global: &Global) -> Result<ExitCode> {
    let verb = BulkVerb::from(args.verb);
    let filter = args.filter.query(global.namespace()?, BATCH)?;
    let Timestamp(now) = SystemClock.now();
    let bulk_id = args.bulk_id.unwrap_or_else(|| format!("bulk_{now:x}{:x}", std::process::id()));
    let include_outcome_unknown = args.include_outcome_unknown;
    let (all, reason) = (args.all, args.reason);
    let word = verb.as_str().to_owned();
    let bulk = BulkRequest { verb: word, filter, all, dry_run: true, bulk_id, reason, include_outcome_unknown };
    let count = Connection::to_read(global)?.execute_bulk(bulk.clone()).await?;
    if args.dry_run {
        return show_count(global, &bulk, count.matched, &count.sample.iter().map(|id| id.as_str()).collect::<Vec<_>>());
    }
    if !args.yes && !agreed(verb, count.matched)? {
        return Ok(ExitCode::FAILURE);
    }
    all_batches(&Connection::to_write(global)?, BulkRequest { dry_run: false, ..bulk }, count.matched, global).await
}

fn show_count(global: &Global, bulk: &BulkRequest, matched: u64, sample: &[&str]) -> Result<ExitCode> {
    if global.json {
        print_json(&serde_json::json!({"verb": bulk.verb, "matched": matched, "sample": sample}))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!("{} would apply to {matched} runs", bulk.verb))?;
    for id in sample {
        print(&format!("  {}", escape::text(id)))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks for confirmation at the terminal. Fails without a terminal.
fn agreed(verb: BulkVerb, matched: u64) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        let hint = Some("check with `--dry-run`, then confirm with `--yes`".to_owned());
        let message = format!("{} of {matched} runs was not confirmed", verb.as_str());
        return Err(Mistake { code: "not_confirmed", message, hint, exit: FAILURE }.into());
    }
    say(&format!("{} {matched} runs? Type yes to continue:", verb.as_str()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    Ok(line.trim() == "yes")
}

async fn all_batches(connection: &Connection, mut bulk: BulkRequest, matched: u64, global: &Global) -> Result<ExitCode> {
    let (mut done, mut refused, mut seen) = (0, Vec::new(), 0);
    loop {
        let batch = connection.execute_bulk(bulk.clone()).await?;
        (done, seen) = (done + batch.done, seen + batch.matched);
        refused.extend(batch.refused);
        if batch.next.is_none() {
            break;
        }
        bulk.filter.cursor = batch.next;
        say(&format!("{seen} of {matched} (if interrupted, continue with --bulk-id {})", bulk.bulk_id));
    }
    if global.json {
        print_json(&serde_json::json!({"bulk_id": bulk.bulk_id, "done": done, "refused": refused}))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&format!("{}: {done} runs, {} refused", bulk.verb, refused.len()))?;
    for RefusedRun { run, code } in &refused {
        print(&format!("  {} {code}", escape::text(run.as_str())))?;
    }
    Ok(ExitCode::SUCCESS)
}
