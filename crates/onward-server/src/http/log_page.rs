//! Pages of a run's log, bounded in events and in bytes.

use onward_core::{Index, Record, RunKey};
use onward_runtime::{Runtime, RuntimeError};
use serde_json::value::RawValue;

use crate::http::documents::{LogPosition, LoggedEvent};

/// Number of records per read.
pub(crate) const RECORDS: usize = 64;

/// Size at which a page ends early.
pub(crate) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Serialized event.
pub(crate) struct Line {
    pub generation: u32,
    pub index: Index,
    pub json: Box<RawValue>,
}

pub(crate) struct LogPage {
    pub lines: Vec<Line>,
    /// Position to continue from; `None` after the event that ends the run.
    pub next: Option<LogPosition>,
}

/// Reads up to `limit` events of one generation. A short page does not mean the end; an empty page does.
pub(crate) async fn read(runtime: &Runtime, key: &RunKey, at: LogPosition, limit: usize) -> Result<LogPage, RuntimeError> {
    let mut page = LogPage { lines: Vec::new(), next: Some(at) };
    let mut bytes = 0;
    while let Some(next) = page.next.filter(|next| next.generation == at.generation) {
        if page.lines.len() >= limit || bytes >= PAGE_BYTES_MAX {
            break;
        }
        let records = runtime.read_log(key, Some(at.generation), next.from, RECORDS.min(limit)).await?;
        if records.is_empty() {
            break;
        }
        for record in &records {
            bytes += page.take(record, at, limit);
        }
    }
    // A failed run may have been retried since; then it has a next generation.
    if page.next.is_none() && runtime.read_head(key).await?.generation > at.generation {
        page.next = Some(next_log(runtime, key, at.generation).await?);
    }
    Ok(page)
}

/// Returns where the next generation continues. A copy of events that were read already is skipped.
pub(crate) async fn next_log(runtime: &Runtime, key: &RunKey, generation: u32) -> Result<LogPosition, RuntimeError> {
    let (generation, from) = runtime.next_log(key, generation).await?;
    Ok(LogPosition { generation, from })
}

impl LogPage {
    /// Adds the events of a record from the page's position on; returns their size.
    fn take(&mut self, record: &Record, at: LogPosition, limit: usize) -> usize {
        let mut bytes = 0;
        for (index, event) in record.indexed().filter(|(index, _)| *index >= at.from) {
            if self.lines.len() >= limit {
                break;
            }
            let commit = record.commit.map(|commit| commit.n);
            let (generation, at) = (at.generation, record.at);
            let json = serde_json::value::to_raw_value(&LoggedEvent { generation, index, at, commit, event });
            let json = json.expect("events serialize");
            bytes += json.get().len();
            self.lines.push(Line { generation, index, json });
            self.next = match event {
                onward_core::Event::RunContinued(_) => Some(LogPosition { generation: generation + 1, from: Index(0) }),
                event if event.ends_log() => None,
                _ => Some(LogPosition { generation, from: index.plus(1) }),
            };
        }
        bytes
    }
}
