//! Tests of the embedded store: the conformance suite, and the failures that only a directory on a disk can have.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cells;
mod clocks;
mod conformance;
mod crash;
mod damage;
mod died;
mod directory;
mod erase;
mod flips;
mod forks;
mod full;
mod past;
mod power;
mod queues;
mod random;
mod reads;
mod repair;
mod rows;
mod shim;
mod size;
mod takeover;
mod transfer;
mod workload;
