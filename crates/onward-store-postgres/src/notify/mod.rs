//! LISTEN and NOTIFY between the servers of one database.

pub(crate) mod idle_cache;
pub(crate) mod listener;
pub(crate) mod message;
pub(crate) mod servers;
