//! Errors of the client API.

use std::time::Duration;

use onward_core::{Failure, NameError, error_enum};
use onward_runtime::RuntimeError;
use onward_store::StoreError;

pub use crate::registry::RegisterError;

error_enum! {
    /// The error of a call on [`crate::Onward`] or a [`crate::RunHandle`].
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum Error {
        #[error(transparent)]
        Runtime(#[from] RuntimeError) => (error),
        #[error(transparent)]
        Register(#[from] RegisterError) => (mistake),
        #[error("no workflow `{kind}` is registered here{}", version.as_ref().map(|version| format!(" in version `{version}`")).unwrap_or_default())]
        UnknownKind { kind: String, version: Option<String> } => UnknownKind,
        #[error("run {run} failed: {failure}")]
        RunFailed { run: String, failure: Box<Failure> } => RunFailed,
        #[error("run {run} has no query `{name}`")]
        UnknownQuery { run: String, name: String } => UnknownQuery,
        #[error("the query or update handler of run {run} failed: {failure}")]
        AnswerFailed { run: String, failure: Box<Failure> } => AnswerFailed,
        #[error("{what} cannot be converted: {why}")]
        Convert { what: &'static str, why: serde_json::Error } => ValueInvalid,
        #[error("`{url}` is not a valid server URL: {why}")]
        ServerUrl { url: String, why: String } => ServerUrlInvalid,
        #[error("invalid API key: {why}")]
        KeyInvalid { why: String } => KeyInvalid,
        #[error("checked the code against {runs} recorded runs and did not start, because `ONWARD_CHECK` is set")]
        OnlyChecked { runs: u64 } => OnlyChecked,
        #[error("cannot check recorded runs against the code: {why}")]
        CheckFailed { why: String } => CheckFailed,
        #[error("the engine was shut down")]
        ShutDown => ShutDown,
        #[error("cannot start the worker's threads")]
        Threads(#[source] std::io::Error) => WorkerNotStarted,
    }
}

impl Error {
    /// Returns after which time the same call may succeed, if that is known: a quota or a full queue has refused it.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Error::Runtime(error) => error.retry_after_ms().map(Duration::from_millis),
            _ => None,
        }
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
