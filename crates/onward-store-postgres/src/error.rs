//! What PostgreSQL's errors mean here.
//!
//! Owns the line between an operation that is refused alone, a batch that is tried again, and an outcome that nobody knows. Must never
//! take a lost COMMIT for one that did not happen.

use onward_core::run::Refusal;
use onward_core::task::StaleReport;
use onward_core::{Index, RunKey};
use onward_store::StoreError;
use tokio_postgres::error::SqlState;

use crate::connection::tls::Untrusted;

/// Why an operation did not happen.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It was refused before it changed anything; its neighbors go on.
    Refused(StoreError),
    /// Something damaged was met in the middle of it; the whole batch is undone.
    Damaged(StoreError),
    /// The database failed; the whole batch is undone.
    Sql(tokio_postgres::Error),
    /// The code panicked, maybe in the middle of it; the whole batch is undone.
    Panicked(String),
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

impl Trouble {
    /// What somebody is told who asked for nothing that could be refused.
    pub fn into_error(self) -> StoreError {
        match self {
            Trouble::Refused(error) | Trouble::Damaged(error) => error,
            Trouble::Sql(error) => told(&error),
            Trouble::Panicked(why) => StoreError::Corrupt { why },
        }
    }
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Trouble {
        Trouble::Refused(error)
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Trouble {
        Trouble::Refused(refusal.into())
    }
}

impl From<StaleReport> for Trouble {
    fn from(stale: StaleReport) -> Trouble {
        Trouble::Refused(stale.into())
    }
}

impl From<tokio_postgres::Error> for Trouble {
    fn from(error: tokio_postgres::Error) -> Trouble {
        Trouble::Sql(error)
    }
}

/// What an error of the database means for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Somebody was in the way, and nothing happened: the same again may succeed at once.
    Again,
    /// The connection is gone.
    Lost,
    Full,
    Damaged,
    Other,
}

pub(crate) fn meaning(error: &tokio_postgres::Error) -> Meaning {
    let Some(error) = error.as_db_error() else {
        return if is_untrusted(error) { Meaning::Other } else { Meaning::Lost };
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
        _ if is_again => Meaning::Again,
        "53100" => Meaning::Full,
        "XX001" | "XX002" => Meaning::Damaged,
        // Ended by the server: by an operator, while it stops, or because we were silent for too long in a transaction.
        text if text.starts_with("57P") || text.starts_with("08") || text == "25P03" => Meaning::Lost,
        _ => Meaning::Other,
    }
}

/// What a caller is told where nothing was written, or only read.
pub(crate) fn told(error: &tokio_postgres::Error) -> StoreError {
    let why = describe(error);
    match meaning(error) {
        Meaning::Full => StoreError::DiskFull,
        Meaning::Damaged => StoreError::Corrupt { why },
        Meaning::Again | Meaning::Lost | Meaning::Other => StoreError::Unavailable { why },
    }
}

/// What is said where a database is entered: one that answers and does not want us, or that we do not want, stays so.
pub(crate) fn refusal(error: &tokio_postgres::Error) -> StoreError {
    let why = describe(error);
    match meaning(error) {
        Meaning::Other if is_untrusted(error) => StoreError::DatabaseUntrusted { why },
        Meaning::Other => StoreError::DatabaseUnusable { why },
        _ => told(error),
    }
}

/// The driver's own words have no type.
fn is_untrusted(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<Untrusted>() || source.to_string() == "server does not support TLS")
}

/// The message of the server where there is one: the error itself only says "db error".
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    let inner = std::error::Error::source(error).map(ToString::to_string);
    inner.unwrap_or_else(|| error.to_string())
}

/// A row of a run that was changed by nobody of ours.
pub(crate) fn damaged_row(key: &RunKey, what: &str) -> StoreError {
    let why = format!("a row of the store about it is damaged: {what}");
    StoreError::LogCorrupt { key: key.clone(), index: Index(0), why }
}
