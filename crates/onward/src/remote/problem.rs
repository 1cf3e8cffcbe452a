//! Conversion of errors from a server into errors of this process.

use std::collections::BTreeSet;
use std::sync::Mutex;

use onward_core::{ErrorCode, ErrorInfo};
use onward_runtime::RuntimeError;
use onward_store::sync::lock;
use onward_store::{Consequence, Elsewhere, StoreError};
use onward_wire::Problem;
use onward_wire::problem::Advice;
use tonic::{Code, Status};

/// Number of texts that are kept forever. A server has a few dozen; one that sends more is not an Onward server.
const KEPT_MAX: usize = 1_000;

pub(crate) fn from_problem(problem: Problem) -> StoreError {
    let consequence = match problem.advice {
        Advice::Fail => Consequence::Fail,
        Advice::StopRun => Consequence::StopRun,
        Advice::Retry => Consequence::Retry,
        Advice::IsolateRun => Consequence::IsolateRun,
        // The server has stopped writing; this process waits for it.
        Advice::StopProcess => Consequence::Retry,
    };
    let (code, hint) = (keep(&problem.code), problem.hint.as_deref().map(keep));
    let info = ErrorInfo { code, consequence, hint };
    StoreError::Elsewhere(Box::new(Elsewhere { message: problem.message, info, retry_after_ms: problem.retry_after_ms }))
}

/// Parses a problem document of the HTTP API.
pub(crate) fn from_json(text: &str) -> Option<RuntimeError> {
    let problem: serde_json::Value = serde_json::from_str(text).ok()?;
    let (code, message) = (keep(problem["code"].as_str()?), problem["detail"].as_str().unwrap_or_default().to_owned());
    Some(elsewhere(code, message, problem["hint"].as_str().map(keep), Consequence::Fail).into())
}

pub(crate) fn from_status(status: &Status) -> RuntimeError {
    if let Some(problem) = Problem::from_status(status) {
        return from_problem(problem).into();
    }
    let why = format!("{}: {}", status.code(), status.message());
    match status.code() {
        Code::Unauthenticated | Code::PermissionDenied => {
            elsewhere(ErrorCode::NotAllowed.as_str(), why, None, Consequence::Fail).into()
        }
        Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange => {
            elsewhere(ErrorCode::MessageInvalid.as_str(), why, None, Consequence::Fail).into()
        }
        _ => unreachable(format!("the connection to the server failed: {why}")),
    }
}

/// Returns the error of an unreachable server.
pub(crate) fn unreachable(message: String) -> RuntimeError {
    unreachable_with(message, "check that it runs and that the address is right; start one on this machine with `onward dev`")
}

/// Returns the error of an unreachable server at `url`, with a hint by the transport's error `why`. A TLS error or a wrong scheme
/// gets its own hint, because the address is right then.
pub(crate) fn unreachable_at(url: &str, why: &str) -> RuntimeError {
    let message = format!("no server answers at {}: {why}", url.trim_end_matches('/'));
    let has = |text: &str| why.contains(text);
    if has("CaUsedAsEndEntity") {
        return unreachable_with(message, "use a server certificate without `CA:TRUE`: this one is an authority's");
    }
    if has("invalid peer certificate") {
        let hint = "name the authority that signed the server's certificate with SSL_CERT_FILE=FILE, or in code with \
                    `.root_certificate(pem)`, and use a host name of the certificate";
        return unreachable_with(message, hint);
    }
    if url.starts_with("https:") && has("corrupt message") {
        return unreachable_with(message, "use http://, because the server has no TLS");
    }
    // The peer accepted the connection and then closed it. The transport's error depends on which side was faster.
    let is_ended = ["http2 error", "connection closed", "stream closed", "broken pipe", "reset"].into_iter().any(has);
    if url.starts_with("http:") && is_ended {
        let hint = "use https:// if the server has a certificate; otherwise check that it still runs";
        return unreachable_with(message, hint);
    }
    unreachable(message)
}

fn unreachable_with(message: String, hint: &'static str) -> RuntimeError {
    elsewhere(ErrorCode::ServerUnreachable.as_str(), message, Some(hint), Consequence::Retry).into()
}

/// Returns the error for a stream that the server has ended.
pub(crate) fn gone() -> RuntimeError {
    unreachable("the server has closed the connection".to_owned())
}

/// Copies an error for another caller.
pub(crate) fn again(error: &RuntimeError) -> RuntimeError {
    let (message, retry_after_ms) = (error.to_string(), error.retry_after_ms());
    StoreError::Elsewhere(Box::new(Elsewhere { message, info: error.info(), retry_after_ms })).into()
}

fn elsewhere(code: &'static str, message: String, hint: Option<&'static str>, consequence: Consequence) -> StoreError {
    StoreError::Elsewhere(Box::new(Elsewhere { message, info: ErrorInfo { code, consequence, hint }, retry_after_ms: None }))
}

/// Returns a text that lives as long as the process. Codes and hints are few.
fn keep(text: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = lock(&KEPT);
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

#[cfg(test)]
mod tests;
