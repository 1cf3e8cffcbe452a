//! Files of the directory: database pages with checksums, write-ahead log, sync mark, leases, schema, lock.

pub(crate) mod directory;
pub(crate) mod failpoint;
pub(crate) mod lease_file;
pub(crate) mod pages;
pub(crate) mod schema;
pub(crate) mod synced;
pub(crate) mod wal;
