//! Errors of the client API.

use onward_core::{ErrorCode, Failure, NameError};
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
    /// Returns the row of the error table, or the error of the runtime, which has its own.
    fn row(&self) -> Result<ErrorCode, &RuntimeError> {
        Ok(match self {
            Error::Runtime(error) => return Err(error),
            Error::Register(_) => ErrorCode::RegisterInvalid,
            Error::UnknownKind { .. } => ErrorCode::UnknownKind,
            Error::RunFailed { .. } => ErrorCode::RunFailed,
            Error::UnknownQuery { .. } => ErrorCode::UnknownQuery,
            Error::AnswerFailed { .. } => ErrorCode::AnswerFailed,
            Error::Convert { .. } => ErrorCode::ValueInvalid,
            Error::ServerUrl { .. } => ErrorCode::ServerUrlInvalid,
            Error::KeyInvalid { .. } => ErrorCode::KeyInvalid,
            Error::OnlyChecked { .. } => ErrorCode::OnlyChecked,
            Error::CheckFailed { .. } => ErrorCode::CheckFailed,
            Error::ShutDown => ErrorCode::ShutDown,
            Error::Threads(_) => ErrorCode::WorkerNotStarted,
        })
    }

    /// Returns the stable error code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        self.row().map_or_else(RuntimeError::code, ErrorCode::as_str)
    }

    /// Returns a hint for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Error::Register(mistake) => Some(mistake.hint()),
            _ => self.row().map_or_else(RuntimeError::hint, ErrorCode::hint),
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
