//! Errors that came over a network, as errors of this process.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

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
    if let Some(problem) = Problem::from_status(status) {
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
    unreachable_with(message, "see whether it runs and whether the address is right; `onward dev` starts one on this machine")
}

/// Nobody answers at `url`, and `why` is how the transport says it. Somebody who is there and speaks otherwise than the address says is
/// told apart from nobody: another certificate or another scheme is the remedy, and not another address.
pub(crate) fn unreachable_at(url: &str, why: &str) -> RuntimeError {
    let message = format!("no server answers at {}: {why}", url.trim_end_matches('/'));
    let said = |text: &str| why.contains(text);
    if said("CaUsedAsEndEntity") {
        return unreachable_with(message, "the server's certificate is that of an authority: give it one without `CA:TRUE`");
    }
    if said("invalid peer certificate") {
        let hint = "the server's certificate is not trusted: name who vouches for it with SSL_CERT_FILE=FILE, in code with \
                    `.root_certificate(pem)`, and use the name it was made for";
        return unreachable_with(message, hint);
    }
    if url.starts_with("https:") && said("corrupt message") {
        return unreachable_with(message, "what is there speaks no TLS: without a certificate, the address begins with http://");
    }
    // Somebody let us in and then ended it: how that is told depends on who was quicker.
    let is_ended = ["http2 error", "connection closed", "stream closed", "broken pipe", "reset"].into_iter().any(said);
    if url.starts_with("http:") && is_ended {
        let hint = "where the server has a certificate, the address begins with https://; otherwise see whether it still runs";
        return unreachable_with(message, hint);
    }
    unreachable(message)
}

fn unreachable_with(message: String, hint: &'static str) -> RuntimeError {
    let elsewhere = Elsewhere { code: "server_unreachable", message, hint: Some(hint), consequence: Consequence::Retry };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_there_and_speaks_otherwise_is_told_apart_from_nobody() {
        let hint = |url: &str, why: &str| unreachable_at(url, why).hint().unwrap();
        let refused = "tcp connect error: Connection refused (os error 111)";
        for (url, why, wanted) in [
            ("http://a", refused, "see whether it runs"),
            ("https://a", refused, "see whether it runs"),
            ("https://a", "invalid peer certificate: UnknownIssuer", "SSL_CERT_FILE"),
            ("https://a", "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "`CA:TRUE`"),
            ("https://a", "received corrupt message of type InvalidContentType", "http://"),
            ("http://a", "http2 error: connection error detected: frame with invalid size", "https://"),
            ("http://a", "operation was canceled: connection closed", "https://"),
            ("https://a", "operation was canceled: connection closed", "see whether it runs"),
            ("http://a", "connection error: stream closed because of a broken pipe", "https://"),
            ("http://a", "connection error: Connection reset by peer (os error 104)", "https://"),
        ] {
            assert!(hint(url, why).contains(wanted), "{url} {why}: {}", hint(url, why));
        }
    }
}
