//! The JSON texts that cross: arrays whose first number says what they are. Values are not parsed here, only copied.

use std::fmt::Write;

use onward_bridge::{BridgeError, Called, ErrorKind, Function, HandBack, Outcome, StepJob, Work};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Writes a batch: an array of pieces of work.
pub fn write_work(work: &[Work]) -> String {
    let mut text = String::with_capacity(64 + work.len() * 64);
    text.push('[');
    for (position, work) in work.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        // Writing to a String cannot fail.
        let _ = write_one(&mut text, work);
    }
    text.push(']');
    text
}

fn write_one(text: &mut String, work: &Work) -> std::fmt::Result {
    match work {
        Work::Start { run, info, input, now } => write!(text, "[0,{run},{info},{input},{now}]"),
        Work::Answer { run, call, result, now } => {
            let (ok, value) = outcome(result);
            write!(text, "[1,{run},{call},{ok},{value},{now}]")
        }
        Work::Update { run, update, name, input, now } => {
            write!(text, "[2,{run},{},{},{input},{now}]", quoted(update), quoted(name))
        }
        Work::Step(StepJob { job, run, function, name, attempt, idempotency_key, trace }) => {
            let (undo, number) = match function {
                Function::Step(call) => (0, u64::from(*call)),
                Function::Undo(number) => (1, *number),
            };
            let (name, key) = (quoted(name), quoted(idempotency_key));
            write!(text, "[3,{job},{run},{undo},{number},{name},{attempt},{key},{}]", optional(trace.as_deref()))
        }
        Work::Task { job, kind, input, info } => write!(text, "[4,{job},{},{input},{info}]", quoted(kind)),
        Work::Cancel { job } => write!(text, "[5,{job}]"),
        Work::Query { query, run, name, input } => write!(text, "[6,{query},{run},{},{input}]", quoted(name)),
        Work::Close { run } => write!(text, "[7,{run}]"),
        Work::Reply { request, result } => {
            let (ok, value) = outcome(result);
            write!(text, "[8,{request},{ok},{value}]")
        }
        Work::Item { request, value } => write!(text, "[9,{request},{value}]"),
        Work::Ended => write!(text, "[10]"),
    }
}

/// Writes what came of a call: a value, an answer, a wait, a step to run, or an error.
pub fn write_called(called: Result<Called, BridgeError>) -> String {
    match called {
        Ok(Called::Value(value)) => format!("[0,{value}]"),
        Ok(Called::Answered { call, result }) => {
            let (ok, value) = outcome(&result);
            format!("[1,{call},{ok},{value}]")
        }
        Ok(Called::Waits { call, info }) => format!("[2,{call},{info}]"),
        Ok(Called::Step(StepJob { job, function, attempt, idempotency_key, trace, .. })) => {
            let call = match function {
                Function::Step(call) => u64::from(call),
                Function::Undo(number) => number,
            };
            format!("[3,{call},{job},{attempt},{},{}]", quoted(&idempotency_key), optional(trace.as_deref()))
        }
        Err(BridgeError { text, kind }) => format!("[4,{},{text}]", u8::from(matches!(kind, ErrorKind::Stopped))),
    }
}

/// The number of a job, whether it succeeded, and its value or failure.
pub type Finished = (u64, u8, Box<RawValue>);

/// A run, its step jobs that ended, and the end of the code.
#[derive(Deserialize)]
pub struct HandedBack(u64, Vec<Finished>, Option<(u8, Box<RawValue>)>);

pub fn read_hand_backs(text: &str) -> serde_json::Result<Vec<HandBack>> {
    let read: Vec<HandedBack> = serde_json::from_str(text)?;
    let hand_back = |HandedBack(run, jobs, end)| HandBack {
        run,
        finished: jobs.into_iter().map(finished).collect(),
        end: end.map(|(ok, value)| read_outcome(ok, value)),
    };
    Ok(read.into_iter().map(hand_back).collect())
}

pub fn read_finished(text: &str) -> serde_json::Result<Vec<(u64, Outcome)>> {
    let read: Vec<Finished> = serde_json::from_str(text)?;
    Ok(read.into_iter().map(finished).collect())
}

fn finished((job, ok, value): Finished) -> (u64, Outcome) {
    (job, read_outcome(ok, value))
}

fn read_outcome(ok: u8, value: Box<RawValue>) -> Outcome {
    let text = String::from(Box::<str>::from(value));
    if ok == 1 { Ok(text) } else { Err(text) }
}

fn outcome(outcome: &Outcome) -> (u8, &str) {
    match outcome {
        Ok(value) => (1, value),
        Err(failure) => (0, failure),
    }
}

/// Returns the JSON text of a string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn optional(text: Option<&str>) -> String {
    text.map_or_else(|| "null".to_owned(), quoted)
}
