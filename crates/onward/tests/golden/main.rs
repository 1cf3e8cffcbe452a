//! Logs that were recorded once and must replay for ever: see `tests/logs/README.md`.
//!
//! `workflows` holds the code that made them and must go on agreeing with them; `recording` says what happened to each.

mod recording;
mod workflows;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use onward::testing::replay;
use onward_core::event::RunPaused;
use onward_core::{Event, Log, Record};

struct Golden {
    name: &'static str,
    record: fn() -> Log,
    replay: fn(&Log) -> Result<(), Box<RunPaused>>,
}

macro_rules! golden {
    ($($recorded:ident by $workflow:ident,)*) => {
        &[$(Golden {
            name: stringify!($recorded),
            record: recording::$recorded,
            replay: |log| replay(workflows::$workflow, log),
        },)*]
    };
}

const GOLDEN: &[Golden] = golden! {
    steps by steps,
    tasks by tasks,
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

/// The text of a golden file. A missing one is written if that is asked for; what is there is never touched.
fn stored(file: &str, make: impl FnOnce() -> String) -> String {
    let path = directory().join(file);
    if !path.exists() {
        let asked = std::env::var("ONWARD_RECORD_GOLDEN").is_ok_and(|value| value == "1");
        assert!(asked, "{file} is missing; record it with ONWARD_RECORD_GOLDEN=1 cargo test -p onward --test golden");
        std::fs::write(&path, make()).expect("a golden file can be written");
    }
    std::fs::read_to_string(&path).expect("a golden file can be read")
}

/// Each log with its text and its records' stored bytes. The two files of a log are made together.
fn goldens() -> impl Iterator<Item = (&'static Golden, String, Vec<String>)> {
    GOLDEN.iter().map(|golden| {
        let text = stored(&format!("{}.jsonl", golden.name), || (golden.record)().to_json_lines());
        let bodies = stored(&format!("{}.bodies", golden.name), || {
            let log = Log::from_json_lines(&text).expect("what was just recorded can be read");
            log.records().iter().map(|record| hex(&body(record)) + "\n").collect()
        });
        (golden, text, bodies.lines().map(str::to_owned).collect())
    })
}

/// One test, because it is the one that writes what is missing; the others look at what it left.
#[test]
fn a_recorded_log_replays_and_reads_back_byte_for_byte() {
    for (golden, text, bodies) in goldens() {
        let name = golden.name;
        let log = Log::from_json_lines(&text).unwrap_or_else(|error| panic!("{name} cannot be read: {error}"));
        assert_eq!(log.to_json_lines(), text, "{name}: its text comes out as it went in");
        assert_eq!(bodies.len(), log.records().len(), "{name}: one body for each record");
        for (record, stored) in log.records().iter().zip(&bodies) {
            let decoded = Record::decode_body(record.index, record.at, &unhex(stored));
            let decoded = decoded.unwrap_or_else(|error| panic!("{name}: the body at {} cannot be read: {error}", record.index));
            assert_eq!(&decoded, record, "{name}: the stored bytes and the text say the same");
            assert_eq!(&hex(&body(&decoded)), stored, "{name}: the bytes at {} come out as they went in", record.index);
        }
        if let Err(pause) = (golden.replay)(&log) {
            panic!("{name} does not replay any more: {}", pause.message);
        }
    }
}

/// Names every variant, so that an event without a golden log does not compile or does not pass.
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
}

#[test]
fn every_kind_of_event_is_in_a_recorded_log() {
    let mut missing: BTreeSet<&str> = EVERY_EVENT.iter().copied().collect();
    for golden in GOLDEN {
        for (_, event) in (golden.record)().events() {
            missing.remove(variant(event));
        }
    }
    assert_eq!(missing, BTreeSet::new());
}

#[test]
fn todays_engine_still_records_what_it_recorded() {
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
