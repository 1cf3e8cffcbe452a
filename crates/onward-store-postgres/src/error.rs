//! Classification of PostgreSQL errors.
//!
//! Owns the distinction between an operation that is refused alone, a batch that is retried, and an unknown outcome. Must never
//! treat a lost COMMIT as one that did not happen.

use onward_core::{Index, RunKey};
use onward_store::StoreError;
use tokio_postgres::error::SqlState;

use crate::connection::tls::Untrusted;

/// Reason why an operation did not happen.
#[derive(Debug)]
pub(crate) enum OpError {
    /// Refused before it changed anything; the other operations of the batch continue.
    Refused(StoreError),
    /// The operation met damaged data after a change; the whole batch is rolled back.
    Damaged(StoreError),
    /// The database failed; the whole batch is rolled back.
    Sql(tokio_postgres::Error),
    /// The code panicked, maybe after a change; the whole batch is rolled back.
    Panicked(String),
}

pub(crate) type Outcome<T> = Result<T, OpError>;

impl OpError {
    /// Converts to the error that the caller gets, for operations that are not part of a batch.
    pub fn into_error(self) -> StoreError {
        match self {
            OpError::Refused(error) | OpError::Damaged(error) => error,
            OpError::Sql(error) => store_error(&error),
            OpError::Panicked(why) => StoreError::Corrupt { why },
        }
    }
}

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> OpError {
        OpError::Refused(error)
    }
}

impl From<tokio_postgres::Error> for OpError {
    fn from(error: tokio_postgres::Error) -> OpError {
        OpError::Sql(error)
    }
}

/// Consequence of a database error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    /// Conflict or exhausted resource, nothing was written: an immediate retry may succeed.
    Again,
    /// The connection is gone.
    Lost,
    Full,
    Damaged,
    Other,
}

pub(crate) fn classify(error: &tokio_postgres::Error) -> ErrorClass {
    let Some(error) = error.as_db_error() else {
        return if is_untrusted(error) { ErrorClass::Other } else { ErrorClass::Lost };
    };
    let code = error.code();
    let is_again = [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::UNIQUE_VIOLATION,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::TOO_MANY_CONNECTIONS,
        SqlState::OUT_OF_MEMORY,
        SqlState::CONFIGURATION_LIMIT_EXCEEDED,
    ]
    .contains(code);
    match code.code() {
        _ if is_again => ErrorClass::Again,
        "53100" => ErrorClass::Full,
        "XX001" | "XX002" => ErrorClass::Damaged,
        // Ended by the server: by an operator, by a shutdown, or by `idle_in_transaction_session_timeout`.
        text if text.starts_with("57P") || text.starts_with("08") || text == "25P03" => ErrorClass::Lost,
        _ => ErrorClass::Other,
    }
}

/// Converts an error to what the caller gets if nothing was written, or if the operation only reads.
pub(crate) fn store_error(error: &tokio_postgres::Error) -> StoreError {
    let why = describe(error);
    match classify(error) {
        ErrorClass::Full => StoreError::DiskFull,
        ErrorClass::Damaged => StoreError::Corrupt { why },
        ErrorClass::Again | ErrorClass::Lost | ErrorClass::Other => StoreError::Unavailable { why },
    }
}

/// Converts an error during connecting: a server that responds and rejects us, or has the wrong certificate, will keep doing so.
pub(crate) fn refusal(error: &tokio_postgres::Error) -> StoreError {
    let why = describe(error);
    match classify(error) {
        ErrorClass::Other if is_untrusted(error) => StoreError::DatabaseUntrusted { why },
        ErrorClass::Other => StoreError::DatabaseUnusable { why },
        _ => store_error(error),
    }
}

/// Returns whether TLS is missing or the certificate was rejected. The driver's own error for missing TLS has no type.
fn is_untrusted(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<Untrusted>() || source.to_string() == "server does not support TLS")
}

/// Returns the message of the server if there is one: the error itself only displays "db error".
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    let inner = std::error::Error::source(error).map(ToString::to_string);
    inner.unwrap_or_else(|| error.to_string())
}

/// Returns the error for a row of a run that was changed by something other than a store.
pub(crate) fn damaged_row(key: &RunKey, what: &str) -> StoreError {
    let why = format!("the stored row of {what} is damaged");
    StoreError::LogCorrupt { key: key.clone(), index: Index(0), why }
}
