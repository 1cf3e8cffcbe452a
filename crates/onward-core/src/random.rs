//! Random numbers that need no recording: derived from a run's seed and a call id.
//!
//! Must never change its results: replay needs the same numbers.

use crate::{CallId, Hash};

/// Derives the `counter`-th 64 random bits of the call at `call_id`.
pub fn derive(seed: u64, call_id: &CallId, counter: u64) -> u64 {
    let path: Vec<u8> = call_id.path().flat_map(u32::to_le_bytes).collect();
    let hash = Hash::of_parts(&[&seed.to_le_bytes(), &path, &counter.to_le_bytes()]);
    let (low, _) = hash.0.split_at(8);
    u64::from_le_bytes(low.try_into().expect("8 of 16 bytes"))
}

/// Derives a version 4 UUID for the call at `call_id`.
pub fn uuid(seed: u64, call_id: &CallId) -> [u8; 16] {
    let (high, low) = (derive(seed, call_id, 0), derive(seed, call_id, 1));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_le_bytes());
    bytes[8..].copy_from_slice(&low.to_le_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
