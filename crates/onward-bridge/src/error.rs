//! Errors and failures as JSON text.

use onward::Failure;
use onward_core::{ErrorCode, Payload};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The result of code, of a function or of a request: JSON text of the value, or of a failure or error.
pub type Outcome = Result<String, String>;

/// What the caller of the bridge does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Raise it as an exception.
    Error,
    /// Unwind the code: its run cannot continue with it.
    Stopped,
}

/// An error of the bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeError {
    /// `{code, message, hint, status, retry_after_ms, failure}`.
    pub text: String,
    pub kind: ErrorKind,
}

impl std::fmt::Display for BridgeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for BridgeError {}

#[derive(Serialize)]
struct ErrorText<'a> {
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
    status: u16,
    /// After which time the same request may succeed, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureText>,
}

fn to_text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned())
}

impl BridgeError {
    pub(crate) fn new(code: ErrorCode, message: impl std::fmt::Display) -> BridgeError {
        BridgeError::with_hint(code, message, code.hint())
    }

    fn with_hint(code: ErrorCode, message: impl std::fmt::Display, hint: Option<&str>) -> BridgeError {
        let message = message.to_string();
        let text = ErrorText {
            code: code.as_str(),
            message: &message,
            hint,
            status: code.status(),
            retry_after_ms: None,
            failure: None,
        };
        BridgeError { text: to_text(&text), kind: ErrorKind::Error }
    }

    pub(crate) fn stopped() -> BridgeError {
        let error = BridgeError::new(ErrorCode::ContextMisused, "the code of this run has been stopped");
        BridgeError { kind: ErrorKind::Stopped, ..error }
    }

    /// Returns the error of a call that fails at once with a failure.
    pub(crate) fn failure(failure: &Failure) -> BridgeError {
        let status = ErrorCode::find(&failure.code).map_or(500, ErrorCode::status);
        let (code, message, known) = (failure.code.as_str(), failure.message.as_str(), Some(FailureText::of(failure)));
        let text = ErrorText { code, message, hint: None, status, retry_after_ms: None, failure: known };
        BridgeError { text: to_text(&text), kind: ErrorKind::Error }
    }

    /// Returns the error of arguments or settings that do not fit.
    pub(crate) fn arguments(what: &str, why: &dyn std::fmt::Display) -> BridgeError {
        BridgeError::new(ErrorCode::ValueInvalid, format!("{what}: {why}"))
    }

    /// Returns the error of a request whose fields are missing or contradict each other.
    pub(crate) fn refused(verb: &str, why: impl std::fmt::Display, hint: &str) -> BridgeError {
        BridgeError::with_hint(ErrorCode::ValueInvalid, format!("the arguments of `{verb}`: {why}"), Some(hint))
    }
}

impl From<onward::Error> for BridgeError {
    fn from(error: onward::Error) -> BridgeError {
        let mut message = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        let status = ErrorCode::find(error.code()).map_or(500, ErrorCode::status);
        let failure = error.failure().map(FailureText::of);
        let retry_after_ms = error.retry_after().map(onward_core::time::millis);
        let text = ErrorText { code: error.code(), message: &message, hint: error.hint(), status, retry_after_ms, failure };
        BridgeError { text: to_text(&text), kind: ErrorKind::Error }
    }
}

impl From<onward_core::NameError> for BridgeError {
    fn from(error: onward_core::NameError) -> BridgeError {
        onward::Error::from(error).into()
    }
}

/// A failure as shells read and write it: its details are plain JSON.
#[derive(Serialize, Deserialize)]
pub(crate) struct FailureText {
    #[serde(default = "failed")]
    code: String,
    message: String,
    #[serde(default = "yes")]
    retryable: bool,
    #[serde(default)]
    causes: Vec<String>,
    #[serde(default)]
    details: Option<Box<RawValue>>,
    #[serde(default)]
    retry_after_ms: Option<u64>,
}

fn failed() -> String {
    "failed".to_owned()
}

fn yes() -> bool {
    true
}

impl FailureText {
    pub fn of(failure: &Failure) -> FailureText {
        let Failure { code, message, retryable, causes, details, retry_after_ms, .. } = failure.clone();
        let details = details.and_then(|details| RawValue::from_string(text_of(&details)).ok());
        FailureText { code, message, retryable, causes, details, retry_after_ms }
    }

    pub fn into_failure(self) -> Failure {
        let FailureText { code, message, retryable, causes, details, retry_after_ms } = self;
        let details = details.map(|details| Box::new(payload_of(details)));
        Failure { retryable, causes, details, retry_after_ms, ..Failure::new(code, message) }
    }
}

/// Returns the JSON text of a payload; one that is not JSON is an object with `base64` and `type`.
pub(crate) fn text_of(payload: &Payload) -> String {
    match payload.is_json().then(|| std::str::from_utf8(payload.data())) {
        Some(Ok(text)) => text.to_owned(),
        _ => to_text(payload),
    }
}

pub(crate) fn payload_of(value: Box<RawValue>) -> Payload {
    Payload::from_json_text(Box::<str>::from(value).into_boxed_bytes())
}

pub(crate) fn failure_text(failure: &Failure) -> String {
    to_text(&FailureText::of(failure))
}

pub(crate) fn outcome_text(result: &Result<Payload, Failure>) -> Outcome {
    result.as_ref().map(text_of).map_err(failure_text)
}

/// Returns the value or failure of an outcome. Text that is not JSON is a failure without retry: it would be the same again.
pub(crate) fn read_outcome(outcome: Outcome) -> Result<Box<RawValue>, Failure> {
    match outcome {
        Ok(text) => RawValue::from_string(text).map_err(|error| Failure::fatal(format!("the result is not JSON: {error}"))),
        Err(text) => Err(match serde_json::from_str::<FailureText>(&text) {
            Ok(failure) => failure.into_failure(),
            Err(error) => Failure::fatal(format!("the failure is not a failure as JSON: {error}")),
        }),
    }
}
