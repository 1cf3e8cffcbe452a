//! Export and import: runs as JSON lines, to move them from one store to another.
//!
//! The first line names the format. For each run follow one line with its key, the number of records of each generation and the
//! definitions of flows that it needs, and one line per record with its payloads byte for byte. A definition stands before the
//! first run that needs it. A run that could not be read is listed as left out. The last line has the number of runs, and the
//! start of the next page if there is one. Leases and attempts are not in the log and not exported.
//!
//! ```text
//! {"onward_export":1}
//! {"run":{"namespace":"default","id":"order-42"},"records":[1]}
//! {"generation":0,"record":{"index":0,"at":"2026-11-15T08:00:00.000Z","events":[{"type":"run_started", …}]}}
//! {"flow":"greet","version":"9d0704d4f628d055","document":"flow: greet\n…"}
//! {"run":{"namespace":"default","id":"greet-1"},"records":[2],"flows":[{"flow":"greet","version":"9d0704d4f628d055"}]}
//! …
//! {"left_out":{"namespace":"default","id":"order-43"},"code":"log_corrupt"}
//! {"runs":2}
//! ```
//!
//! Invariants:
//! - U2: export, import and another export give the same bytes.
//! - U5: a run is imported whole or not at all, and a truncated file is detected wherever it is truncated.

mod belonging;
mod definitions;
mod received;

use std::sync::Arc;

pub use belonging::{child_calls, foreign_run};
use definitions::Definitions;
pub use definitions::{ExportWriter, ExportedFlow, FlowRef};
pub(crate) use received::imported_calls;
pub use received::{is_same_log, receive};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Name, Record, RunKey};

/// The format that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// A run with the logs of all its generations, and the definitions of flows that it needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedRun {
    pub key: RunKey,
    pub logs: Vec<Vec<Record>>,
    pub flows: Vec<Arc<ExportedFlow>>,
}

/// A line that is not part of a valid export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TransferError {
    pub line: u64,
    pub why: String,
}

#[derive(Serialize)]
struct RunLine<'a> {
    run: &'a RunKey,
    records: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flows: Vec<&'a FlowRef>,
}

#[derive(Serialize)]
struct RecordLine<'a> {
    generation: usize,
    record: &'a Record,
}

/// A run that could not be exported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    #[serde(rename = "left_out")]
    pub key: RunKey,
    pub code: String,
}

/// Any line; the raw text keeps payloads unchanged.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ExportLine {
    onward_export: Option<u32>,
    run: Option<RunKey>,
    records: Option<Vec<usize>>,
    generation: Option<usize>,
    record: Option<Box<RawValue>>,
    left_out: Option<RunKey>,
    code: Option<String>,
    runs: Option<u64>,
    next: Option<String>,
    flows: Option<Vec<FlowRef>>,
    flow: Option<Name>,
    version: Option<Name>,
    document: Option<String>,
}

#[derive(Serialize)]
struct Footer<'a> {
    runs: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<&'a str>,
}

/// Returns the first line.
pub fn header() -> String {
    format!("{{\"onward_export\":{FORMAT}}}\n")
}

/// Returns the last line of a file with `runs` runs; `next` is the start of the next page, if any.
fn footer(runs: u64, next: Option<&str>) -> String {
    line(&Footer { runs, next })
}

fn line(what: &impl Serialize) -> String {
    serde_json::to_string(what).expect("runs are plain data") + "\n"
}

impl LeftOut {
    pub fn to_line(&self) -> String {
        line(self)
    }
}

impl ExportedRun {
    /// Returns the lines of the run, without those of its definitions.
    fn to_lines(&self) -> String {
        let (records, flows) = (self.logs.iter().map(Vec::len).collect(), self.flows.iter().map(|flow| &flow.name).collect());
        let mut lines = line(&RunLine { run: &self.key, records, flows });
        for (generation, log) in self.logs.iter().enumerate() {
            for record in log {
                lines += &line(&RecordLine { generation, record: &received::unmarked(record) });
            }
        }
        lines
    }
}

/// Exports runs as a whole file.
pub fn write(runs: &[ExportedRun]) -> String {
    let mut writer = ExportWriter::default();
    let lines: String = runs.iter().map(|run| writer.run(run)).collect();
    header() + &lines + &writer.footer(None)
}

/// Reads an export line by line.
#[derive(Debug, Default)]
pub struct Importer {
    line: u64,
    has_header: bool,
    has_footer: bool,
    /// The number of runs that have begun.
    runs: u64,
    /// The current run, and the expected number of records of each generation.
    run: Option<(ExportedRun, Vec<usize>)>,
    left_out: Vec<LeftOut>,
    next: Option<String>,
    definitions: Definitions,
}

