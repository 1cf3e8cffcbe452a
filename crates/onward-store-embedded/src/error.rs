//! What SQLite's errors mean here.
//!
//! Owns the line between an operation that is refused alone, a batch that is rolled back, and a store that stops. Must never let a
//! failed sync be taken for something that can be tried again.

use onward_core::run::Refusal;
use onward_core::task::StaleReport;
use onward_core::{Index, RunKey};
use onward_store::StoreError;
pub(crate) use onward_store::kept::seal::damaged;
use rusqlite::ffi;

use crate::file::pages;

/// Why an operation of the writer did not happen.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It was refused before it wrote anything; its neighbors go on.
    Refused(StoreError),
    /// SQLite failed, maybe in the middle of it; the whole batch is rolled back.
    Sql(rusqlite::Error),
    /// A row turned out to be damaged in the middle of it; the whole batch is rolled back.
    Damaged(StoreError),
    /// The code panicked, maybe in the middle of it; the whole batch is rolled back.
    Panicked(String),
}

impl Trouble {
    /// Whether mending may help.
    pub fn may_be_mended(&self) -> bool {
        match self {
            Trouble::Refused(error) | Trouble::Damaged(error) => may_be_mended(error),
            Trouble::Sql(error) => is_malformed(error),
            Trouble::Panicked(_) => false,
        }
    }
}

pub(crate) type Outcome<T> = Result<T, Trouble>;

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

impl From<rusqlite::Error> for Trouble {
    fn from(error: rusqlite::Error) -> Trouble {
        Trouble::Sql(error)
    }
}

/// What a failed batch means for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// No space: the batch is undone, later ones may work again.
    Full,
    /// For now it cannot be done, and nothing was written: another process writes to the file against the lock, or there is no memory.
    Busy(String),
    /// A write or sync failed: nobody knows what the disk holds, nothing more is written.
    Io(String),
    /// A damaged page, or a bug: the batch is undone, the store goes on.
    Damaged(String),
}

impl Failure {
    pub fn of(trouble: &Trouble) -> Failure {
        match trouble {
            // The shared memory of the write-ahead log could not grow: that, too, is a full disk, met before the commit.
            Trouble::Sql(rusqlite::Error::SqliteFailure(code, _)) if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => {
                Failure::Full
            }
            // A statement before the commit failed for lack of memory: the batch is undone, and a later one may find memory.
            Trouble::Sql(error) if is_out_of_memory(error) => Failure::Busy(error.to_string()),
            Trouble::Sql(error) => Failure::of_commit(error),
            Trouble::Refused(error) | Trouble::Damaged(error) => Failure::Damaged(error.to_string()),
            Trouble::Panicked(message) => Failure::Damaged(format!("an operation broke an invariant: {message}")),
        }
    }

    /// A failed COMMIT is judged more strictly: after the sync only shared memory or memory is missing, and the batch may well be on disk.
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

/// What a reader tells about an error of SQLite.
pub(crate) fn read_error(error: rusqlite::Error) -> StoreError {
    match &error {
        rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_IOERR => {
            StoreError::Unavailable { why: error.to_string() }
        }
        rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_BUSY => {
            StoreError::Unavailable { why: error.to_string() }
        }
        _ if is_out_of_memory(&error) => StoreError::Unavailable { why: error.to_string() },
        _ => {
            let page = pages::take_damaged().map(|page| format!(": page {page} does not have the checksum it was written with"));
            StoreError::Corrupt { why: format!("{error}{}", page.unwrap_or_default()) }
        }
    }
}

/// Why a row is not used. What the log says too is made again from it, soon.
const DAMAGED_ROW: &str = "a row of the store about it is damaged";

/// A row of a run that was changed by nobody of ours.
pub(crate) fn damaged_row(key: &RunKey, what: &str) -> StoreError {
    StoreError::LogCorrupt { key: key.clone(), index: Index(0), why: format!("{DAMAGED_ROW}: {what}") }
}

/// Names the run whose log has what is damaged. An error that is no damage stays what it is: the same call may succeed.
pub(crate) fn damage_of_run(key: &RunKey, index: Index, error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt { why } => StoreError::LogCorrupt { key: key.clone(), index, why },
        other => other,
    }
}

/// Whether mending may help: something else than a record of a log is damaged.
pub(crate) fn may_be_mended(error: &StoreError) -> bool {
    match error {
        StoreError::Corrupt { .. } => true,
        StoreError::LogCorrupt { why, .. } => why.starts_with(DAMAGED_ROW) || why.starts_with(MALFORMED),
        _ => false,
    }
}

/// What is told of damage that is being mended: the same call may succeed.
pub(crate) fn being_mended(error: &StoreError) -> StoreError {
    StoreError::Unavailable { why: format!("damaged rows or indexes are being made again, ask again: {error}") }
}

/// How SQLite says that it cannot make sense of a page.
const MALFORMED: &str = "database disk image is malformed";

/// What cannot be removed because its pages are damaged stays, to nobody's use.
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

/// SQLite says that a page or an index is damaged.
pub(crate) fn is_malformed(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqliteFailure(code, _) if code.extended_code & 0xff == ffi::SQLITE_CORRUPT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn out_of_memory() -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_NOMEM), None)
    }

    /// F30: a failed allocation is refused for now; it is neither damage nor a reason to mend something.
    #[test]
    fn a_lack_of_memory_is_not_taken_for_damage() {
        assert_eq!(read_error(out_of_memory()).code(), "store_unavailable");
        let trouble = Trouble::Sql(out_of_memory());
        assert!(matches!(Failure::of(&trouble), Failure::Busy(_)));
        assert!(!trouble.may_be_mended());
        let key = RunKey::new(Default::default(), onward_core::RunId::new("a").unwrap());
        let of_run = |error| damage_of_run(&key, Index(3), error).code();
        assert_eq!(of_run(read_error(out_of_memory())), "store_unavailable");
        assert_eq!(of_run(StoreError::Corrupt { why: String::new() }), "log_corrupt");
    }

    /// T3: after a failed COMMIT the batch may be on disk, whatever the reason.
    #[test]
    fn a_lack_of_memory_in_a_commit_stops_the_store() {
        assert!(matches!(Failure::of_commit(&out_of_memory()), Failure::Io(_)));
    }
}
