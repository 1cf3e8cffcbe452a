//! Messages of the bridge as tuples. The tags are those of `_host.py`.

use onward_bridge::{Called, Function, HandBack, Outcome, StepJob, Work};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

/// A finished job: its number, whether it succeeded, and the JSON text of the result or failure.
pub type Finished = (u64, bool, String);

/// An activation that was played: the run, and its end as in [`Finished`].
pub type Played = (u64, Option<(bool, String)>);

pub fn outcome(is_ok: bool, text: String) -> Outcome {
    if is_ok { Ok(text) } else { Err(text) }
}

fn parts(outcome: Outcome) -> (bool, String) {
    match outcome {
        Ok(text) => (true, text),
        Err(text) => (false, text),
    }
}

pub fn hand_back((run, end): Played) -> HandBack {
    HandBack { run, finished: Vec::new(), end: end.map(|(is_ok, text)| outcome(is_ok, text)) }
}

pub fn work(py: Python<'_>, work: Work) -> PyResult<Py<PyAny>> {
    match work {
        Work::Start { run, info, input, now } => (0, run, info, input, now).into_py_any(py),
        Work::Answer { run, call, result, now } => {
            let (is_ok, text) = parts(result);
            (1, run, call, is_ok, text, now).into_py_any(py)
        }
        Work::Update { run, update, name, input, now } => (2, run, update, name, input, now).into_py_any(py),
        Work::Step(job) => {
            let run = job.run;
            let (is_undo, number, rest) = step(job);
            (3, run, is_undo, number, rest).into_py_any(py)
        }
        Work::Task { job, kind, input, info } => (4, job, kind, input, info).into_py_any(py),
        Work::Cancel { job } => (5, job).into_py_any(py),
        Work::Query { query, run, name, input } => (6, query, run, name, input).into_py_any(py),
        Work::Close { run } => (7, run).into_py_any(py),
        Work::Reply { request, result } => {
            let (is_ok, text) = parts(result);
            (8, request, is_ok, text).into_py_any(py)
        }
        Work::Item { request, value } => (9, request, value).into_py_any(py),
        Work::Ended => (10,).into_py_any(py),
    }
}

pub fn called(py: Python<'_>, called: Called) -> PyResult<Py<PyAny>> {
    match called {
        Called::Value(text) => (0, text).into_py_any(py),
        Called::Answered { call, result } => {
            let (is_ok, text) = parts(result);
            (1, call, is_ok, text).into_py_any(py)
        }
        Called::Waits { call, info } => (2, call, info).into_py_any(py),
        Called::Step(job) => {
            let (_, number, rest) = step(job);
            (3, number, rest).into_py_any(py)
        }
    }
}

/// Job, name, attempt, idempotency key and trace of a step.
type Step = (u64, String, u32, String, Option<String>);

/// Returns whether the job is a compensation, the number of its function, and the rest.
fn step(job: StepJob) -> (bool, u64, Step) {
    let (is_undo, number) = match job.function {
        Function::Step(call) => (false, u64::from(call)),
        Function::Undo(number) => (true, number),
    };
    (is_undo, number, (job.job, job.name, job.attempt, job.idempotency_key, job.trace))
}
