//! Classification of SQLite errors.
//!
//! Owns the distinction between a refused operation, a batch that is rolled back, and a store that stops. Must never treat a
//! failed sync as something that can be retried.

use onward_core::{Index, RunKey};
use onward_store::StoreError;
pub(crate) use onward_store::durable::seal::damaged;
use rusqlite::ffi;

use crate::file::pages;

/// Reason why an operation of the writer was not carried out.
#[derive(Debug)]
pub(crate) enum OpError {
    /// Refused before it wrote anything; the rest of the batch continues.
    Refused(StoreError),
    /// SQLite failed, perhaps midway; the whole batch is rolled back.
    Sql(rusqlite::Error),
    /// A damaged row was found, perhaps midway; the whole batch is rolled back.
    Damaged(StoreError),
    /// The code panicked, perhaps midway; the whole batch is rolled back.
    Panicked(String),
}

impl OpError {
    /// Returns whether a repair may help.
    pub fn is_repairable(&self) -> bool {
        match self {
            OpError::Refused(error) | OpError::Damaged(error) => is_repairable(error),
            OpError::Sql(error) => is_malformed(error),
            OpError::Panicked(_) => false,
        }
    }
}

pub(crate) type Outcome<T> = Result<T, OpError>;

impl From<StoreError> for OpError {
    fn from(error: StoreError) -> OpError {
        OpError::Refused(error)
    }
}

impl From<rusqlite::Error> for OpError {
    fn from(error: rusqlite::Error) -> OpError {
        OpError::Sql(error)
    }
}

/// Consequence of a failed batch for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No space: the batch is rolled back, later ones may succeed.
    Full,
    /// Temporary, and nothing was written: another process writes to the file despite the lock, or there is no memory.
    Busy(String),
    /// A write or sync failed: the state of the disk is unknown, and nothing more is written.
    Io(String),
    /// A damaged page, or a bug: the batch is rolled back, the store continues.
    Damaged(String),
}

impl Failure {
    pub fn of(error: &OpError) -> Failure {
        match error {
            // The shared memory of the write-ahead log could not grow: also a full disk, detected before the commit.
            OpError::Sql(rusqlite::Error::SqliteFailure(code, _)) if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                Failure::Full
            }
            // A statement before the commit failed for lack of memory: the batch is rolled back, and a later one may succeed.
            OpError::Sql(error) if is_out_of_memory(error) => Failure::Busy(error.to_string()),
            OpError::Sql(error) => Failure::of_commit(error),
            OpError::Refused(error) | OpError::Damaged(error) => Failure::Damaged(error.to_string()),
            OpError::Panicked(message) => Failure::Damaged(format!("an operation broke an invariant: {message}")),
        }
    }

    /// Classifies a failed COMMIT, more strictly: an error for lack of memory comes after the sync, so the batch may be on disk.
    pub fn of_commit(error: &rusqlite::Error) -> Failure {
        let why = error.to_string();
        match error {
            rusqlite::Error::SqliteFailure(code, _) => match code.extended_code & 0xff {
                ffi::SQLITE_FULL => Failure::Full,
                ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => Failure::Busy(why),
                ffi::SQLITE_IOERR | ffi::SQLITE_READONLY | ffi::SQLITE_CANTOPEN | ffi::SQLITE_NOMEM => Failure::Io(why),
                _ => Failure::Damaged(why),
            },
            _ => Failure::Damaged(why),
        }
    }
}

/// Converts an SQLite error of a reader.
pub(crate) fn read_error(error: rusqlite::Error) -> StoreError {
    match &error {
        rusqlite::Error::SqliteFailure(code, _)
            if matches!(code.extended_code & 0xff, ffi::SQLITE_IOERR | ffi::SQLITE_BUSY | ffi::SQLITE_NOMEM) =>
        {
            StoreError::Unavailable { why: error.to_string() }
        }
        _ => {
            let page = pages::take_damaged().map(|page| format!(": page {page} has a wrong checksum"));
            StoreError::Corrupt { why: format!("{error}{}", page.unwrap_or_default()) }
        }
    }
}

/// Reason for not using a row. It is soon rebuilt from the log if the log contains it.
const DAMAGED_ROW: &str = "a row of this run is damaged";

/// Returns the error for a damaged row of a run.
pub(crate) fn damaged_row(key: &RunKey, what: &str) -> StoreError {
    StoreError::LogCorrupt { key: key.clone(), index: Index(0), why: format!("{DAMAGED_ROW}: {what}") }
}

/// Names the run whose log is damaged. Errors other than damage are returned unchanged: the same call may succeed later.
pub(crate) fn damage_of_run(key: &RunKey, index: Index, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { why } => StoreError::LogCorrupt { key: key.clone(), index, why },
        other => other,
    }
}

/// Returns whether a repair may help: something other than a record of a log is damaged.
pub(crate) fn is_repairable(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::LogCorrupt { why, .. } => why.starts_with(DAMAGED_ROW) || why.starts_with(MALFORMED),
        _ => false,
    }
}

/// Returns the error for damage that is being repaired: the same call may succeed later.
pub(crate) fn being_repaired(error: &StoreError) -> StoreError {
    StoreError::Unavailable { why: format!("damaged rows or indexes are being rebuilt, retry: {error}") }
}

/// SQLite's message for a page it cannot parse.
const MALFORMED: &str = "database disk image is malformed";

/// Ignores the error if rows cannot be removed because their pages are damaged; they stay unused.
pub(crate) fn leave_damaged(removed: rusqlite::Result<usize>) -> rusqlite::Result<()> {
    match removed {
        Err(error) if is_malformed(&error) => Ok(()),
        other => other.map(drop),
    }
}

/// Returns whether SQLite could not allocate memory. Nothing is damaged then, and the same call may succeed later.
pub(crate) fn is_out_of_memory(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_NOMEM)
}

/// Returns whether SQLite reports a damaged page or index.
pub(crate) fn is_malformed(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_CORRUPT)
}

#[cfg(test)]
mod tests;
