//! Writes: a unit of work loads rows, decides, and saves what changed.

pub(crate) mod appender;
pub(crate) mod claim;
pub(crate) mod delete;
pub(crate) mod expire;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod op;
pub(crate) mod queues;
pub(crate) mod quotas;
pub(crate) mod save;
pub(crate) mod session;
pub(crate) mod unit;
