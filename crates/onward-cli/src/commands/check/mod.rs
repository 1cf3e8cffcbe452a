//! `onward check`: tests before a deployment whether a new program can continue the open runs.
//!
//! Collects logs, starts the program in a mode that only replays them ([`onward::check`]), and shows the verdicts.

pub(crate) mod collect;
mod program;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward::check::{CheckResult, RUNS, Verdict};

use crate::args::Global;
use crate::commands::run::format_pause;
use crate::error::{Exit, FAILURE};
use crate::modes::create_private;
use crate::new_id::random_u64;
use crate::output::{Cell, Style, TextTable, cells, json_line, print, print_stderr};

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

pub async fn execute(args: CheckArgs, global: &Global) -> Result<()> {
    let folder = Folder::make()?;
    let runs = folder.path.join(RUNS);
    let count = match &args.from {
        Some(file) => collect::copy(file, &runs)?,
        None => collect::collect(&args, global, &runs).await?,
    };
    if let Some(file) = &args.save {
        std::fs::copy(&runs, file).with_context(|| format!("cannot write {}", file.display()))?;
        print_stderr(&format!("wrote {count} runs to {}", file.display()));
    }
    let Some((program, arguments)) = args.command.split_first() else { return Ok(()) };
    let verdicts = match count {
        0 => Vec::new(),
        count => program::check(program, arguments, &folder.path, count, Duration::from_secs(args.timeout)).await?,
    };
    if global.json {
        for verdict in &verdicts {
            print(&(json_line(verdict)? + "\n"))?;
        }
    } else {
        print_verdicts(&verdicts)?;
    }
    let is_safe = |verdict: &Verdict| matches!(verdict.found, CheckResult::Safe | CheckResult::NoCode);
    if verdicts.iter().all(is_safe) { Ok(()) } else { Err(Exit(FAILURE).into()) }
}

/// Prints counts by kind and version, and every run that is not safe.
fn print_verdicts(verdicts: &[Verdict]) -> Result<()> {
    if verdicts.is_empty() {
        return Ok(print("no runs to check\n")?);
    }
    let mut counts: BTreeMap<(&str, &str), [u64; 5]> = BTreeMap::new();
    for verdict in verdicts {
        let version = verdict.version.as_ref().map_or("", |version| version.as_str());
        let column = match &verdict.found {
            CheckResult::Safe => 0,
            CheckResult::Pauses(_) => 1,
            CheckResult::Unreadable(_) => 2,
            CheckResult::NoVersion => 3,
            CheckResult::NoCode => 4,
        };
        counts.entry((verdict.kind.as_str(), version)).or_default()[column] += 1;
    }
    let paints: [fn(Style, &str) -> String; 5] = [Style::green, Style::red, Style::red, Style::red, Style::yellow];
    let mut table = TextTable::new(&["KIND", "VERSION", "SAFE", "PAUSES", "UNREADABLE", "NO VERSION", "NO CODE"]);
    for ((kind, version), counts) in &counts {
        let painted = counts.iter().zip(paints).map(|(count, paint)| match count {
            0 => Cell::new("0"),
            count => Cell::from(count).paint(paint),
        });
        table.row(cells![kind, version].into_iter().chain(painted).collect());
    }
    print(&table.take())?;
    for Verdict { run, kind, found, .. } in verdicts {
        match found {
            CheckResult::Pauses(pause) => print(&format!("\nrun {} ({kind}) would pause\n{}", run.id, format_pause(pause)))?,
            CheckResult::Unreadable(why) => print(&format!("\nrun {} ({kind}) cannot be read by the program: {why}\n", run.id))?,
            CheckResult::NoVersion => {
                print(&format!("\nrun {} ({kind}) is pinned to a version that the program has no code for\n", run.id))?
            }
            CheckResult::Safe | CheckResult::NoCode => {}
        }
    }
    Ok(())
}

/// A temporary folder with mode 0700, because logs may be confidential; removed on drop.
struct Folder {
    path: PathBuf,
}

impl Folder {
    fn make() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("onward-check-{:016x}", random_u64()));
        create_private(&path)?;
        Ok(Folder { path })
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.path));
    }
}
