//! `onward check`: would a new program go on with the runs that are open? Asked before it is deployed.
//!
//! Collects logs, starts the program so that it only replays them ([`onward::check`]), and shows what it found.

mod collect;
mod program;
mod tell;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward::check::{Found, RUNS, Verdict};

use crate::args::Global;
use crate::new_id::random_u64;
use crate::output::{json_line, print, say};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Only these runs; otherwise all that are open
    #[arg(long = "run", value_name = "ID", conflicts_with_all = ["kind", "closed", "from"])]
    runs: Vec<String>,
    /// Only runs of this workflow
    #[arg(long, conflicts_with = "from")]
    kind: Option<String>,
    /// Closed runs too; of a file, all that are in it are checked in any case
    #[arg(long)]
    closed: bool,
    /// Check the runs of this file, which `--save` made
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Write the runs to this file, to be checked later
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// How long the program may take, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// The program with the new code, and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "save")]
    command: Vec<String>,
}

pub async fn execute(args: CheckArgs, global: &Global) -> Result<ExitCode> {
    let folder = Folder::make()?;
    let runs = folder.path.join(RUNS);
    let count = match &args.from {
        Some(file) => collect::copy(file, &runs)?,
        None => collect::collect(&args, global, &runs).await?,
    };
    if let Some(file) = &args.save {
        std::fs::copy(&runs, file).with_context(|| format!("cannot write {}", file.display()))?;
        say(&format!("{count} runs are in {}", file.display()));
    }
    let Some((program, arguments)) = args.command.split_first() else { return Ok(ExitCode::SUCCESS) };
    let verdicts = match count {
        0 => Vec::new(),
        count => program::check(program, arguments, &folder.path, count, Duration::from_secs(args.timeout)).await?,
    };
    if global.json {
        for verdict in &verdicts {
            print(&(json_line(verdict)? + "\n"))?;
        }
    } else {
        tell::tell(&verdicts)?;
    }
    let is_safe = |verdict: &Verdict| matches!(verdict.found, Found::Safe | Found::NoCode);
    Ok(if verdicts.iter().all(is_safe) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A folder of this check alone, gone when it is over: logs are nobody else's business.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make() -> Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("onward-check-{:016x}", random_u64()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}
