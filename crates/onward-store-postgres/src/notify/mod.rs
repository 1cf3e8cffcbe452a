//! LISTEN and NOTIFY: what servers of one database announce to each other.

pub(crate) mod listener;
pub(crate) mod message;
pub(crate) mod pulse;
pub(crate) mod servers;
