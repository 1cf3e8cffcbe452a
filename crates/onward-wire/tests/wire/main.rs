//! The encodings of messages, read by other implementations.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod foreign;
mod frames;
mod proto;
