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
    #[error("{what} cannot be converted")]
    Convert { what: &'static str, source: serde_json::Error },
    #[error("`{url}` is not the address of a server: {why}")]
    ServerUrl { url: String, why: String },
    #[error("the key is not usable: {why}")]
    KeyInvalid { why: String },
    #[error("the code was checked against {runs} recorded runs; that is all that was asked for")]
    OnlyChecked { runs: u64 },
    #[error("recorded runs could not be held against the code: {why}")]
    CheckFailed { why: String },
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
            Error::Threads(_) => "worker_not_started",
        }
    }

    /// What to try, where there is something to try.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Error::Runtime(error) => return error.hint(),
            Error::UnknownKind { .. } => {
                "register it on the builder with `.register(&NAME, function)` or `.workflow(\"name\", function)`"
            }
            Error::UnknownQuery { .. } => "the workflow offers it with `ctx.query(name, ..)` once it has come that far",
            Error::OnlyChecked { .. } | Error::CheckFailed { .. } => "unset `ONWARD_CHECK` to let the program work",
            _ => return None,
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
