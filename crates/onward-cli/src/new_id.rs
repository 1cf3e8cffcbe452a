//! Random ids and seeds, from the hash keys of the standard library, which come from the system's randomness.

use std::hash::{BuildHasher, Hasher};

pub fn random_u64() -> u64 {
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// Returns an idempotency key for one action of this command.
pub fn unique() -> String {
    format!("cli-{:016x}", random_u64())
}

/// Returns a run id.
pub fn run() -> String {
    format!("run_{:016x}{:08x}", random_u64(), random_u64() >> 32)
}
