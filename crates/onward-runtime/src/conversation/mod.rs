//! The conversation of an agent: reading, appending, branching.

pub(crate) mod append;
pub(crate) mod branch;
pub(crate) mod read;
