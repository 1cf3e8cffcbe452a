//! Unique ids and random seeds.

use onward_core::Timestamp;

pub(crate) use onward_store::sync::random_u64;

/// Returns a new run id; ids sort by time.
pub(crate) fn run_id(now: Timestamp) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let bits = (u128::from(now.0) & ((1 << 48) - 1)) << 80 | u128::from(random_u64()) << 16 | u128::from(random_u64() & 0xffff);
    let digit = |position: u32| DIGITS[(bits >> (5 * position) & 31) as usize] as char;
    format!("run_{}", (0..26).rev().map(digit).collect::<String>())
}

/// Returns a new idempotency key for a request that came without one.
pub(crate) fn request_id() -> String {
    format!("request_{:016x}{:016x}", random_u64(), random_u64())
}

pub(crate) fn update_id() -> String {
    format!("update_{:016x}{:016x}", random_u64(), random_u64())
}
