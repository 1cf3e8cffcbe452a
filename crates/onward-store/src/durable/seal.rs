//! Encodings of values: checksummed messages, call ids as keys, numbers.
//!
//! Must never return bytes that were not written: every value of [`seal`] carries a checksum that is verified.

use onward_core::codec::Message;
use onward_core::run::OutboxMessage;
use onward_core::task::{Task, TaskState};
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

/// Converts a count or a limit to a database number.
pub fn number(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// Converts a time to a database number, capped below [`NEVER`]: users may set times that no column can hold.
pub fn due_number(at: Timestamp) -> i64 {
    at.0.min(NEVER as u64 - 1) as i64
}

/// Due times from here on are frozen: the run is paused. A quarter of the range of `i64`.
pub const NEVER: i64 = 1 << 61;

/// Decodes an outbox message that was sealed.
pub fn unseal_message(sealed: &[u8]) -> Result<OutboxMessage, StoreError> {
    OutboxMessage::from_bytes(unseal_bytes("a message", sealed)?).map_err(|error| damaged("a message", error))
}

/// The state of a queued task that is not visible yet, as a column has it; the other states are the numbers of [`TaskState`].
pub const DELAYED: u8 = 3;
/// The state of a queued task whose run is paused.
const PAUSED: u8 = 4;

/// Returns the state of a task as a column has it.
pub fn task_state_number(task: &Task, now: Timestamp) -> u8 {
    match task.state {
        TaskState::Queued if !task.waits_its_turn() => PAUSED,
        TaskState::Queued if !task.may_be_claimed(now) => DELAYED,
        state => state.number(),
    }
}

/// Builds the error for stored data that cannot be read back.
pub fn damaged(what: &str, why: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt { why: format!("{what}: {why}") }
}

#[cfg(test)]
mod tests;
