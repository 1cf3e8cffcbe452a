//! The command as people and scripts meet it: a real process, its streams, its exit code.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod demo;
mod dev;
mod keys;
mod kit;
mod mistakes;
mod moving;
mod tls;
mod verbs;
