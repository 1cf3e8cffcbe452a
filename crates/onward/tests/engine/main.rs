//! The whole engine in one process: client, runtime, worker and store together.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod answers;
mod approving;
mod attached;
mod branching;
mod broken;
mod changes;
mod children;
mod claims;
mod closing;
mod conversation;
mod counterexamples;
mod crashes;
mod defaults;
mod delegating;
mod drive;
mod forking;
mod guards;
mod injected;
mod keeping;
mod keys;
mod life;
mod limits;
mod live;
mod logging;
mod loops;
mod memos;
mod middleware;
mod models;
mod namespaces;
mod outside;
mod parallel;
mod pausing;
mod poison;
mod questions;
mod reopening;
mod replays;
mod requests;
mod resuming;
mod schedules;
mod schemas;
mod sealing;
mod signals;
mod site;
mod spawning;
mod spending;
mod stalls;
mod standalone;
mod start_policies;
mod steps;
mod streams;
mod talking;
mod tight;
mod timers;
mod tools;
mod traps;
mod warnings;
mod workers;

use onward::{Builder, Onward, ReplayCheck};

/// Returns an engine in memory that replays every run from the start after each of its commits.
fn in_memory() -> Builder {
    Onward::in_memory().check_replay(ReplayCheck::Every)
}

fn embedded(directory: &std::path::Path) -> Builder {
    Onward::embedded(directory).check_replay(ReplayCheck::Every)
}
