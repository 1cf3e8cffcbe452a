//! Chance without recording it: numbers that derive from a run's seed and a call's place.
//!
//! Must never change what it returns: replay gets the same numbers or diverges.

use crate::{Hash, Place};

/// The `counter`-th 64 random bits of the call at `place`.
pub fn derive(seed: u64, place: &Place, counter: u64) -> u64 {
    let path: Vec<u8> = place.path().flat_map(u32::to_le_bytes).collect();
    let hash = Hash::of_parts(&[&seed.to_le_bytes(), &path, &counter.to_le_bytes()]);
    let (low, _) = hash.0.split_at(8);
    u64::from_le_bytes(low.try_into().expect("8 of 16 bytes"))
}

/// A version 4 UUID for the call at `place`.
pub fn uuid(seed: u64, place: &Place) -> [u8; 16] {
    let (high, low) = (derive(seed, place, 0), derive(seed, place, 1));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_le_bytes());
    bytes[8..].copy_from_slice(&low.to_le_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    bytes
}
