//! How values stand in rows: checksums, places, sealed messages.
//!
//! Must never return bytes that were not written: everything here carries a checksum and checks it.
//!
//! Invariants:
//! - I2: whatever is read of a row was checked: by the row's own checksum, or by the seal of a blob in it that says the same.

use onward_core::codec::{DecodeError, Message, Reader, put_varint};
use onward_core::{Index, Place, Record, RunKey, Timestamp};
use onward_store::StoreError;
use rusqlite::types::ValueRef;

use crate::error::damaged;

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

/// A message and its checksum.
pub(crate) fn seal(message: &impl Message) -> Vec<u8> {
    seal_bytes(message.to_bytes())
}

pub(crate) fn seal_bytes(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

pub(crate) fn unseal<M: Message>(what: &str, bytes: &[u8]) -> Result<M, StoreError> {
    M::decode_fields(unseal_bytes(what, bytes)?).map_err(|error| damaged(what, error))
}

pub(crate) fn unseal_bytes<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a [u8], StoreError> {
    let (bytes, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged(what, "too short"))?;
    if crc32fast::hash(bytes) != u32::from_le_bytes(*crc) {
        return Err(damaged(what, "wrong checksum"));
    }
    Ok(bytes)
}

/// A place as a key whose bytes sort like the places themselves: branch by branch, then by ordinal.
pub(crate) fn place_key(place: &Place) -> Vec<u8> {
    let path: Vec<u32> = place.path().collect();
    let mut key = Vec::with_capacity(path.len() * 5);
    if let Some((ordinal, branch)) = path.split_last() {
        for step in branch {
            key.push(1);
            key.extend_from_slice(&step.to_be_bytes());
        }
        key.push(0);
        key.extend_from_slice(&ordinal.to_be_bytes());
    }
    key
}

pub(crate) fn read_place(key: &[u8]) -> Result<Place, StoreError> {
    let step = |chunk: &[u8]| <[u8; 4]>::try_from(chunk.get(1..5)?).ok().map(u32::from_be_bytes);
    let path: Option<Vec<u32>> = key.chunks(5).map(step).collect();
    path.as_deref().and_then(Place::from_path).ok_or_else(|| damaged("a place", "not readable"))
}

/// The newest-first cursor of a list: a time and an id.
pub(crate) fn cursor(at: Timestamp, id: &str) -> String {
    format!("{}:{id}", at.0)
}

pub(crate) fn parse_cursor(cursor: &str) -> Result<(u64, &str), StoreError> {
    let parsed = cursor.split_once(':').and_then(|(at, id)| Some((at.parse().ok()?, id)));
    parsed.ok_or_else(|| StoreError::CursorInvalid { cursor: cursor.to_owned() })
}

/// Times of users may lie beyond what SQLite can hold; they are cut where no clock will ever be.
pub(crate) fn due_number(at: Timestamp) -> i64 {
    at.0.min(NEVER as u64 - 1) as i64
}

/// Dues from here on are frozen: the run is paused. Half of what an `i64` holds.
pub(crate) const NEVER: i64 = 1 << 61;

/// The hashes in a sealed list; a damaged one names nothing, so that what it named is kept rather than lost.
pub(crate) fn hashes(bytes: Option<&[u8]>) -> impl Iterator<Item = [u8; 16]> + '_ {
    let list = bytes.and_then(|bytes| unseal_bytes("references", bytes).ok());
    list.unwrap_or_default().chunks_exact(16).map(|chunk| <[u8; 16]>::try_from(chunk).unwrap_or_default())
}

/// Two numbers as bytes, for a stub that stands for a large payload.
pub(crate) fn stub(hash: &[u8; 16], length: usize) -> Vec<u8> {
    let mut bytes = hash.to_vec();
    put_varint(length as u64, &mut bytes);
    bytes
}

pub(crate) fn read_stub(bytes: &[u8]) -> Option<([u8; 16], usize)> {
    let (hash, length) = bytes.split_first_chunk::<16>()?;
    let length: Result<u64, DecodeError> = Reader::new(length).varint();
    Some((*hash, usize::try_from(length.ok()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_keys_sort_like_places_and_read_back() {
        let mut places: Vec<Place> =
            ["0", "7", "300", "2.1.0", "2.1.4.0.9", "2.1.1", "2.0.5", "10.0.0"].map(|text| Place::parse(text).unwrap()).into();
        let mut by_key = places.clone();
        places.sort();
        by_key.sort_by_key(place_key);
        assert_eq!(places, by_key);
        for place in places {
            assert_eq!(read_place(&place_key(&place)).unwrap(), place);
        }
    }

    #[test]
    fn a_changed_byte_breaks_the_seal() {
        let sealed = seal_bytes(b"what was written".to_vec());
        assert_eq!(unseal_bytes("it", &sealed).unwrap(), b"what was written");
        for position in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[position] ^= 4;
            assert!(unseal_bytes("it", &changed).is_err(), "byte {position}");
        }
    }
}
