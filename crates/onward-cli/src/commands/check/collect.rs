//! The runs to check, from a store or from a file.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use onward::check::RunToCheck;
use onward_core::{Index, Name, RunHead, RunKey, Status};
use onward_runtime::RuntimeError;
use onward_store::RunQuery;

use super::CheckArgs;
use crate::args::Global;
use crate::output::Progress;
use crate::site::Site;

/// How many runs and records are read at a time.
const RUNS_PAGE: usize = 1_000;
const RECORDS_PAGE: usize = 1_000;

const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Paused];

/// Writes the runs that are asked for to a file, a line each; returns how many.
pub async fn collect(args: &CheckArgs, global: &Global, to: &Path) -> Result<u64> {
    let site = Site::to_read(global)?;
    let mut file = BufWriter::new(File::create(to).with_context(|| format!("cannot write {}", to.display()))?);
    let mut progress = Progress::new("runs", false);
    let mut count = 0;
    if !args.runs.is_empty() {
        for id in &args.runs {
            let head = site.read_head(site.key(id)?).await?;
            count += write(&site, head, &mut file).await?;
        }
        return Ok(count);
    }
    let statuses = if args.closed { Vec::new() } else { OPEN.to_vec() };
    let kind = args.kind.as_deref().map(Name::new).transpose().map_err(RuntimeError::from)?;
    let mut query = RunQuery { namespace: site.namespace.clone(), kind, statuses, limit: RUNS_PAGE, ..RunQuery::default() };
    loop {
        let page = site.list_runs(query.clone()).await?;
        for head in page.runs {
            count += write(&site, head, &mut file).await?;
            progress.at(count);
        }
        match page.next {
            Some(next) => query.cursor = Some(next),
            None => break,
        }
    }
    file.flush()?;
    Ok(count)
}

/// Writes one run. One that was deleted meanwhile need not be checked.
async fn write(site: &Site, head: RunHead, file: &mut impl Write) -> Result<u64> {
    let records = match read(site, &head.key, head.generation).await {
        Ok(records) => records,
        Err(error) if error.code() == "run_not_found" => return Ok(0),
        Err(error) => return Err(error).with_context(|| format!("cannot read the log of run {}", head.key.id)),
    };
    let RunHead { key: run, kind, version, generation, .. } = head;
    serde_json::to_writer(&mut *file, &RunToCheck { run, kind, version, generation, records })?;
    writeln!(file)?;
    Ok(1)
}

async fn read(site: &Site, key: &RunKey, generation: u32) -> Result<Vec<onward_core::Record>, RuntimeError> {
    let mut records: Vec<onward_core::Record> = Vec::new();
    loop {
        let from = records.last().map_or(Index(0), onward_core::Record::next_index);
        let page = site.read_log(key.clone(), Some(generation), from, RECORDS_PAGE).await?;
        if page.is_empty() {
            return Ok(records);
        }
        records.extend(page);
    }
}

/// Takes the runs of a file that was saved before; returns how many.
pub fn copy(from: &Path, to: &Path) -> Result<u64> {
    let unreadable = || format!("cannot read {}", from.display());
    let mut count = 0;
    for line in BufReader::new(File::open(from).with_context(unreadable)?).lines() {
        let line = line.with_context(unreadable)?;
        count += 1;
        serde_json::from_str::<RunToCheck>(&line).with_context(|| format!("{}: line {count} is no run", from.display()))?;
    }
    std::fs::copy(from, to).with_context(unreadable)?;
    Ok(count)
}
