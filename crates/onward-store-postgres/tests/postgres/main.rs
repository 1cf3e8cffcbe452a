//! The PostgreSQL store: the suite every store passes, and what only a database that many servers share can go through.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conformance;
mod contention;
mod damage;
mod kit;
mod lost;
mod plans;
mod proxy;
mod schema;
mod servers;
mod telling;
