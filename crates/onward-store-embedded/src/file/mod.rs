//! Files of the directory: pages with checksums, write-ahead log, synced mark, schema, lock.

pub(crate) mod directory;
pub(crate) mod failpoint;
pub(crate) mod migrate;
pub(crate) mod pages;
pub(crate) mod schema;
pub(crate) mod synced;
pub(crate) mod wal;
