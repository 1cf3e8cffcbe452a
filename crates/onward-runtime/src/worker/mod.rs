//! Workers: their connections, what they may take, what they hold.

pub(crate) mod connection;
pub(crate) mod held_back;
pub(crate) mod inbox;
pub(crate) mod list;
pub(crate) mod local;
pub(crate) mod profile;
pub(crate) mod rate_limits;
pub(crate) mod replays;
pub(crate) mod running_tasks;
pub(crate) mod session;
pub(crate) mod supply;
pub(crate) mod unknown_leases;