impl Importer {
    /// Reads a line; returns the previous run when this line ends it.
    pub fn take(&mut self, text: &str) -> Result<Option<ExportedRun>, TransferError> {
        self.line += 1;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let line: ExportLine = serde_json::from_str(text).map_err(|error| self.wrong(error.to_string()))?;
        if self.has_footer {
            return Err(self.wrong("unexpected line after the last line of the export".to_owned()));
        }
        match line {
            ExportLine { onward_export: Some(FORMAT), run: None, record: None, .. } if !self.has_header => {
                self.has_header = true;
                Ok(None)
            }
            ExportLine { onward_export: Some(format), .. } => Err(self.wrong(format!("unexpected export format {format}"))),
            _ if !self.has_header => Err(self.wrong("the first line must name the format".to_owned())),
            ExportLine { generation: Some(generation), record: Some(record), run: None, .. } => {
                self.take_record(generation, &record)?;
                Ok(None)
            }
            ExportLine { flow: Some(flow), version: Some(version), document: Some(document), run: None, .. } => {
                let before = self.end_run()?;
                let name = FlowRef { flow, version };
                self.definitions.add(ExportedFlow { name, document }).map_err(|why| self.wrong(why))?;
                Ok(before)
            }
            ExportLine { run: Some(key), records: Some(counts), record: None, flows, .. } => {
                let before = self.end_run()?;
                self.begin_run(key, counts, &flows.unwrap_or_default())?;
                Ok(before)
            }
            ExportLine { left_out: Some(key), code: Some(code), .. } => {
                self.left_out.push(LeftOut { key, code });
                self.end_run()
            }
            ExportLine { runs: Some(count), next, .. } => {
                self.next = next;
                self.take_footer(count)
            }
            _ => Err(self.wrong("neither a run, nor a record, nor a definition".to_owned())),
        }
    }

    fn begin_run(&mut self, key: RunKey, counts: Vec<usize>, flows: &[FlowRef]) -> Result<(), TransferError> {
        self.runs += 1;
        let flows = self.definitions.named(flows).map_err(|why| self.wrong(why))?;
        self.run = Some((ExportedRun { key, logs: Vec::new(), flows }, counts));
        Ok(())
    }

    fn take_record(&mut self, generation: usize, record: &RawValue) -> Result<(), TransferError> {
        let record: Record = serde_json::from_str(record.get()).map_err(|error| self.wrong(error.to_string()))?;
        let Some((run, _)) = &mut self.run else { return Err(self.wrong("a record without a run".to_owned())) };
        if generation == run.logs.len() {
            run.logs.push(Vec::new());
        }
        match run.logs.split_last_mut() {
            Some((last, before)) if before.len() == generation => last.push(record),
            _ => return Err(self.wrong(format!("generation {generation} is out of order"))),
        }
        Ok(())
    }

    fn take_footer(&mut self, count: u64) -> Result<Option<ExportedRun>, TransferError> {
        let before = self.end_run()?;
        if count != self.runs {
            return Err(self.wrong(format!("expected {count} runs, found {}", self.runs)));
        }
        self.definitions.check_named().map_err(|why| self.wrong(why))?;
        self.has_footer = true;
        Ok(before)
    }

    /// Returns the current run, which must be complete (U5).
    fn end_run(&mut self) -> Result<Option<ExportedRun>, TransferError> {
        let Some((run, expected)) = self.run.take() else { return Ok(None) };
        let found: Vec<usize> = run.logs.iter().map(Vec::len).collect();
        if found == expected && !found.contains(&0) && !found.is_empty() {
            return Ok(Some(run));
        }
        let (key, total, there) =
            (&run.key, expected.iter().fold(0, |all: usize, n| all.saturating_add(*n)), found.iter().sum::<usize>());
        Err(self.wrong(format!("run {key} is incomplete: expected {total} records, found {there}")))
    }

    /// Ends the import. Fails if the file is truncated.
    pub fn finish(&mut self) -> Result<(), TransferError> {
        if !self.has_header {
            return Err(self.wrong("the file is empty".to_owned()));
        }
        self.end_run()?;
        if self.has_footer { Ok(()) } else { Err(self.wrong("the file is truncated: its last line is missing".to_owned())) }
    }

    /// Returns the runs that could not be exported.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Returns the start of the next page, if the export has more pages.
    pub fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    fn wrong(&self, why: String) -> TransferError {
        TransferError { line: self.line, why }
    }
}

/// Reads all runs of an export.
pub fn read(text: &str) -> Result<Vec<ExportedRun>, TransferError> {
    let (mut importer, mut runs) = (Importer::default(), Vec::new());
    for line in text.lines() {
        runs.extend(importer.take(line)?);
    }
    importer.finish()?;
    Ok(runs)
}

#[cfg(test)]
mod tests;
