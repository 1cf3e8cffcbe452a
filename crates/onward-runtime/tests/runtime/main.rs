//! The runtime over the reference store, driven by hand: tests do not sleep, they pass time in.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod background;
mod children;
mod defaults;
mod elsewhere;
mod entries;
mod external;
mod faulty;
mod flows;
mod handover;
mod kit;
mod limits;
mod live;
mod memos;
mod namespaces;
mod observing;
mod questions;
mod quotas;
mod retention;
mod schedules;
mod sessions;
mod tasks;
mod timers;
mod transfer;
mod updates;
mod verbs;
mod watching;
