//! The default store of Onward: one directory, one process, group commit over SQLite.
//!
//! [`EmbeddedStore`] implements [`onward_store::Store`]. One thread writes: it takes everything that is waiting, does it in one
//! transaction with one sync, and answers when the sync has returned. A few threads read. Leases are in memory only. The format and
//! the argument why a crash at any point is safe are in `docs/design/store.md`.
//!
//! Reading order: `schema` (what is on disk), `pages` and `row` (how damage is found) and `mend`, `salvage` and `repair` (what is done about it), `directory`
//! (who may open it), `wal` and `synced` (whether the write-ahead log is whole) and `migrate`, `writer` (the batch), `write` (what each operation does),
//! `heads` (from rows to a run's head), `leases` and `ready` (what is in memory), `reader` and `list`.

mod error;
mod file;
mod jumps;
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
