//! Tests of the PostgreSQL store: the suite of all stores, and faults of a database that many servers share.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod clocks;
mod conformance;
mod contention;
mod damage;
mod explain;
mod failover;
mod frozen;
mod herd;
mod kit;
mod lost;
mod notifications;
mod plans;
mod pooled;
mod queues;
mod quotas;
mod racing;
mod repairing;
mod restored;
mod retention;
mod schema;
mod servers;
mod tls;
