//! Encoding of values in rows, with checksums.
//!
//! Must never return bytes that were not written: every value has a checksum that is verified.
//!
//! Invariants:
//! - DB3: every value read from a row is verified, by the checksum of the row or by that of an encoded message in it; damage is
//!   reported, with the run if it is known.

use onward_core::codec::Message;
use onward_core::{Hash, Index, Record, RunHead, RunKey, Timestamp};
use onward_store::StoreError;
use onward_store::durable::seal::{damaged, seal_bytes, unseal_bytes};

use crate::error::damaged_row;

/// Computes the checksum of numbers and of byte strings with their lengths.
pub(crate) fn crc(numbers: &[i64], parts: &[&[u8]]) -> i64 {
    let mut hasher = crc32fast::Hasher::new();
    numbers.iter().for_each(|number| hasher.update(&number.to_le_bytes()));
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    i64::from(hasher.finalize())
}

/// Computes the checksum of an event's row. It covers the key, so a row at the wrong position counts as damaged, too (L2).
pub(crate) fn event_crc(rk: i64, generation: u32, index: Index, at: Timestamp, body: &[u8]) -> i64 {
    crc(&[rk, i64::from(generation), index.0 as i64, at.0 as i64], &[body])
}

pub(crate) struct EventRow<'a> {
    pub rk: i64,
    pub generation: u32,
    pub index: Index,
    pub at: Timestamp,
    pub crc: i64,
    pub body: &'a [u8],
}

impl EventRow<'_> {
    pub fn decode(&self, key: &RunKey) -> Result<Record, StoreError> {
        let corrupt = |why: String| StoreError::LogCorrupt { key: key.clone(), index: self.index, why };
        let crc = event_crc(self.rk, self.generation, self.index, self.at, self.body);
        if crc != self.crc {
            return Err(corrupt(format!("checksum mismatch: computed {crc:08x}, stored {:08x}", self.crc)));
        }
        Record::decode_body(self.index, self.at, self.body).map_err(|error| corrupt(error.to_string()))
    }
}

/// Encodes a head and the hash of the input with which the run was first started.
pub(crate) fn seal_head(head: &RunHead, input_hash: Option<&Hash>) -> Vec<u8> {
    let mut bytes = input_hash.expect("the hash is part of the row").0.to_vec();
    head.encode_fields(&mut bytes);
    seal_bytes(bytes)
}

/// Decodes the head of run `key`; fails if it is damaged or belongs to another run.
pub(crate) fn unseal_head(key: &RunKey, sealed: &[u8]) -> Result<(RunHead, Hash), StoreError> {
    let (head, hash) = unseal_any_head(sealed).map_err(|_| damaged_row(key, "the run"))?;
    if head.key == *key { Ok((head, hash)) } else { Err(damaged_row(key, "the run")) }
}

pub(crate) fn unseal_any_head(sealed: &[u8]) -> Result<(RunHead, Hash), StoreError> {
    let bytes = unseal_bytes("a run's row", sealed)?;
    let (hash, head) = bytes.split_first_chunk::<16>().ok_or_else(|| damaged("a run's row", "too short"))?;
    Ok((RunHead::decode_fields(head).map_err(|error| damaged("a run's row", error))?, Hash(*hash)))
}

#[cfg(test)]
mod tests;
