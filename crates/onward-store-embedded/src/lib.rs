//! The default store of Onward: one directory, one process, group commit over SQLite.
//!
//! [`EmbeddedStore`] implements [`onward_store::Store`]. One thread writes: it takes everything that is waiting, writes it in one
//! transaction with one sync, and replies when the sync has returned. A few threads read. Leases are in memory only. The format
//! and the argument why a crash at any point is safe are in `docs/design/store.md`.
//!
//! Reading order: `file::schema` (format), `file::pages` and `row` (detection of damage), `repair`, `file::directory` (opening
//! and locking), `file::wal` and `file::synced` (completeness of the write-ahead log), `write::writer` (the
//! batch), `write` (the operations), `read::heads` (from rows to a run's head), `leases` and `ready` (state in memory),
//! `read::reader` and `read::list`.

mod clock_jumps;
mod error;
mod file;
mod leases;
mod read;
mod ready;
mod repair;
mod row;
mod shared;
mod store;
mod write;

pub use file::failpoint::FAILPOINTS;
pub use file::schema::FORMAT;
pub use file::wal::LogDamage;
pub use repair::rebuild::{Lost, Repaired};
pub use shared::Stats;
pub use store::{EmbeddedStore, Options, WorkersInside};
