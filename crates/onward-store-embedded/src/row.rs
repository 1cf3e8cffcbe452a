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

#[cfg(test)]
mod tests {
    use onward_core::event::RunStarted;
    use onward_core::{Event, Name, Namespace, Payload, RunId};

    use super::*;

    fn body() -> Vec<u8> {
        let started = RunStarted::new(Name::new("order").expect("a name"), Payload::null(), 3);
        let events: Vec<Event> = vec![started.into()];
        let mut body = Vec::new();
        Record { index: Index(0), at: Timestamp(1), commit: None, events }.encode_body(&mut body);
        body
    }

    /// S35: a row whose checksum fits is read, or named as damaged; one whose checksum does not fit is never read.
    #[test]
    fn mutated_rows_are_refused_or_read_back_and_never_panic() {
        let key = RunKey::new(Namespace::default(), RunId::new("r").expect("an id"));
        let counts = onward_testkit::mutate("rows of events", &[body()], |body| {
            let (index, at) = (Index(0), Timestamp(1));
            let crc = event_crc(7, index, at, 0, None, body);
            let row = EventRow { rk: 7, index, at, commit_count: 0, last_commit: None, crc, body };
            let Ok(record) = row.decode(&key) else { return false };
            let mut again = Vec::new();
            record.encode_body(&mut again);
            assert_eq!(Record::decode_body(index, at, &again).as_ref(), Ok(&record));
            assert!(EventRow { crc: row.crc ^ 1, ..row }.decode(&key).is_err(), "a wrong checksum is passed over");
            true
        });
        counts.assert_refuses();
    }
}
