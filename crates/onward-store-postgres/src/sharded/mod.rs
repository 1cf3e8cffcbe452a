//! One store over several databases: runs are spread over them by family, lists are merged, and a database that is down takes only its
//! own runs with it.
//!
//! Owns where a run lies and nothing else: what is known of a run, a worker or a task is known to one database. Must never decide about a
//! run, and must never write to two databases what only one write can keep together.
//!
//! Invariants:
//! - SD1: where a run lies follows from its namespace, its family and the number of databases, for ever.
//! - SD2 (L19): a run and its open children lie in one database. A start or a log that would change this is refused.
//! - SD3: what is asked of all databases goes on with those that answer, and nobody waits for one that is known to be down, nor asks it.
//! - SD4: a list has everything, or names the databases that are missing and was asked for by somebody who takes it so; otherwise it is an
//!   error that names one. A sum has everything or is such an error.
//! - SD5: a database is asked for nothing before it has said that it is the one it is taken for.
//! - SD6 (L7): a worker is known if a database that answers knew it. Leases in a database that has forgotten it are lost there alone: the
//!   next claim raises the epoch, and nothing of the earlier holder is taken.
//! - SD7: news for a database that is down wait in the sender's, and hold up no other news.

mod claim;
mod database;
mod due;
mod list;
mod merge;
mod news;
mod open;
mod spread;
mod store;
mod time;
mod together;

pub use database::Health;
pub use open::Database;
pub use spread::{ShardedStore, position};
pub use time::Pace;
