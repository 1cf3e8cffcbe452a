//! Random ids and seeds, from the hash keys of the standard library, which come from the system's randomness.

pub use onward_store::sync::random_u64;

/// Returns an idempotency key for one action of this command.
pub fn unique() -> String {
    format!("cli-{:016x}", random_u64())
}

/// Returns a run id.
pub fn run() -> String {
    format!("run_{:016x}{:08x}", random_u64(), random_u64() >> 32)
}
