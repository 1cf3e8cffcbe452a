//! What is said here can be read by others.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod foreign;
mod frames;
mod proto;
