//! Tests of the sharded store: the suite of all stores, and faults that need several databases.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod down;
mod engines;
mod faulty;
mod lists;
mod outbox;
mod placement;
mod quotas;
mod shards;
mod workers;
