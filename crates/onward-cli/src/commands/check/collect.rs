//! Collects the runs to check from a store or a file.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result};
use onward::check::{EarlierLog, RunToCheck};
use onward_core::api::RunQuery;
use onward_core::conversation::{Walk, entries_of, log_before};
use onward_core::log::prelude_of;
use onward_core::{ErrorCode, Index, Name, Record, RunHead, Status};
use onward_runtime::{RuntimeError, read_records};

use super::CheckArgs;
use crate::args::Global;
use crate::commands::run::Pages;
use crate::connection::Connection;
use crate::output::Progress;

/// Page size of run lists.
const PAGE: usize = 1_000;

/// The statuses of runs that have not ended.
pub const OPEN: [Status; 4] = [Status::Pending, Status::Running, Status::Waiting, Status::Paused];

/// Writes the selected runs to a file, one per line, and returns their number.
pub async fn collect(args: &CheckArgs, global: &Global, to: &Path) -> Result<u64> {
    let connection = Connection::to_read(global).await?;
    let mut file = BufWriter::new(File::create(to).with_context(|| format!("cannot write {}", to.display()))?);
    let count = match args.runs.as_slice() {
        [] => write_all(&connection, query(args, &connection)?, &mut file).await?,
        ids => {
            let mut count = 0;
            for id in ids {
                count += write(&connection, connection.read_head(connection.key(id)?).await?, &mut file).await?;
            }
            count
        }
    };
    file.flush().with_context(|| format!("cannot write {}", to.display()))?;
    Ok(count)
}

fn query(args: &CheckArgs, connection: &Connection) -> Result<RunQuery, RuntimeError> {
    let statuses = if args.closed { Vec::new() } else { OPEN.to_vec() };
    let kind = args.kind.as_deref().map(Name::new).transpose()?;
    Ok(RunQuery { namespace: connection.namespace.clone(), kind, statuses, limit: PAGE, ..RunQuery::default() })
}

async fn write_all(connection: &Connection, query: RunQuery, file: &mut impl Write) -> Result<u64> {
    let (mut pages, mut count) = (Pages::new(query), 0);
    let mut progress = Progress::new("runs", false);
    while let Some(runs) = pages.next(connection).await? {
        for head in runs {
            count += write(connection, head, file).await?;
            progress.at(count);
        }
    }
    Ok(count)
}

/// Writes one run. Skips external runs, standalone tasks, and runs that were deleted meanwhile.
async fn write(connection: &Connection, head: RunHead, file: &mut impl Write) -> Result<u64> {
    if head.external.is_some() || head.is_task {
        return Ok(0);
    }
    let run = match read(connection, &head).await {
        Ok(run) => run,
        Err(error) if error.code() == ErrorCode::RunNotFound => return Ok(0),
        Err(error) => return Err(error).with_context(|| format!("cannot read the log of run {}", head.key.id)),
    };
    serde_json::to_writer(&mut *file, &run)?;
    writeln!(file)?;
    Ok(1)
}

/// Reads the log of the run, the log that the code of an agent replays before it, and the logs with its conversation.
async fn read(connection: &Connection, head: &RunHead) -> Result<RunToCheck, RuntimeError> {
    let records = read_records(&**connection, head).await?;
    let prelude = match prelude_of(&records) {
        Some(generation) => read_earlier(connection, head, generation).await?,
        None => Vec::new(),
    };
    let earlier = read_conversation(connection, head, &records).await?;
    let RunHead { key: run, kind, version, generation, .. } = head.clone();
    Ok(RunToCheck { run, kind, version, generation, records, prelude, earlier })
}

/// Reads the earlier logs that have the conversation continued by `records`, latest first.
async fn read_conversation(connection: &Connection, head: &RunHead, records: &[Record]) -> Result<Vec<EarlierLog>, RuntimeError> {
    let checkpoint = records.first().and_then(Record::started).and_then(|started| started.checkpoint.as_ref());
    let mut walk = Walk::from(checkpoint.and_then(|checkpoint| checkpoint.leaf), usize::MAX);
    let mut next = records.first().and_then(|first| log_before(&head.key, first));
    let mut logs = Vec::new();
    while let Some(generation) = next.filter(|_| walk.wants().is_some()) {
        let records = read_earlier(connection, head, generation).await?;
        next = records.first().and_then(|first| log_before(&head.key, first));
        let wanted = walk.wants();
        walk.read(&entries_of(generation, &records));
        if walk.wants() != wanted {
            logs.push(EarlierLog { generation, records });
        }
    }
    Ok(logs)
}

/// Reads a complete earlier log. `next_index` of the head belongs to the open log and does not limit it.
async fn read_earlier(connection: &Connection, head: &RunHead, generation: u32) -> Result<Vec<Record>, RuntimeError> {
    read_records(&**connection, &RunHead { generation, next_index: Index(u64::MAX), ..head.clone() }).await
}

/// Copies the runs of a saved file and returns their number. Fails if a line is not a run.
pub fn copy(from: &Path, to: &Path) -> Result<u64> {
    let unreadable = || format!("cannot read {}", from.display());
    let mut count = 0;
    for line in BufReader::new(File::open(from).with_context(unreadable)?).lines() {
        let line = line.with_context(unreadable)?;
        count += 1;
        serde_json::from_str::<RunToCheck>(&line).with_context(|| format!("{}: line {count} is not a run", from.display()))?;
    }
    std::fs::copy(from, to).with_context(unreadable)?;
    Ok(count)
}
