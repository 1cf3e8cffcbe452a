//! Errors that came over a network, as errors of this process.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use onward_core::codec::Message;
use onward_runtime::RuntimeError;
use onward_store::{Consequence, Elsewhere, StoreError};
use onward_wire::Problem;
use onward_wire::problem::Advice;
use tonic::{Code, Status};

/// How many texts are kept for ever; a server has a few dozen, and one that sends more is not one of ours.
const KEPT_MAX: usize = 1_000;

pub(crate) fn from_problem(problem: Problem) -> StoreError {
    let consequence = match problem.advice {
        Advice::TellCaller => Consequence::TellCaller,
        Advice::StopRun => Consequence::StopRun,
        Advice::Retry => Consequence::Retry,
        Advice::IsolateRun => Consequence::IsolateRun,
        // It is the server that writes nothing more; this process waits for it.
        Advice::StopProcess => Consequence::Retry,
    };
    let hint = problem.hint.as_deref().map(keep);
    StoreError::Elsewhere(Box::new(Elsewhere { code: keep(&problem.code), message: problem.message, hint, consequence }))
}

/// A problem as the HTTP door writes it.
pub(crate) fn from_json(text: &str) -> Option<RuntimeError> {
    let problem: serde_json::Value = serde_json::from_str(text).ok()?;
    let (code, message) = (keep(problem["code"].as_str()?), problem["detail"].as_str().unwrap_or_default().to_owned());
    let hint = problem["hint"].as_str().map(keep);
    let consequence = Consequence::TellCaller;
    Some(StoreError::Elsewhere(Box::new(Elsewhere { code, message, hint, consequence })).into())
}

pub(crate) fn from_status(status: &Status) -> RuntimeError {
    if let Ok(problem) = Problem::decode_fields(status.details())
        && !problem.code.is_empty()
    {
        return from_problem(problem).into();
    }
    let why = format!("{}: {}", status.code(), status.message());
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => elsewhere("not_allowed", why, Consequence::TellCaller),
        Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange => {
            elsewhere("not_understood", why, Consequence::TellCaller)
        }
        _ => unreachable(format!("the connection to the server broke: {why}")),
    }
}

/// No server answers.
pub(crate) fn unreachable(message: String) -> RuntimeError {
    let hint = Some("see whether it runs and whether the address is right; `onward dev` starts one on this machine");
    let elsewhere = Elsewhere { code: "server_unreachable", message, hint, consequence: Consequence::Retry };
    StoreError::Elsewhere(Box::new(elsewhere)).into()
}

/// The server ended what was to last.
pub(crate) fn gone() -> RuntimeError {
    unreachable("the server has closed the connection".to_owned())
}

/// The same error, for somebody else.
pub(crate) fn again(error: &RuntimeError) -> RuntimeError {
    let (code, message, hint) = (error.code(), error.to_string(), error.hint());
    StoreError::Elsewhere(Box::new(Elsewhere { code, message, hint, consequence: error.consequence() })).into()
}

fn elsewhere(code: &'static str, message: String, consequence: Consequence) -> RuntimeError {
    StoreError::Elsewhere(Box::new(Elsewhere { code, message, hint: None, consequence })).into()
}

/// A text that lives as long as the process. Codes and hints are few.
fn keep(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(text) {
        return known;
    }
    if kept.len() >= KEPT_MAX {
        return "unknown";
    }
    let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
    kept.insert(text);
    text
}
