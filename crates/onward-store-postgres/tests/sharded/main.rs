//! Several databases as one store: the suite every store passes, and what only several can go through.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod down;
mod engines;
mod faulty;
mod lists;
mod news;
mod placement;
mod shares;
mod workers;
