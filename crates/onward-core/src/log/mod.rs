//! The append-only record of one run.
//!
//! A [`Log`] is the only truth about a run; status, waits, timers and tasks are views of it (see [`crate::run::view`]).
//! It grows by two kinds of [`Record`] and no third: one input, or one whole commit. The outcome of a task and what its last attempt has
//! cost came as one report, and are one record.
//!
//! Invariants:
//! - H1 (L1): indexes start at 0 and have no gaps; a commit of k events takes k of them.
//! - H2: the first event is `run_started`, and nothing follows an event that ends the log.
//! - H3: commits are numbered 0, 1, 2, …, and their horizons never decrease.
//! - H4: a commit's horizon is at or past the commit before it: the engine sees its own commit before it goes on. A
//!   standing commit is made while nothing is shown to the code: for it H3 is enough.

pub mod codec;
pub mod event;
pub mod external;
pub(crate) mod faithful;
pub mod projection;
pub mod schema;
pub mod transfer;

use serde::{Deserialize, Serialize};

use crate::log::codec::{DecodeError, Field, Raw, Reader, put_nested};
use crate::log::event::{RunStarted, TaskAttemptEnded};
use crate::log::schema::{FieldLine, Proto, Schema};
use crate::{Epoch, Event, Index, Timestamp, message};

/// Made up by the worker for each commit, so that a repeat after a lost reply is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitId(pub u64);

message! {
    /// What a commit says about itself.
    #[derive(Copy, Eq)]
    pub struct CommitHeader {
        /// Counts the run's commits.
        1 => n: u64,
        2 => epoch: Epoch,
        3 => commit_id: CommitId,
        /// The last event the code had seen.
        4 => horizon: Index,
        /// The code could go on only with an input: what the run's status follows from.
        5 => waits: bool,
        /// Results of steps that ran on while the run was paused, and nothing else: the code was shown nothing since the horizon, and
        /// what it had asked for by then comes with the next commit.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        6 => is_standing: bool,
    }
}

/// One append: an input, or a whole commit. Only the outcome of a task is an input of two events: what its attempt has cost goes before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The index of the first event.
    pub index: Index,
    /// When the store took it, by the store's clock.
    pub at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub commit: Option<CommitHeader>,
    pub events: Vec<Event>,
}

impl Record {
    pub fn input(index: Index, at: Timestamp, event: Event) -> Record {
        Record { index, at, commit: None, events: vec![event] }
    }

    /// How the run began, if this is the first record of its log.
    pub fn started(&self) -> Option<&RunStarted> {
        match self.events.first() {
            Some(Event::RunStarted(started)) => Some(started),
            _ => None,
        }
    }

    /// What the attempt has cost whose outcome this is.
    pub fn cost(&self) -> Option<&TaskAttemptEnded> {
        match &self.events[..] {
            [Event::TaskAttemptEnded(cost), _] if self.commit.is_none() => Some(cost),
            _ => None,
        }
    }

    /// The index after the last event.
    pub fn next_index(&self) -> Index {
        self.index.plus(self.events.len() as u64)
    }

    pub fn last_index(&self) -> Index {
        Index(self.next_index().0 - 1)
    }

    /// Each event with its own index.
    pub fn indexed(&self) -> impl Iterator<Item = (Index, &Event)> {
        self.events.iter().enumerate().map(|(offset, event)| (self.index.plus(offset as u64), event))
    }

    pub fn ends_log(&self) -> bool {
        self.events.last().is_some_and(Event::ends_log)
    }

    /// Everything but `index` and `at`, which stores keep beside it.
    pub fn encode_body(&self, out: &mut Vec<u8>) {
        if let Some(commit) = &self.commit {
            commit.encode(1, out);
        }
        for event in &self.events {
            put_nested(2, out, |out| event.encode(out));
        }
    }

    pub fn decode_body(index: Index, at: Timestamp, body: &[u8]) -> Result<Record, DecodeError> {
        let mut record = Record { index, at, commit: None, events: Vec::with_capacity(1) };
        let mut reader = Reader::new(body);
        while let Some((number, raw)) = reader.field()? {
            match (number, raw) {
                (1, raw) => record.commit = Some(CommitHeader::decode(raw)?),
                (2, Raw::Bytes(bytes)) => record.events.push(Event::decode(bytes)?),
                _ => {}
            }
        }
        if record.events.is_empty() {
            return Err(DecodeError::Missing { message: "Record", field: "events" });
        }
        Ok(record)
    }
}

