//! The HTTP door as a client meets it: a real listener, a real directory, a worker beside it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod attach;
mod client;
mod external;
mod finding;
mod guard;
mod keys;
mod limits;
mod operations;
mod questions;
mod reflection;
mod refusals;
mod reopening;
mod runs;
mod site;
mod tls;
