//! Ids and seeds that nobody else has: the standard library's hash keys come from the system's randomness.

use std::hash::{BuildHasher, Hasher};

pub fn random_u64() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The id of something that this command does once.
pub fn unique() -> String {
    format!("cli-{:016x}", random_u64())
}

/// A run's id.
pub fn run() -> String {
    format!("run_{:016x}{:08x}", random_u64(), random_u64() >> 32)
}
