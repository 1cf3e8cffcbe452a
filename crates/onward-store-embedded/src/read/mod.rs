//! Reads: lists, heads, logs of earlier generations, kinds.

pub(crate) mod blobs;
pub(crate) mod heads;
pub(crate) mod ledger;
pub(crate) mod list;
pub(crate) mod past;
pub(crate) mod queues;
pub(crate) mod quotas;
pub(crate) mod reader;
