//! Reads: lists, and everything of one run.

pub(crate) mod list;
pub(crate) mod reader;
