//! `onward export` and `onward import`: runs out of one store and into another, as lines of JSON.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use onward_core::transfer::{self, ExportedRun, Importer};
use onward_core::{Name, RunId};
use onward_runtime::{Imported, Runtime, RuntimeError};
use onward_store::{RunQuery, StoreError};

use super::run::{WantedStatus, attribute};
use crate::args::Global;
use crate::directory::{open_to_read, open_to_write, run_key};
use crate::error::{FAILURE, Mistake};
use crate::output::{escape, print, print_json, say};

const PAGE: usize = 1_000;

/// How many runs are imported at a time, at most; what they owe to each other goes out behind them.
const BATCH: usize = 10_000;

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The runs; all that the filter finds otherwise
    ids: Vec<String>,
    /// Only runs of this workflow
    #[arg(long)]
    kind: Option<String>,
    /// Only runs of this version; may be given several times
    #[arg(long)]
    version: Vec<String>,
    /// Only runs of this status; may be given several times
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    status: Vec<WantedStatus>,
    /// Only runs with this value of an attribute; may be given several times
    #[arg(long, value_name = "NAME=VALUE")]
    attr: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file, or `-` for standard input
    file: PathBuf,
}

pub async fn export(args: ExportArgs, global: &Global) -> Result<ExitCode> {
    let runtime = open_to_read(&global.directory())?;
    let mut out = std::io::stdout().lock();
    if !args.ids.is_empty() {
        let mut header = Some(transfer::header());
        for id in &args.ids {
            let run = runtime.export_run(&run_key(id)?).await?;
            out.write_all(header.take().unwrap_or_default().as_bytes())?; // nothing is written for what is not there
            out.write_all(run.to_lines().as_bytes())?;
        }
        out.write_all(transfer::footer(args.ids.len() as u64).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    out.write_all(transfer::header().as_bytes())?;
    let mut count = 0;
    let mut query = RunQuery {
        kind: args.kind.as_deref().map(Name::new).transpose()?,
        versions: args.version.iter().map(|version| Name::new(version).map(Some)).collect::<Result<_, _>>()?,
        statuses: args.status.iter().map(|status| status.0).collect(),
        attributes: args.attr.iter().map(|text| attribute(text)).collect::<Result<_, _>>()?,
        limit: PAGE,
        ..RunQuery::default()
    };
    loop {
        let page = runtime.list_runs(query.clone()).await?;
        for head in &page.runs {
            match runtime.export_run(&head.key).await {
                Ok(run) => {
                    out.write_all(run.to_lines().as_bytes())?;
                    count += 1;
                }
                // It was deleted since it was listed.
                Err(RuntimeError::Store(StoreError::RunNotFound { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        match page.next {
            None => {
                out.write_all(transfer::footer(count).as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
            next => query.cursor = next,
        }
    }
}

pub async fn import(args: ImportArgs, global: &Global) -> Result<ExitCode> {
    let source: Box<dyn Read> = if args.file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?)
    };
    let runtime = open_to_write(&global.directory())?;
    let (mut importer, mut batch, mut all) = (Importer::default(), Vec::new(), Imported::default());
    for line in BufReader::new(source).lines() {
        batch.extend(importer.take(&line?).map_err(|error| mistake(&error))?);
        if batch.len() == BATCH {
            take(&runtime, std::mem::take(&mut batch), &mut all).await?;
        }
    }
    importer.finish().map_err(|error| mistake(&error))?;
    take(&runtime, batch, &mut all).await?;
    tell(&all, global)
}

async fn take(runtime: &Runtime, batch: Vec<ExportedRun>, all: &mut Imported) -> Result<()> {
    let Imported { created, unchanged, refused } = runtime.import_runs(batch).await?;
    all.created.extend(created);
    all.unchanged.extend(unchanged);
    all.refused.extend(refused);
    Ok(())
}

fn tell(all: &Imported, global: &Global) -> Result<ExitCode> {
    if global.json {
        let refused: Vec<_> = all.refused.iter().map(|(run, code)| serde_json::json!({"run": run, "code": code})).collect();
        print_json(&serde_json::json!({"created": all.created, "unchanged": all.unchanged, "refused": refused}))?;
    } else {
        print(&format!("{} runs imported, {} were there already", all.created.len(), all.unchanged.len()))?;
        let line = |(run, code): &(RunId, &str)| say(&format!("{} was refused: {code}", escape::text(run.as_str())));
        all.refused.iter().for_each(line);
    }
    Ok(if all.refused.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn mistake(error: &transfer::TransferError) -> Mistake {
    let hint = Some("what came before this line may have been imported; import the whole file again".to_owned());
    Mistake { code: "import_invalid", message: format!("the file cannot be imported: {error}"), hint, exit: FAILURE }
}
