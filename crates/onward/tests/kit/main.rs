//! The test kit itself: what a script plays must be what a run would live through.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crashes;
mod negative;
mod replaying;
mod schedules;
mod spelling;
mod steps;
mod timing;
