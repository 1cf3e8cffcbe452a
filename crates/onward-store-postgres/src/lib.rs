//! The store of Onward for as many servers as you like: one PostgreSQL database.
//!
//! [`PostgresStore`] implements [`onward_store::Store`]. A few tasks append, each for its share of the runs: they take everything that is
//! waiting, lock the runs that are concerned, let `onward-core` decide, and write all of it in one transaction. A few connections read,
//! claim and delete. Everything that servers must agree upon is in rows, leases too; nothing is kept on a session, so a pooler may stand in
//! between. The tables and the argument why many servers and lost connections are safe are in `docs/design/postgres.md`.
//!
//! Reading order: `schema` and `migrations` (what is stored), `scene` (what a transaction knows) with `load` and `save`, `append` and its
//! neighbors (what each operation does), `transaction` and `appender` (the batch), `pool`, `hints`.

#![forbid(unsafe_code)]

mod connection;
mod error;
mod judge;
mod mend;
mod notify;
mod read;
mod restore_guard;
mod row;
mod schema;
pub mod sharded;
mod share;
mod shared;
mod stats;
mod store;
mod write;

pub use stats::{COMMIT_BOUNDS, Stats};
pub use store::{Options, PostgresStore};