/// Index and time first, then the body as stores keep it.
impl Field for Record {
    fn encode(&self, number: u32, out: &mut Vec<u8>) {
        put_nested(number, out, |out| {
            self.index.encode(1, out);
            self.at.encode(2, out);
            put_nested(3, out, |out| self.encode_body(out));
        });
    }
    fn decode(raw: Raw<'_>) -> Result<Record, DecodeError> {
        let mut reader = Reader::new(raw.bytes("record")?);
        let (mut index, mut at, mut body) = (Index(0), Timestamp(0), &[][..]);
        while let Some((number, raw)) = reader.field()? {
            match number {
                1 => index = Index::decode(raw)?,
                2 => at = Timestamp::decode(raw)?,
                3 => body = raw.bytes("record")?,
                _ => {}
            }
        }
        Record::decode_body(index, at, body)
    }
    fn proto(schema: &mut Schema) -> Proto {
        let body = schema.message(
            "RecordBody",
            &["doc = \"An input, or a whole commit; `commit` is absent for an input. What an attempt has cost stands before its outcome.\""],
            |schema| {
                let (commit, event) = (CommitHeader::proto(schema), Event::proto(schema));
                vec![
                    FieldLine { number: 1, name: "commit", docs: &[], proto: commit },
                    FieldLine { number: 2, name: "events", docs: &[], proto: event.repeated() },
                ]
            },
        );
        schema.message("Record", &["doc = \"One append, with the index of its first event.\""], |_| {
            vec![
                FieldLine { number: 1, name: "index", docs: &[], proto: Proto::scalar("uint64") },
                FieldLine {
                    number: 2,
                    name: "at",
                    docs: &["doc = \"Milliseconds since 1970, by the store's clock.\""],
                    proto: Proto::scalar("uint64"),
                },
                FieldLine { number: 3, name: "body", docs: &[], proto: body },
            ]
        })
    }
}

/// A log that breaks its own rules: damaged data, or somebody else's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    #[error("the log has a gap: expected event {expected}, found {found}")]
    Gap { expected: Index, found: Index },
    #[error("event {index} follows the end of the log")]
    AfterEnd { index: Index },
    #[error("the log does not begin with `run_started`")]
    NoStart,
    #[error("commit {found} at event {index} is out of order: expected commit {expected}")]
    CommitOrder { index: Index, expected: u64, found: u64 },
    #[error("the commit at event {index} has horizon {horizon}, outside of what it could have seen")]
    Horizon { index: Index, horizon: Index },
    #[error("the record at event {index} has no event")]
    Empty { index: Index },
    #[error("the record at event {index} mixes inputs and commit events")]
    Mixed { index: Index },
}

/// A run's records, checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    records: Vec<Record>,
    next_commit: u64,
    /// The last event of the last commit, which the next horizon may not fall behind.
    last_commit: Index,
    last_horizon: Index,
}

/// The generation whose log the code of an agent replays before this one, whose records these are.
pub fn prelude_of(records: &[Record]) -> Option<u32> {
    records.first()?.started()?.checkpoint.as_ref()?.prelude
}

impl Log {
    /// Takes records as a store returned them; a broken invariant here is damaged data.
    pub fn load(records: Vec<Record>) -> Result<Log, LogError> {
        let mut log = Log::default();
        for record in records {
            log.push(record)?;
        }
        Ok(log)
    }

    /// Whether this is the log of a standalone task.
    fn is_task(&self) -> bool {
        self.records.first().and_then(Record::started).is_some_and(|started| started.task.is_some())
    }

    pub fn push(&mut self, record: Record) -> Result<(), LogError> {
        let expected = self.next_index();
        if record.index != expected {
            return Err(LogError::Gap { expected, found: record.index }); // H1
        }
        let Some((_, before_last)) = record.events.split_last() else {
            return Err(LogError::Empty { index: record.index }); // H1
        };
        if self.records.last().is_some_and(Record::ends_log) || before_last.iter().any(Event::ends_log) {
            return Err(LogError::AfterEnd { index: record.index }); // H2
        }
        let starts = record.started().is_some();
        if starts != self.records.is_empty() {
            return Err(LogError::NoStart); // H2
        }
        // The end of a standalone task comes from outside (R9).
        let is_input = |event: &Event| event.is_input() || (self.is_task() && event.ends_log());
        if record.events.iter().any(|event| is_input(event) == record.commit.is_some()) {
            return Err(LogError::Mixed { index: record.index });
        }
        if let Some(commit) = record.commit {
            if commit.n != self.next_commit {
                let (index, expected, found) = (record.index, self.next_commit, commit.n);
                return Err(LogError::CommitOrder { index, expected, found }); // H3
            }
            // A commit that leaves others behind stands where the first of them stood.
            let leaves = matches!(record.events.first(), Some(Event::SegmentAbandoned(_)));
            let earliest = match () {
                () if leaves => Index(0),
                () if commit.is_standing => self.last_horizon,
                () => self.last_commit,
            };
            if commit.horizon < earliest || commit.horizon >= record.index {
                return Err(LogError::Horizon { index: record.index, horizon: commit.horizon }); // H3, H4
            }
            self.next_commit += 1;
            self.last_commit = record.last_index();
            self.last_horizon = commit.horizon;
        }
        self.records.push(record);
        Ok(())
    }

    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub fn next_index(&self) -> Index {
        self.records.last().map_or(Index(0), Record::next_index)
    }

    pub fn events(&self) -> impl Iterator<Item = (Index, &Event)> {
        self.records.iter().flat_map(Record::indexed)
    }

    /// One record a line, payloads byte for byte.
    pub fn to_json_lines(&self) -> String {
        let line = |record: &Record| serde_json::to_string(record).expect("a record is plain data") + "\n";
        self.records.iter().map(line).collect()
    }

    pub fn from_json_lines(text: &str) -> Result<Log, Box<dyn std::error::Error + Send + Sync>> {
        let records: Result<Vec<Record>, _> =
            text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect();
        Ok(Log::load(records?)?)
    }
}
