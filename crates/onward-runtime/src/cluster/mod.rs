//! Servers that share a store: broadcasts, workers of other servers, changes made elsewhere.

pub(crate) mod broadcast;
pub(crate) mod listener;
pub(crate) mod refresh;
pub(crate) mod workers;
