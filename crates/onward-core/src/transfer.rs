//! Runs as lines of JSON: how they leave one store and come into another.
//!
//! The first line names the format. Then, for each run, one line with its key and the number of its generations, and one line for each of
//! its records, exactly as they are: payloads keep their bytes. Leases and attempts are in no log and so in no line.
//!
//! ```text
//! {"onward_export":1}
//! {"run":{"namespace":"default","id":"order-42"},"generations":1}
//! {"generation":0,"record":{"index":0,"at":"2026-11-15T08:00:00.000Z","events":[{"type":"run_started", …}]}}
//! ```
//!
//! Invariant U2: what is written, read and written again is the same, byte for byte.

mod belonging;

pub use belonging::{children_asked_for, foreign_run};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{Record, RunKey};

/// What this program writes, and the only thing it reads.
pub const FORMAT: u32 = 1;

/// A run with the logs of all its generations.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedRun {
    pub key: RunKey,
    pub logs: Vec<Vec<Record>>,
}

/// Why lines are not runs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TransferError {
    pub line: u64,
    pub why: String,
}

#[derive(Serialize)]
struct RunLine<'a> {
    run: &'a RunKey,
    generations: usize,
}

#[derive(Serialize)]
struct RecordLine<'a> {
    generation: usize,
    record: &'a Record,
}

/// Any line; the raw text keeps payloads as they are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    onward_export: Option<u32>,
    run: Option<RunKey>,
    generations: Option<usize>,
    generation: Option<usize>,
    record: Option<Box<RawValue>>,
}

/// The first line.
pub fn header() -> String {
    format!("{{\"onward_export\":{FORMAT}}}\n")
}

impl ExportedRun {
    pub fn to_lines(&self) -> String {
        let line = |text: serde_json::Result<String>| text.expect("runs are plain data") + "\n";
        let mut lines = line(serde_json::to_string(&RunLine { run: &self.key, generations: self.logs.len() }));
        for (generation, log) in self.logs.iter().enumerate() {
            for record in log {
                lines += &line(serde_json::to_string(&RecordLine { generation, record }));
            }
        }
        lines
    }
}

/// Reads runs line by line.
#[derive(Debug, Default)]
pub struct Importer {
    line: u64,
    has_header: bool,
    /// The run at hand, and how many generations it has to have.
    run: Option<(ExportedRun, usize)>,
}

impl Importer {
    /// Takes a line; returns the run before, when this one begins another.
    pub fn take(&mut self, text: &str) -> Result<Option<ExportedRun>, TransferError> {
        self.line += 1;
        if text.trim().is_empty() {
            return Ok(None);
        }
        let line: Line = serde_json::from_str(text).map_err(|error| self.wrong(error.to_string()))?;
        match line {
            Line { onward_export: Some(FORMAT), run: None, record: None, .. } if !self.has_header => {
                self.has_header = true;
                Ok(None)
            }
            Line { onward_export: Some(format), .. } => Err(self.wrong(format!("format {format} does not belong here"))),
            _ if !self.has_header => Err(self.wrong("the line that names the format is missing".to_owned())),
            Line { run: Some(key), generations: Some(count), record: None, .. } => {
                let before = self.finish()?;
                self.run = Some((ExportedRun { key, logs: vec![Vec::new()] }, count));
                Ok(before)
            }
            Line { generation: Some(generation), record: Some(record), run: None, .. } => {
                self.take_record(generation, &record)?;
                Ok(None)
            }
            _ => Err(self.wrong("it is neither a run nor a record".to_owned())),
        }
    }

    fn take_record(&mut self, generation: usize, record: &RawValue) -> Result<(), TransferError> {
        let record: Record = serde_json::from_str(record.get()).map_err(|error| self.wrong(error.to_string()))?;
        let Some((run, _)) = &mut self.run else { return Err(self.wrong("a record without a run".to_owned())) };
        if generation == run.logs.len() {
            run.logs.push(Vec::new());
        }
        if generation + 1 != run.logs.len() {
            return Err(self.wrong(format!("generation {generation} is out of order")));
        }
        run.logs[generation].push(record);
        Ok(())
    }

    /// The last run, when there are no more lines.
    pub fn finish(&mut self) -> Result<Option<ExportedRun>, TransferError> {
        match self.run.take() {
            None if !self.has_header => Err(self.wrong("there is nothing to import".to_owned())),
            None => Ok(None),
            Some((run, count)) if run.logs.len() == count && !run.logs.iter().any(Vec::is_empty) => Ok(Some(run)),
            Some((run, _)) => Err(self.wrong(format!("run {} ends too early", run.key))),
        }
    }

    fn wrong(&self, why: String) -> TransferError {
        TransferError { line: self.line, why }
    }
}

/// All runs of a text.
pub fn read(text: &str) -> Result<Vec<ExportedRun>, TransferError> {
    let (mut importer, mut runs) = (Importer::default(), Vec::new());
    for line in text.lines() {
        runs.extend(importer.take(line)?);
    }
    runs.extend(importer.finish()?);
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::RunStarted;
    use crate::{Index, Name, Namespace, Payload, RunId, Timestamp};

    fn run(id: &str, payload: Payload) -> ExportedRun {
        let key = RunKey::new(Namespace::default(), RunId::new(id).unwrap());
        let started = RunStarted::new(Name::new("k").unwrap(), payload, 7);
        ExportedRun { key, logs: vec![vec![Record::input(Index(0), Timestamp(1), started.into())]] }
    }

    #[test]
    fn runs_read_back_and_their_text_is_the_same() {
        let bytes = Payload::binary("application/octet-stream", vec![0u8, 255, 10]);
        let runs = [run("a", Payload::from_json_text("{\"b\": 1.0,  \"a\":9007199254740993}".to_owned())), run("b", bytes)];
        let text = header() + &runs.iter().map(ExportedRun::to_lines).collect::<String>();
        let read = read(&text).unwrap();
        assert_eq!(read, runs);
        assert_eq!(header() + &read.iter().map(ExportedRun::to_lines).collect::<String>(), text);
    }

    #[test]
    fn lines_that_are_no_runs_are_refused_by_their_number() {
        let lines = header() + &run("a", Payload::null()).to_lines();
        let cut: String = lines.lines().take(2).map(|line| format!("{line}\n")).collect();
        let later = lines.replace("\"onward_export\":1", "\"onward_export\":2");
        for (text, line) in [("", 0), ("{}", 1), ("nonsense", 1), (cut.as_str(), 2), (later.as_str(), 1)] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
        let headless: String = lines.lines().skip(1).map(|line| format!("{line}\n")).collect();
        assert_eq!(read(&headless).unwrap_err().line, 1);
    }
}
