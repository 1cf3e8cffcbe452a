//! A log with one position for each event, and the view of the run at each position.

use onward_core::moment::view_at;
use onward_core::view::RunView;
use onward_core::{Event, Index, Record, RunHead, RunKey, Timestamp};

use crate::output::{EventFormatter, time};

/// A log to step through.
pub struct Timeline {
    pub key: RunKey,
    pub records: Vec<Record>,
    /// One line for each event.
    pub lines: Vec<LogLine>,
}

/// An event as text.
pub struct LogLine {
    /// Its record, and its position in that record.
    pub record: usize,
    pub offset: usize,
    pub index: Index,
    pub after: String,
    pub name: &'static str,
    pub what: String,
    pub is_input: bool,
}

/// The run after one event.
pub struct Moment {
    pub view: RunView,
    /// Description of the commit or input with the event.
    pub record: String,
    /// Lines of this commit up to the event; none for an input.
    pub calls: Vec<usize>,
}

impl Timeline {
    /// Builds the timeline; `None` if the records are not a log.
    pub fn new(key: RunKey, records: Vec<Record>) -> Option<Timeline> {
        RunHead::rebuild(key.clone(), &records)?;
        let (start, mut event_formatter, mut lines) = (records.first()?.at, EventFormatter::default(), Vec::new());
        for (number, record) in records.iter().enumerate() {
            for (offset, (index, event)) in record.indexed().enumerate() {
                let (after, what) = (time::offset(record.at, start), event_formatter.format(record.at, event));
                let (name, is_input) = (event.name(), event.is_input());
                lines.push(LogLine { record: number, offset, index, after, name, what, is_input });
            }
        }
        Some(Timeline { key, records, lines })
    }

    pub fn last(&self) -> usize {
        self.lines.len() - 1
    }

    pub fn event(&self, at: usize) -> &Event {
        let line = &self.lines[at];
        &self.records[line.record].events[line.offset]
    }

    pub fn time(&self, at: usize) -> Timestamp {
        self.records[self.lines[at].record].at
    }

    /// Computes the view of the run after this event.
    pub fn moment(&self, at: usize) -> Moment {
        let line = &self.lines[at];
        let record = &self.records[line.record];
        let (view, _) = view_at(&self.key, &self.records, line.index).expect("the whole log has a view, so its beginnings have");
        let first = at - line.offset;
        let calls = if record.commit.is_some() { (first..=at).collect() } else { Vec::new() };
        Moment { view, record: format_record(record, line.offset), calls }
    }

    /// Returns the first event of the next record, or the last event of the log.
    pub fn next_record(&self, at: usize) -> usize {
        let next = self.lines.iter().position(|line| line.record > self.lines[at].record);
        next.unwrap_or(self.last())
    }

    /// Returns the first event of this record, or of the previous one if `at` is the first already.
    pub fn previous_record(&self, at: usize) -> usize {
        let line = &self.lines[at];
        let wanted = if line.offset > 0 { line.record } else { line.record.saturating_sub(1) };
        self.lines.iter().position(|line| line.record == wanted).unwrap_or(0)
    }
}

fn format_record(record: &Record, offset: usize) -> String {
    let Some(commit) = &record.commit else { return "an input from outside the code".to_owned() };
    let which = match record.events.len() {
        1 => format!("commit {}", commit.n),
        count => format!("event {} of {count} in commit {}", offset + 1, commit.n),
    };
    let then = match (commit.is_while_paused, commit.waits) {
        (true, _) => "results of steps while the run was paused",
        (false, true) => "then the code waited",
        (false, false) => "then the code could continue",
    };
    format!("{which}: the code had seen events up to {}; {then}", commit.horizon)
}

#[cfg(test)]
pub mod tests;
