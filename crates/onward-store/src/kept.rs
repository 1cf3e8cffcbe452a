//! How stores that keep things do it, as far as they do it alike: sealed messages, keys that sort, large payloads apart, work and answers
//! that wait for a batch.
//!
//! Must never know a database: what is written where is each store's own.

pub mod body;
pub mod lanes;
pub mod large;
pub mod news;
pub mod reply;
pub mod seal;
pub mod work;

pub use body::Body;
pub use lanes::{Lanes, Waits};
pub use large::Stash;
pub use news::News;
pub use work::{ClaimRun, RestoreWork, StartRun};
