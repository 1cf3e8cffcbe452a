//! Unique ids and random seeds.

pub(crate) use onward_runtime::new_run_id as run_id;
pub(crate) use onward_store::sync::random_u64;

/// Returns a new idempotency key for a request that came without one.
pub(crate) fn request_id() -> String {
    format!("request_{:016x}{:016x}", random_u64(), random_u64())
}

pub(crate) fn update_id() -> String {
    format!("update_{:016x}{:016x}", random_u64(), random_u64())
}
