//! Encodings of values: checksummed messages, call ids as keys, positions in lists.
//!
//! Must never return bytes that were not written: every value of [`seal`] carries a checksum that is verified.

use onward_core::codec::Message;
use onward_core::{CallId, Timestamp};

use crate::StoreError;

/// Encodes a message and appends its checksum.
pub fn seal(message: &impl Message) -> Vec<u8> {
    seal_bytes(message.to_bytes())
}

pub fn seal_bytes(mut bytes: Vec<u8>) -> Vec<u8> {
    let crc = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&crc.to_le_bytes());
    bytes
}

pub fn unseal<M: Message>(what: &str, bytes: &[u8]) -> Result<M, StoreError> {
    M::decode_fields(unseal_bytes(what, bytes)?).map_err(|error| damaged(what, error))
}

pub fn unseal_bytes<'a>(what: &str, bytes: &'a [u8]) -> Result<&'a [u8], StoreError> {
    let (bytes, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged(what, "too short"))?;
    if crc32fast::hash(bytes) != u32::from_le_bytes(*crc) {
        return Err(damaged(what, "wrong checksum"));
    }
    Ok(bytes)
}

/// Encodes a call id as a key whose bytes sort like call ids: branch by branch, then by ordinal.
pub fn call_id_key(call_id: &CallId) -> Vec<u8> {
    let path: Vec<u32> = call_id.path().collect();
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

pub fn read_call_id(key: &[u8]) -> Result<CallId, StoreError> {
    let step = |chunk: &[u8]| <[u8; 4]>::try_from(chunk.get(1..5)?).ok().map(u32::from_be_bytes);
    let path: Option<Vec<u32>> = key.chunks(5).map(step).collect();
    path.as_deref().and_then(CallId::from_path).ok_or_else(|| damaged("a call id", "not readable"))
}

/// Returns the newest-first cursor of a list: a time and an id.
pub fn cursor(at: Timestamp, id: &str) -> String {
    crate::cursor::cursor(at, id)
}

pub fn parse_cursor(cursor: &str) -> Result<(u64, &str), StoreError> {
    crate::parse_cursor(cursor).map(|(at, id)| (at.0, id))
}

/// Converts a time to a database number, capped below [`NEVER`]: users may set times that no column can hold.
pub fn due_number(at: Timestamp) -> i64 {
    at.0.min(NEVER as u64 - 1) as i64
}

/// Due times from here on are frozen: the run is paused. A quarter of the range of `i64`.
pub const NEVER: i64 = 1 << 61;

/// Builds the error for stored data that cannot be read back.
pub fn damaged(what: &str, why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { why: format!("{what}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_id_keys_sort_like_call_ids_and_read_back() {
        let mut call_ids: Vec<CallId> =
            ["0", "7", "300", "2.1.0", "2.1.4.0.9", "2.1.1", "2.0.5", "10.0.0"].map(|text| CallId::parse(text).unwrap()).into();
        let mut by_key = call_ids.clone();
        call_ids.sort();
        by_key.sort_by_key(call_id_key);
        assert_eq!(call_ids, by_key);
        for call_id in call_ids {
            assert_eq!(read_call_id(&call_id_key(&call_id)).unwrap(), call_id);
        }
    }

    /// A checksum detects damage, not foreign data: bytes with a valid checksum may come from elsewhere (S35).
    #[test]
    fn mutated_rows_are_refused_or_read_back_and_never_panic() {
        let call_ids: Vec<Vec<u8>> = ["0", "2.1.4.0.9"].iter().map(|text| call_id_key(&CallId::parse(text).unwrap())).collect();
        let counts = onward_testkit::mutate("keys of call ids", &call_ids, |bytes| {
            let Ok(call_id) = read_call_id(bytes) else { return false };
            assert_eq!(read_call_id(&call_id_key(&call_id)).unwrap(), call_id);
            true
        });
        counts.assert_refuses();
        let sealed = vec![seal_bytes(b"what was written".to_vec())];
        let counts = onward_testkit::mutate("seals", &sealed, |bytes| {
            let Ok(inner) = unseal_bytes("it", bytes) else { return false };
            assert_eq!(seal_bytes(inner.to_vec()), bytes);
            true
        });
        counts.assert_refuses();
        let cursors = vec![cursor(Timestamp(7), "order/1:2").into_bytes()];
        let counts = onward_testkit::mutate("cursors of lists", &cursors, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let Ok((at, id)) = parse_cursor(text) else { return false };
            assert_eq!(parse_cursor(&cursor(Timestamp(at), id)).unwrap(), (at, id));
            true
        });
        counts.assert_refuses();
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
