//! The bridge with a shell in Rust, over real stores.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod kit;
mod life;
mod ordinary;
mod requests;
mod shell;
mod verbs;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Returns settings for a directory.
fn directory(directory: &TempDir) -> Value {
    json!({"store": directory.path().join("data").to_str().unwrap(), "check_replay": "every"})
}

fn memory() -> Value {
    json!({"store": "memory:", "check_replay": "every"})
}
