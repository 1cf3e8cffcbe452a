//! Errors of the client API.

use onward_core::{Failure, NameError};
use onward_runtime::RuntimeError;
use onward_store::StoreError;

pub use crate::registry::RegisterError;

/// The error of a call on [`crate::Onward`] or a [`crate::RunHandle`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error("no workflow `{kind}` is registered here{}", version.as_ref().map(|version| format!(" in version `{version}`")).unwrap_or_default())]
    UnknownKind { kind: String, version: Option<String> },
    #[error("run {run} failed: {failure}")]
    RunFailed { run: String, failure: Box<Failure> },
    #[error("run {run} has no query `{name}`")]
    UnknownQuery { run: String, name: String },
    #[error("the query or update handler of run {run} failed: {failure}")]
    AnswerFailed { run: String, failure: Box<Failure> },
    #[error("{what} cannot be converted: {why}")]
    Convert { what: &'static str, why: serde_json::Error },
    #[error("`{url}` is not a valid server URL: {why}")]
    ServerUrl { url: String, why: String },
    #[error("invalid API key: {why}")]
    KeyInvalid { why: String },
    #[error("checked the code against {runs} recorded runs and did not start, because `ONWARD_CHECK` is set")]
    OnlyChecked { runs: u64 },
    #[error("cannot check recorded runs against the code: {why}")]
    CheckFailed { why: String },
    #[error("the engine was shut down")]
    ShutDown,
    #[error("cannot start the worker's threads")]
    Threads(#[source] std::io::Error),
}

impl Error {
    /// Returns the stable error code. Each has a page `docs/errors/<code>.md` and is never renamed or reused.
    pub fn code(&self) -> &'static str {
        match self {
            Error::Runtime(error) => error.code(),
            Error::Register(_) => "register_invalid",
            Error::UnknownKind { .. } => "unknown_kind",
            Error::RunFailed { .. } => "run_failed",
            Error::UnknownQuery { .. } => "unknown_query",
            Error::AnswerFailed { .. } => "answer_failed",
            Error::Convert { .. } => "value_invalid",
            Error::ServerUrl { .. } => "server_url_invalid",
            Error::KeyInvalid { .. } => "key_invalid",
            Error::OnlyChecked { .. } => "only_checked",
            Error::CheckFailed { .. } => "check_failed",
            Error::ShutDown => "shut_down",
            Error::Threads(_) => "worker_not_started",
        }
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::Runtime(error) => return error.hint(),
            Error::Register(mistake) => mistake.hint(),
            Error::UnknownKind { .. } => {
                "register it on the builder with `.register(&NAME, function)` or `.workflow(\"name\", function)`"
            }
            Error::UnknownQuery { .. } => "register the query with `ctx.query(name, ..)` at the start of the workflow",
            Error::OnlyChecked { .. } | Error::CheckFailed { .. } => "unset `ONWARD_CHECK` to start the program normally",
            Error::RunFailed { .. } => {
                "look at the log with `onward run events`; `error.failure()` has the code, causes and details"
            }
            Error::AnswerFailed { .. } => "read the handler's code and message with `error.failure()`; the run continues",
            Error::Convert { .. } => {
                "use a value that both sides read and write as JSON with serde; floats must be finite, and \
                 `Some(None)` and `Some(())` are not allowed"
            }
            Error::ServerUrl { .. } => "use a URL like http://127.0.0.1:7400",
            Error::KeyInvalid { .. } => "copy the whole key as `onward key create` printed it",
            Error::ShutDown => {
                "start the engine again over the same store to continue the run; requests without a response may \
                 have been executed, so repeat them with the same id"
            }
            Error::Threads(_) => "raise the system's thread limit, or set fewer with `.threads(..)`",
        })
    }

    /// Returns the failure of the run or of its handler, if the error carries one.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::RunFailed { failure, .. } | Error::AnswerFailed { failure, .. } => Some(failure),
            _ => None,
        }
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Error {
        Error::Runtime(error.into())
    }
}

impl From<NameError> for Error {
    fn from(error: NameError) -> Error {
        Error::Runtime(error.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_error_has_a_hint() {
        let text = || "x".to_owned();
        let failure = || Box::new(Failure::fatal("x"));
        let why = serde_json::from_str::<u32>("x").unwrap_err();
        let io = std::io::Error::other("x");
        let mistakes = [
            RegisterError::Name(onward_core::Name::new("").unwrap_err()),
            RegisterError::Twice { what: "task", name: text() },
            RegisterError::NoWorkflow { call: "version" },
            #[cfg(feature = "agents")]
            RegisterError::NoModel { agent: text() },
            #[cfg(feature = "agents")]
            RegisterError::Tool(crate::agent::ToolMistake::Twice { name: text() }),
            RegisterError::TwoVersions { workflow: text(), first: text(), second: text() },
            RegisterError::LeaseTooShort { lease: Duration::ZERO, min: Duration::ZERO },
        ];
        let errors = [
            Error::from(onward_core::Name::new("").unwrap_err()),
            Error::UnknownKind { kind: text(), version: None },
            Error::RunFailed { run: text(), failure: failure() },
            Error::UnknownQuery { run: text(), name: text() },
            Error::AnswerFailed { run: text(), failure: failure() },
            Error::Convert { what: "x", why },
            Error::ServerUrl { url: text(), why: text() },
            Error::KeyInvalid { why: text() },
            Error::ShutDown,
            Error::Threads(io),
        ];
        for error in mistakes.map(Error::Register).into_iter().chain(errors) {
            assert!(error.hint().is_some_and(|hint| !hint.is_empty()), "{error}");
        }
    }
}
