//! `onward replay`: steps through the log of a run, forward and back.
//!
//! Executes no code of the run: shows the calls, results and state that the log has at each event.

mod screen;
mod terminal;
mod timeline;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use onward_core::{ErrorCode, Event, Index, Record, RunId, RunKey, Timestamp};
use onward_runtime::RuntimeError;
use serde::Serialize;

use crate::args::{Global, read_file};
use crate::connection::Connection;
use crate::error::Mistake;
use crate::output::document::View;
use crate::output::{Style, print, print_json};
use screen::{awaiting, state};
use timeline::Timeline;

/// Page size of records.
const PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Run id
    run: String,
    /// Show the log of this generation; 0 is the first [default: the latest]
    #[arg(long, value_name = "NUMBER")]
    generation: Option<u32>,
    /// Read the log from the output of `onward run events RUN --json`; - for stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Start at this event
    #[arg(long, value_name = "INDEX", default_value_t = 0)]
    at: u64,
    /// Print the whole log instead of stepping through it; default without a terminal
    #[arg(long)]
    plain: bool,
}

pub async fn execute(args: ReplayArgs, global: &Global) -> Result<()> {
    let timeline = match &args.file {
        Some(file) => from_file(file, &args.run, global)?,
        None => from_site(&args, global).await?,
    };
    if global.json {
        return print_steps(&timeline, args.at);
    }
    let keys = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.plain || !keys {
        return print_plain(&timeline, args.at);
    }
    tokio::task::spawn_blocking(move || terminal::show(&timeline, args.at)).await.context("cannot show the screen")?
}

async fn from_site(args: &ReplayArgs, global: &Global) -> Result<Timeline> {
    let connection = Connection::to_read(global).await?;
    let key = connection.key(&args.run)?;
    let head = connection.read_head(key.clone()).await?;
    let generation = args.generation.unwrap_or(head.generation);
    let mut records: Vec<Record> = Vec::new();
    loop {
        let from = records.last().map_or(Index(0), Record::next_index);
        let page = connection.read_log(key.clone(), Some(generation), from, PAGE).await?;
        if page.is_empty() {
            break;
        }
        records.extend(page);
    }
    let message = format!("run {key} has no log of generation {generation}");
    Timeline::new(key, records).ok_or_else(|| Mistake::new(ErrorCode::RunNotFound, message, None).into())
}

fn from_file(file: &Path, run: &str, global: &Global) -> Result<Timeline> {
    let text = read_file(file, "the log")?;
    let key = RunKey::new(global.namespace()?, RunId::new(run).map_err(RuntimeError::from)?);
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let record: Record = serde_json::from_str(line).map_err(|error| unreadable(file, number + 1, &error.to_string()))?;
        if record.events.is_empty() || records.last().map_or(0, |last: &Record| last.next_index().0) != record.index.0 {
            return Err(unreadable(file, number + 1, "events are missing before this line").into());
        }
        records.push(record);
    }
    Timeline::new(key, records).ok_or_else(|| unreadable(file, 1, "the log does not start with run_started").into())
}

fn unreadable(file: &Path, line: usize, why: &str) -> Mistake {
    let message = format!("{}:{line}: {why}", file.display());
    Mistake::new(ErrorCode::LogUnreadable, message, Some("use the output of `onward run events RUN --json`"))
}

/// Prints every record with its events, and what the run waits for and its state after it if they changed.
fn print_plain(timeline: &Timeline, from: u64) -> Result<()> {
    let style = Style::stdout();
    // Waits and state from before the first printed event count as shown.
    let before = timeline.lines.iter().rposition(|line| line.index.0 < from).map(|at| timeline.moment(at).view);
    let mut shown = before.map_or((Vec::new(), Vec::new()), |view| (awaiting(&view), state(&view)));
    for (at, line) in timeline.lines.iter().enumerate() {
        let last_of_record = timeline.lines.get(at + 1).is_none_or(|next| next.record != line.record);
        if line.index.0 < from {
            continue;
        }
        let moment = timeline.moment(at);
        let mut text = String::new();
        if line.offset == 0 {
            let title = if line.is_input { "input" } else { moment.record.split(": ").last().unwrap_or_default() };
            text.push_str(&format!("{}\n", style.dim(&format!("-- {title}"))));
        }
        text.push_str(&format!("{:<4} {:>10}  {:<18} {}\n", line.index.0, line.after, line.name, line.what));
        if last_of_record {
            let (waits, values) = (awaiting(&moment.view), state(&moment.view));
            if waits != shown.0 && !waits.is_empty() {
                text.push_str(&format!("       waits for: {}\n", waits.join("; ")));
            }
            if values != shown.1 && !values.is_empty() {
                text.push_str(&format!("       state: {}\n", values.join(", ")));
            }
            shown = (waits, values);
        }
        print(&text)?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Step<'a> {
    index: u64,
    at: Timestamp,
    commit: Option<u64>,
    event: &'a Event,
    run: View<'a>,
}

/// Prints one JSON line for each event, with the view of the run after it.
fn print_steps(timeline: &Timeline, from: u64) -> Result<()> {
    for (at, line) in timeline.lines.iter().enumerate().filter(|(_, line)| line.index.0 >= from) {
        let moment = timeline.moment(at);
        let commit = timeline.records[line.record].commit.map(|commit| commit.n);
        let step =
            Step { index: line.index.0, at: timeline.time(at), commit, event: timeline.event(at), run: View::from(&moment.view) };
        print_json(&step)?;
    }
    Ok(())
}
