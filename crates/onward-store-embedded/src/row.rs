//! How values stand in rows: checksums, places, sealed messages.
//!
//! Must never return bytes that were not written: everything here carries a checksum and checks it.
//!
//! Invariants:
//! - I2: whatever is read of a row was checked: by the row's own checksum, or by the seal of a blob in it that says the same.

use onward_core::{Index, Record, RunKey, Timestamp};
use onward_store::StoreError;
pub(crate) use onward_store::kept::seal::{
    NEVER, cursor, due_number, parse_cursor, place_key, read_place, seal, seal_bytes, unseal, unseal_bytes,
};
use rusqlite::types::ValueRef;

/// One row of `events`, as it is read.
pub(crate) struct EventRow<'a> {
    pub rk: i64,
    pub index: Index,
    pub at: Timestamp,
    /// How many commits the log has up to here.
    pub commit_count: u64,
    /// The index of the latest of them.
    pub last_commit: Option<Index>,
    pub crc: u32,
    pub body: &'a [u8],
}

/// The checksum of an event row: over all it says, so that a row in the wrong place is damaged too (L2).
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
    /// Whether the row would be right if it were run `rk`'s.
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

/// The checksum of what never changes in a row of `runs`, as SQL.
macro_rules! run_crc {
    () => {
        "row_crc(rk, root, ns, id, generation, created, parent_ns, parent_id, parent_generation, input_hash)"
    };
}
pub(crate) use run_crc;

/// The checksum of the values of a row, as SQLite has them.
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

/// The hashes in a sealed list; a damaged one names nothing, so that what it named is kept rather than lost.
pub(crate) fn hashes(bytes: Option<&[u8]>) -> impl Iterator<Item = [u8; 16]> + '_ {
    let list = bytes.and_then(|bytes| unseal_bytes("references", bytes).ok());
    list.unwrap_or_default().chunks_exact(16).map(|chunk| <[u8; 16]>::try_from(chunk).unwrap_or_default())
}
