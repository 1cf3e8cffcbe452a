//! Connections: address, TLS, timeouts, pool, statements, transactions.

pub(crate) mod address;
pub(crate) mod open;
pub(crate) mod pool;
pub(crate) mod sql;
pub(crate) mod timeout;
pub(crate) mod tls;
pub(crate) mod transaction;
