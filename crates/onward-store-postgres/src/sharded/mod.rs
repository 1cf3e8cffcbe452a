//! One store over several databases: runs are sharded by root run, lists are merged, and one that is down affects only its runs.
//!
//! Owns the placement of runs and nothing else: all state of a run, a worker session or a task is in one database. Must never
//! decide about a run, and never split over two databases what has to be one write.
//!
//! Invariants:
//! - SD1: the database of a run follows from its namespace, its root run and the number of databases, and never changes.
//! - SD2 (L19): a run and its open children are in one database. A start or a log that would violate this is refused.
//! - SD3: an operation on all databases continues with those that respond; one that is known to be down is neither queried nor
//!   waited for.
//! - SD4: a list is complete, or its caller accepts gaps and gets the names of the missing databases; otherwise it fails with an
//!   error that names one. A sum is complete or fails like that.
//! - SD5: a database is not used before its recorded shard was verified.
//! - SD6 (L7): a worker session is known if one responding database knows it. Leases in a database that has forgotten it are lost
//!   there alone: the next claim raises the epoch, and writes of the earlier holder are refused.
//! - SD7: outbox messages for a database that is down wait in the sender's database and do not block others.

mod claim;
mod database;
mod due;
mod kinds;
mod merge;
mod open;
mod outbox;
mod routing;
mod store;
mod time;

pub use database::Health;
pub use open::Database;
pub use routing::{ShardedStore, position};
pub use time::Pace;
