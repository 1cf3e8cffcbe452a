//! The server's side of the worker protocol, frame by frame.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attempts;
mod conversations;
mod drive;
mod identity;
mod over_http;
mod raw;
mod sessions;
mod versions;
