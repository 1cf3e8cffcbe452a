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

mod address;
mod append;
mod appender;
mod blobs;
mod claim;
mod delete;
mod effects;
mod entrance;
mod error;
mod expire;
mod hints;
mod judge;
mod ledger;
mod lineage;
mod list;
mod load;
mod mend;
mod op;
mod pool;
mod pulse;
mod reader;
mod restore;
mod row;
mod save;
mod scene;
mod schema;
mod servers;
mod share;
mod shared;
mod silence;
mod sql;
mod stats;
mod store;
mod table;
mod tasks;
mod tls;
mod transaction;
mod words;

pub use stats::{COMMIT_BOUNDS, Stats};
pub use store::{Options, PostgresStore};
