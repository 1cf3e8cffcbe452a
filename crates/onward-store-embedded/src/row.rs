//! Rows: cached statements, and the encoding of values with checksums.
//!
//! Must never return bytes that were not written: every value carries a checksum that is verified.
//!
//! Invariants:
//! - I2: every value read from a row was verified: by the row's own checksum, or by that of a blob in it with the same content.

use onward_core::{Index, Record, RunKey, Timestamp};
use onward_store::StoreError;
pub(crate) use onward_store::durable::seal::{
    NEVER, call_id_key, due_number, number, read_call_id, seal, seal_bytes, unseal, unseal_bytes,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Params, Row};

/// Statements that the connection keeps prepared.
pub(crate) trait Statements {
    /// Executes a statement and returns the number of changed rows.
    fn run(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize>;

    /// Returns the first row, if any.
    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>>;

    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>>;
}

impl Statements for Connection {
    fn run(&self, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
        self.prepare_cached(sql)?.execute(params)
    }

    fn one<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Option<T>> {
        self.prepare_cached(sql)?.query_row(params, read).optional()
    }

    fn all<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<Vec<T>> {
        self.prepare_cached(sql)?.query_map(params, read)?.collect()
    }
}

/// One row of `events`.
pub(crate) struct EventRow<'a> {
    pub rk: i64,
    pub index: Index,
    pub at: Timestamp,
    /// Number of commits in the log up to here.
    pub commit_count: u64,
    /// The index of the latest of them.
    pub last_commit: Option<Index>,
    pub crc: u32,
    pub body: &'a [u8],
}

/// Returns the checksum of an event row, over all its columns, so that a row in the wrong position is damaged too (L2).
pub(crate) fn event_crc(rk: i64, index: Index, at: Timestamp, commit_count: u64, last_commit: Option<Index>, body: &[u8]) -> u32 {
    let mut head = [0; 40];
    let last = last_commit.map_or(u64::MAX, |index| index.0);
    for (slot, value) in head.chunks_exact_mut(8).zip([rk as u64, index.0, at.0, commit_count, last]) {
        slot.copy_from_slice(&value.to_le_bytes());
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(body);
    hasher.finalize()
}

impl EventRow<'_> {
    /// Returns whether the row would be valid as a row of run `rk`.
    pub fn is_of(&self, rk: i64) -> bool {
        self.crc == event_crc(rk, self.index, self.at, self.commit_count, self.last_commit, self.body)
    }

    pub fn decode(&self, key: &RunKey) -> Result<Record, StoreError> {
        let corrupt = |why: String| StoreError::LogCorrupt { key: key.clone(), index: self.index, why };
        let crc = event_crc(self.rk, self.index, self.at, self.commit_count, self.last_commit, self.body);
        if crc != self.crc {
            return Err(corrupt(format!("its checksum is {crc:08x}, it was written with {:08x}", self.crc)));
        }
        Record::decode_body(self.index, self.at, self.body).map_err(|error| corrupt(error.to_string()))
    }
}

/// SQL expression for the checksum of the immutable columns of a row of `runs`.
macro_rules! run_crc {
    () => {
        "row_crc(rk, root, ns, id, generation, created, parent_ns, parent_id, parent_generation, input_hash)"
    };
}
pub(crate) use run_crc;

/// Returns the checksum of the values of a row.
pub(crate) fn row_crc<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for value in values {
        let number;
        let (kind, bytes): (u8, &[u8]) = match value {
            ValueRef::Null => (0, &[]),
            ValueRef::Integer(value) => {
                number = value.to_le_bytes();
                (1, &number)
            }
            ValueRef::Real(value) => {
                number = value.to_le_bytes();
                (2, &number)
            }
            ValueRef::Text(text) => (3, text),
            ValueRef::Blob(blob) => (4, blob),
        };
        hasher.update(&[kind]);
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    }
    hasher.finalize()
}

/// Returns the hashes in a checksummed list; a damaged list is treated as empty, so that payloads are kept rather than lost.
pub(crate) fn hashes(bytes: Option<&[u8]>) -> impl Iterator<Item = [u8; 16]> + '_ {
    let list = bytes.and_then(|bytes| unseal_bytes("references", bytes).ok());
    list.unwrap_or_default().chunks_exact(16).map(|chunk| <[u8; 16]>::try_from(chunk).unwrap_or_default())
}

#[cfg(test)]
mod tests;
