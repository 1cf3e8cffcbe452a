//! `onward check`: tests before a deployment whether a new program can continue the open runs.
//!
//! Collects logs, starts the program in a mode that only replays them ([`onward::check`]), and shows the verdicts.

mod collect;
mod program;
mod tell;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward::check::{CheckResult, RUNS, Verdict};

use crate::args::Global;
use crate::new_id::random_u64;
use crate::output::{json_line, print, say};

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Check only these runs [default: all open runs]
    #[arg(long = "run", value_name = "ID", conflicts_with_all = ["kind", "closed", "from"])]
    runs: Vec<String>,
    /// Check only runs of this kind
    #[arg(long, conflicts_with = "from")]
    kind: Option<String>,
    /// Include closed runs; with --from, all runs of the file are checked anyway
    #[arg(long)]
    closed: bool,
    /// Check the runs of a file written by --save
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Write the runs to this file for a later check
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Time limit of the program in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    timeout: u64,
    /// Program with the new code, and its arguments
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
        say(&format!("wrote {count} runs to {}", file.display()));
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
    let is_safe = |verdict: &Verdict| matches!(verdict.found, CheckResult::Safe | CheckResult::NoCode);
    Ok(if verdicts.iter().all(is_safe) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A temporary folder with mode 0700, because logs may be confidential; removed on drop.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make() -> Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("onward-check-{:016x}", random_u64()));
        let made = std::fs::DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}
