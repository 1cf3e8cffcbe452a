//! Tests of the test kit: a script must behave like a real run.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crashes;
mod negative;
mod replaying;
mod schedules;
mod spelling;
mod steps;
mod timing;
