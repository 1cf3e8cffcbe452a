//! Handlers of the HTTP API, one file for each resource.

pub(crate) mod agents;
pub(crate) mod approvals;
pub(crate) mod attach;
pub(crate) mod attachments;
pub(crate) mod attributes;
pub(crate) mod bulk;
pub(crate) mod drive;
pub(crate) mod entries;
pub(crate) mod external;
pub(crate) mod kinds;
pub(crate) mod operations;
pub(crate) mod promises;
pub(crate) mod rate_limits;
pub(crate) mod runs;
pub(crate) mod servers;
pub(crate) mod spend;
pub(crate) mod tasks;
pub(crate) mod transfer;
pub(crate) mod worker_list;
