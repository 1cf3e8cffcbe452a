//! Repair of damaged rows, indexes and directories.

pub(crate) mod rebuild;
pub(crate) mod rows;
pub(crate) mod salvage;
