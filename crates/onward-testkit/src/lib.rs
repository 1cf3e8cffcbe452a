//! Test utilities shared by several crates: PostgreSQL clusters, a failing network, a wrong clock, mutated bytes.
//!
//! Only for tests and benchmarks: no crate of the product depends on it.
#![allow(unsafe_code, reason = "signals are sent to the processes of a cluster")]

mod clock;
mod cluster;
mod mutate;
mod proxy;

pub use clock::WrongClock;
pub use cluster::*;
pub use mutate::{MutationCounts, mutate, mutate_times};
pub use proxy::Proxy;
