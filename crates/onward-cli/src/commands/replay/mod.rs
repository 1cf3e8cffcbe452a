//! `onward replay`: steps through the log of a run, forward and back.
//!
//! Executes no code of the run: shows the calls, results and state that the log has at each event.

mod keys;
mod plain;
mod screen;
mod story;
mod terminal;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::{Index, Namespace, Record, RunId, RunKey};
use onward_runtime::RuntimeError;

use crate::args::Global;
use crate::connection::Connection;
use crate::error::{FAILURE, Mistake};
use story::Story;

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

pub async fn execute(args: ReplayArgs, global: &Global) -> Result<ExitCode> {
    let story = match &args.file {
        Some(file) => from_file(file, &args.run, global)?,
        None => from_site(&args, global).await?,
    };
    if global.json {
        plain::print_json(&story, args.at)?;
        return Ok(ExitCode::SUCCESS);
    }
    let keys = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    if args.plain || !keys {
        plain::print(&story, args.at)?;
        return Ok(ExitCode::SUCCESS);
    }
    tokio::task::spawn_blocking(move || terminal::show(&story, args.at)).await.context("cannot show the screen")??;
    Ok(ExitCode::SUCCESS)
}

async fn from_site(args: &ReplayArgs, global: &Global) -> Result<Story> {
    let connection = Connection::to_read(global)?;
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
    Story::new(key.clone(), records).ok_or_else(|| nothing(&key, generation).into())
}

fn nothing(key: &RunKey, generation: u32) -> Mistake {
    let message = format!("run {key} has no log of generation {generation}");
    Mistake { code: "run_not_found", message, hint: None, exit: crate::error::NOT_FOUND }
}

fn from_file(file: &Path, run: &str, global: &Global) -> Result<Story> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("cannot read the log from stdin")?
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read the log from {}", file.display()))?
    };
    let namespace: Namespace = global.namespace()?;
    let key = RunKey::new(namespace, RunId::new(run).map_err(RuntimeError::from)?);
    let mut records = Vec::new();
    for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let record: Record = serde_json::from_str(line).map_err(|error| unreadable(file, number + 1, &error.to_string()))?;
        if record.events.is_empty() || records.last().map_or(0, |last: &Record| last.next_index().0) != record.index.0 {
            return Err(unreadable(file, number + 1, "events are missing before this line").into());
        }
        records.push(record);
    }
    Story::new(key, records).ok_or_else(|| unreadable(file, 1, "the log does not start with run_started").into())
}

fn unreadable(file: &Path, line: usize, why: &str) -> Mistake {
    let message = format!("{}:{line}: {why}", file.display());
    let hint = Some("use the output of `onward run events RUN --json`".to_owned());
    Mistake { code: "log_unreadable", message, hint, exit: FAILURE }
}
