//! The verbs of every interface, one file for each group of them.

pub(crate) mod blocked_on;
pub(crate) mod bulk;
pub(crate) mod call_ref;
pub(crate) mod client;
pub(crate) mod decide;
pub(crate) mod descendants;
pub(crate) mod drive;
pub(crate) mod execute;
pub(crate) mod external;
pub(crate) mod live;
pub(crate) mod observe;
pub(crate) mod promise_keys;
pub(crate) mod read;
pub(crate) mod reopen;
pub(crate) mod runs;
pub(crate) mod tasks;
pub(crate) mod transfer;
pub(crate) mod update;
pub(crate) mod watch;
