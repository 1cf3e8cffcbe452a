//! Reads: lists, and the data of one run.

pub(crate) mod list;
pub(crate) mod queues;
pub(crate) mod reader;
