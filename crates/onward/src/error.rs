//! What can go wrong for whoever starts and asks runs.

use onward_core::{Failure, NameError};
use onward_runtime::RuntimeError;
use onward_store::StoreError;

pub use crate::registry::RegisterError;

/// Why a call on [`crate::Onward`] or a [`crate::RunHandle`] failed.
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
    #[error("the answer of run {run} was a failure: {failure}")]
    AnswerFailed { run: String, failure: Box<Failure> },
    #[error("{what} cannot be converted: {why}")]
    Convert { what: &'static str, why: serde_json::Error },
    #[error("`{url}` is not the address of a server: {why}")]
    ServerUrl { url: String, why: String },
    #[error("the key is not usable: {why}")]
    KeyInvalid { why: String },
    #[error("the code was checked against {runs} recorded runs; that is all that was asked for")]
    OnlyChecked { runs: u64 },
    #[error("recorded runs could not be held against the code: {why}")]
    CheckFailed { why: String },
    #[error("the engine was shut down")]
    ShutDown,
    #[error("the worker's threads could not be started")]
    Threads(#[source] std::io::Error),
}

impl Error {
    /// Stable name; has a page `docs/errors/<code>.md`. Never reused, never renamed.
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

    /// What to try.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::Runtime(error) => return error.hint(),
            Error::Register(mistake) => mistake.hint(),
            Error::UnknownKind { .. } => {
                "register it on the builder with `.register(&NAME, function)` or `.workflow(\"name\", function)`"
            }
            Error::UnknownQuery { .. } => "the workflow offers it with `ctx.query(name, ..)` once it has come that far",
            Error::OnlyChecked { .. } | Error::CheckFailed { .. } => "unset `ONWARD_CHECK` to let the program work",
            Error::RunFailed { .. } => {
                "`onward run events` shows what led to it; `error.failure()` has its code, causes and details"
            }
            Error::AnswerFailed { .. } => "the run goes on; `error.failure()` has the code and the message of its handler",
            Error::Convert { .. } => {
                "the value must be what the other side reads and writes with serde, as JSON; floats must be finite, and no \
                 option may hold nothing"
            }
            Error::ServerUrl { .. } => "it looks like http://127.0.0.1:7400",
            Error::KeyInvalid { .. } => "`onward key create` prints a key once; hand it over as it was printed",
            Error::ShutDown => {
                "the run is kept and goes on when the engine is started again over the same store; what was asked for and not answered \
                 may have happened"
            }
            Error::Threads(_) => "the system refused a thread: look at its limits, or ask for fewer with `.threads(..)`",
        })
    }

    /// The failure of the run, when that is what went wrong.
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
