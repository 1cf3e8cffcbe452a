//! Building blocks that the durable stores share: checksummed messages, sortable keys, large payloads stored apart, writes and
//! replies that wait for a batch.
//!
//! Must never depend on a database: the layout of rows is each store's own.

pub mod body;
pub mod lanes;
pub mod large;
pub mod limits;
pub mod reply;
pub mod seal;
pub mod work;

pub use body::Body;
pub use lanes::{Lanes, Waits};
pub use large::Blobs;
pub use work::{ClaimRun, Replies, Report, RestoreWork, RunOp, StartRun, encode_commit, encode_input};
