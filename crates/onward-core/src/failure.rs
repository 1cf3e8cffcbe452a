//! Failures: the recorded results of user code that did not succeed.
//!
//! A [`Failure`] is data: it is recorded, compared and shown. It deliberately does not implement
//! [`std::error::Error`], so that every error type converts into it with `?`.
//!
//! Invariant FL1: a recorded failure's message, causes and details have at most [`FAILURE_BYTES_MAX`] bytes each, encrypted
//! details four times as much. Failures are shown in lists and copied from child to parent, so a large text must not fill the
//! log.

use std::fmt;
use std::time::Duration;

use crate::time::millis;
use crate::{Payload, message};

/// The maximum size of a failure's message, of all its causes together, and of its details, in bytes.
pub const FAILURE_BYTES_MAX: usize = 64 * 1024;

/// The mark at the end of a truncated text.
const CUT: &str = "… (cut)";

/// The number of bytes kept of details that are too long, for people to read: code cannot use a part of a value.
const DETAILS_SHOWN: usize = 1024;

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

message! {
    /// The failure of a step, task, child or run.
    pub struct Failure {
        /// A stable code to branch on; `failed` unless a more specific one is known.
        1 => code: String,
        2 => message: String,
        /// False if a retry cannot help, as in `Failure::fatal`.
        #[serde(default = "is_retryable")]
        3 => retryable: bool,
        /// The causes, outermost first, without repeating the message.
        #[serde(default)]
        4 => causes: Vec<String>,
        /// Data for the code that handles the failure.
        5 => details: Option<Box<Payload>>,
        /// The earliest sensible retry, as reported by the callee.
        6 => retry_after_ms: Option<u64>,
        /// The time for which the callee rejects every call that shares the exceeded rate limit.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        7 => limited_ms: Option<u32>,
        /// The callee's raw response, for operators only: it may repeat secrets of the request. Never serialized as JSON, so no
        /// document contains it.
        #[serde(default, skip_serializing)]
        8 => diagnosis: Option<Box<String>>,
    }
}

/// Returns the default of a JSON failure, as in [`Failure::new`].
fn is_retryable() -> bool {
    true
}

impl Failure {
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure {
            code: code.into(),
            message: message.into(),
            retryable: true,
            causes: Vec::new(),
            details: None,
            retry_after_ms: None,
            limited_ms: None,
            diagnosis: None,
        }
    }

    /// Returns a failure that a retry may fix; every error converted with `?` is one.
    pub fn retryable(message: impl Into<String>) -> Failure {
        Failure::new("failed", message)
    }

    /// Returns a final failure: no retry.
    pub fn fatal(message: impl Into<String>) -> Failure {
        Failure { retryable: false, ..Failure::new("failed", message) }
    }

    pub fn with_code(self, code: impl Into<String>) -> Failure {
        Failure { code: code.into(), ..self }
    }

    pub fn with_details(self, details: Payload) -> Failure {
        Failure { details: Some(Box::new(details)), ..self }
    }

    pub fn with_retry_after(self, delay: Duration) -> Failure {
        Failure { retry_after_ms: Some(millis(delay)), ..self }
    }

    /// Sets the time for which all callers that share the exceeded rate limit must not call.
    pub fn with_limited(self, span: Duration) -> Failure {
        Failure { limited_ms: Some(u32::try_from(millis(span)).unwrap_or(u32::MAX)), ..self }
    }

    /// Attaches the raw response of an external callee, for operators.
    pub fn with_diagnosis(self, diagnosis: impl Into<String>) -> Failure {
        Failure { diagnosis: Some(Box::new(diagnosis.into())), ..self }
    }

    /// Returns the failure of a canceled run.
    pub fn canceled(reason: &str) -> Failure {
        let message =
            if reason.is_empty() { "the run was canceled".to_owned() } else { format!("the run was canceled: {reason}") };
        Failure { retryable: false, ..Failure::new("canceled", message) }
    }

    pub fn timed_out(what: &str) -> Failure {
        Failure::new("timed_out", format!("{what} timed out"))
    }

    /// Returns the failure as it is recorded: long parts are truncated and marked (FL1).
    pub fn bounded(mut self) -> Failure {
        truncate(&mut self.message, FAILURE_BYTES_MAX);
        self.diagnosis.iter_mut().for_each(|diagnosis| truncate(diagnosis, FAILURE_BYTES_MAX));
        let mut remaining = FAILURE_BYTES_MAX;
        let mut fits = 0;
        for cause in &mut self.causes {
            if remaining < CUT.len() {
                break;
            }
            truncate(cause, remaining);
            remaining -= cause.len();
            fits += 1;
        }
        self.causes.truncate(fits);
        if let Some(details) = self.details.as_mut().filter(|details| details.data().len() > details_max(details)) {
            **details = shown(details);
        }
        self
    }

    pub fn is_canceled(&self) -> bool {
        self.code == "canceled"
    }

    pub fn is_timed_out(&self) -> bool {
        self.code == "timed_out"
    }

    /// Converts any error into a failure; a boxed [`Failure`] is returned unchanged.
    pub fn from_box(error: BoxError) -> Failure {
        match error.downcast::<FailureError>() {
            Ok(failure) => failure.0,
            Err(error) => Failure::from_error(&*error),
        }
    }

    fn from_error(error: &(dyn std::error::Error + 'static)) -> Failure {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        Failure { causes, ..Failure::retryable(error.to_string()) }
    }
}

/// Returns the limit for details. Encrypted details also contain message and causes, and were truncated before encryption.
fn details_max(details: &Payload) -> usize {
    if details.sealed_with().is_some() { 4 * FAILURE_BYTES_MAX } else { FAILURE_BYTES_MAX }
}

/// Truncates a text to `bytes_max`, mark included.
pub(crate) fn truncate(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max - CUT.len()));
        text.push_str(CUT);
    }
}

/// Returns the beginning of details, as text.
fn shown(details: &Payload) -> Payload {
    let data = details.data();
    let begin = String::from_utf8_lossy(&data[..data.len().min(DETAILS_SHOWN)]);
    let text = serde_json::Value::String(format!("{begin}{CUT}: {} bytes of {}", data.len(), details.content_type()));
    Payload::from_json_text(text.to_string())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.causes.iter().try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Failure {
        let error: &(dyn std::error::Error + 'static) = &error;
        match error.downcast_ref::<FailureError>() {
            Some(failure) => failure.0.clone(),
            None => Failure::from_error(error),
        }
    }
}

/// A [`Failure`] as an [`std::error::Error`].
#[derive(Debug, Clone)]
pub struct FailureError(pub Failure);

impl fmt::Display for FailureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for FailureError {}

impl From<Failure> for BoxError {
    fn from(failure: Failure) -> BoxError {
        Box::new(FailureError(failure))
    }
}

#[cfg(test)]
mod tests;
