//! Writes: the rows of a unit of work are loaded, decided about by [`onward_store::unit_of_work`], and saved. Everything here runs
//! inside a transaction of the writer.
//!
//! Must never decide. Each operation is decided before it is saved, so that a refusal has written nothing (T2).

pub(crate) mod counted;
mod delete;
pub(crate) mod maintenance;
pub(crate) mod op;
pub(crate) mod queues;
pub(crate) mod quotas;
mod rows;
pub(crate) mod save;
pub(crate) mod tasks;
pub(crate) mod writer;
