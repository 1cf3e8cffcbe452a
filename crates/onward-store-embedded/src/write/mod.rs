//! The effect of each write on the tables. Everything here runs inside a transaction of the writer.
//!
//! Must never decide: `onward-core` decides what may be appended and what follows. Each operation decides before it writes, so
//! that a refusal has written nothing (T2).

mod append;
mod claim;
pub(crate) mod counted;
mod delete;
pub(crate) mod effects;
mod expire;
mod kinds;
pub(crate) mod op;
pub(crate) mod restore;
pub(crate) mod shrink;
pub(crate) mod takeover;
pub(crate) mod tasks;
pub(crate) mod upkeep;
pub(crate) mod writer;
