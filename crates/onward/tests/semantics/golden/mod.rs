//! Logs that were recorded once and must replay forever: see `tests/logs/README.md`.
//!
//! `workflows` has the code that made them and must stay compatible with them; `recording` has the events of each.

mod recording;
mod schedule;
mod workflows;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use onward::testing::Replay;
use onward_core::event::RunPaused;
use onward_core::{Event, Log, Record};

struct Golden {
    name: &'static str,
    record: fn() -> Log,
    replay: fn(&Log) -> Result<(), Box<RunPaused>>,
}

macro_rules! golden {
    ($($recorded:ident by $workflow:ident,)*) => {
        &[Golden { name: "cell", record: recording::cell, replay: recording::read_cell }, Golden {
            name: "schedule",
            record: schedule::schedule,
            replay: schedule::read_schedule,
        }, Golden { name: "external", record: recording::external, replay: recording::read_external }, Golden {
            name: "agent",
            record: recording::agent,
            replay: |log| Replay::new("test", log).dep(true).against_agent(workflows::agent),
        }, Golden {
            name: "handed",
            record: recording::handed,
            replay: |log| Replay::new("test", log).against_agent(workflows::handed),
        }, Golden {
            name: "branched",
            record: recording::branched,
            replay: |log| Replay::new("test", log).against_agent(workflows::branched),
        }, $(Golden {
            name: stringify!($recorded),
            record: recording::$recorded,
            replay: |log| Replay::new("test", log).against(workflows::$workflow),
        },)*]
    };
}

const GOLDEN: &[Golden] = golden! {
    steps by steps,
    tasks by tasks,
    spending by tasks,
    budgets by budgets,
    settled by settled,
    timers by timers,
    signals by signals,
    approvals by approvals,
    promises by promises,
    children by children,
    state by state,
    versions by versions,
    updates by updates,
    canceled by trip,
    failed by failing,
    continued by pages,
    carried by pages,
    terminated by waiting,
    branches by branches,
    payloads by payloads,
    open by waiting,
    retried by reopened,
    forked by reopened,
    memos by memos,
    delayed by late,
};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/logs")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |position| u8::from_str_radix(&text[position..position + 2], 16).expect("two hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

fn body(record: &Record) -> Vec<u8> {
    let mut body = Vec::new();
    record.encode_body(&mut body);
    body
}

/// Returns the text of a golden file. Writes a missing one if the environment requests it; an existing one is never changed.
fn stored(file: &str, make: impl FnOnce() -> String) -> String {
    let path = directory().join(file);
    if !path.exists() {
        let records = std::env::var("ONWARD_RECORD_GOLDEN").is_ok_and(|value| value == "1");
        assert!(records, "{file} is missing; record it with ONWARD_RECORD_GOLDEN=1 cargo test -p onward --test golden");
        std::fs::write(&path, make()).expect("a golden file can be written");
    }
    std::fs::read_to_string(&path).expect("a golden file can be read")
}

struct Stored {
    golden: &'static Golden,
    text: String,
    /// The bodies of the records, in hexadecimal.
    bodies: Vec<String>,
}

impl Stored {
    fn log(&self) -> Log {
        Log::from_json_lines(&self.text).unwrap_or_else(|error| panic!("{} cannot be read: {error}", self.golden.name))
    }
}

/// Loaded once, so that only one test at a time writes missing files.
static STORED: LazyLock<Vec<Stored>> = LazyLock::new(|| {
    let load = |golden: &'static Golden| {
        let text = stored(&format!("{}.jsonl", golden.name), || (golden.record)().to_json_lines());
        let bodies = stored(&format!("{}.bodies", golden.name), || {
            let log = Log::from_json_lines(&text).expect("what was just recorded can be read");
            log.records().iter().map(|record| hex(&body(record)) + "\n").collect()
        });
        Stored { golden, text, bodies: bodies.lines().map(str::to_owned).collect() }
    };
    GOLDEN.iter().map(load).collect()
});

