//! Store in one PostgreSQL database that any number of servers share.
//!
//! [`PostgresStore`] implements [`onward_store::Store`]. A few appender tasks, each for a part of the runs, take all waiting
//! operations, lock the runs, let `onward-core` decide, and write everything in one transaction. Other connections read, claim
//! and delete. Everything that servers must agree on is in rows, leases included; nothing is kept on a session, so a pooler may
//! stand in between. The tables, and why several servers and lost connections are safe, are described in
//! `docs/design/postgres.md`.
//!
//! Reading order: `schema` and `migrations`, `write::unit` (the unit of work) with `write::load` and `write::save`,
//! [`onward_store::unit_of_work`] (the operations), `connection::transaction` and `write::appender` (the batch),
//! `connection::pool`, `notify`.

#![forbid(unsafe_code)]

mod clock;
mod connection;
mod error;
mod notify;
mod read;
mod repair;
mod restore_guard;
mod row;
mod schema;
pub mod sharded;
mod shared;
mod stats;
mod store;
mod write;

pub use stats::{COMMIT_BOUNDS, Stats};
pub use store::{Options, PostgresStore};