#[test]
fn a_recorded_log_replays_against_its_code() {
    for stored in &*STORED {
        if let Err(pause) = (stored.golden.replay)(&stored.log()) {
            panic!("{} does not replay any more: {}", stored.golden.name, pause.message);
        }
    }
}

#[test]
fn a_recorded_log_does_not_replay_against_other_code() {
    // A branch from outside is decided without code.
    let of_no_code = ["open", "terminated", "external", "branched", "cell", "schedule"];
    for stored in STORED.iter().filter(|stored| !of_no_code.contains(&stored.golden.name)) {
        assert!(Replay::new("test", &stored.log()).against(workflows::waiting).is_err(), "{}", stored.golden.name);
    }
}

#[test]
fn a_recorded_log_reads_back_byte_for_byte() {
    for stored in &*STORED {
        let (name, log) = (stored.golden.name, stored.log());
        assert_eq!(log.to_json_lines(), stored.text, "{name}: its text comes out as it went in");
        assert_eq!(stored.bodies.len(), log.records().len(), "{name}: one body for each record");
        for (record, bytes) in log.records().iter().zip(&stored.bodies) {
            let decoded = Record::decode_body(record.index, record.at, &unhex(bytes));
            let decoded = decoded.unwrap_or_else(|error| panic!("{name}: the body at {} cannot be read: {error}", record.index));
            assert_eq!(&decoded, record, "{name}: the stored bytes and the text say the same");
            assert_eq!(&hex(&body(&decoded)), bytes, "{name}: the bytes at {} come out as they went in", record.index);
        }
    }
}

/// Lists every variant, so that an event without a golden log does not compile or does not pass.
macro_rules! every_event {
    ($($variant:ident)*) => {
        fn variant(event: &Event) -> &'static str {
            match event { $(Event::$variant(_) => stringify!($variant),)* }
        }
        const EVERY_EVENT: &[&str] = &[$(stringify!($variant)),*];
    };
}

every_event! {
    RunStarted SignalReceived ApprovalDecided PromiseResolved UpdateReceived TaskCompleted TaskFailed TimerFired ChildCompleted
    ChildFailed CancelRequested TerminateRequested RunPaused RunResumed StepCompleted StepFailed TaskScheduled TaskCanceled
    TimerStarted SignalAwaited SignalConsumed ApprovalRequested PromiseCreated WaitCanceled StateSet StateCleared ChildStarted
    ChildCanceled SignalSent VersionChosen UpdateAnswered RunSuspended RunCompleted RunFailed RunCanceled RunContinued
    RetryRequested RunForked ResultRequested AttributeSet
    ExternalAppended TaskAttempted TaskAttemptEnded EntryAppended SegmentAbandoned CallAdopted ChildAwaited BranchRequested BudgetSet
    ChildSettled MemoRequested MemoAnswered MemoStored MemoReleased MemoAsked MemoSettled MemoReturned MemoInvalidated
    ScheduleDecided RunBegun
}

#[test]
fn every_kind_of_event_is_in_a_recorded_log() {
    let mut missing: BTreeSet<&str> = EVERY_EVENT.iter().copied().collect();
    for stored in &*STORED {
        for (_, event) in stored.log().events() {
            missing.remove(variant(event));
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn what_is_recorded_today_replays_and_reads_back() {
    for golden in GOLDEN {
        let log = (golden.record)();
        (golden.replay)(&log).unwrap_or_else(|pause| panic!("{}: {}", golden.name, pause.message));
        assert_eq!(Log::from_json_lines(&log.to_json_lines()).unwrap(), log, "{}", golden.name);
    }
}

#[test]
fn every_recorded_log_has_its_code() {
    let known: BTreeSet<String> =
        GOLDEN.iter().flat_map(|golden| [format!("{}.jsonl", golden.name), format!("{}.bodies", golden.name)]).collect();
    for entry in std::fs::read_dir(directory()).expect("the directory of golden logs is there") {
        let file = entry.unwrap().file_name().into_string().unwrap();
        assert!(known.contains(&file) || file == "README.md", "{file} has no code that replays it");
    }
}
