//! The dialect of Anthropic's Messages.

mod request;
mod stream;

pub(crate) use request::{body, shows};
pub(crate) use stream::Reader;

/// Below the base URL.
pub(crate) const PATH: &str = "/v1/messages";

/// The version of the dialect that is spoken here.
pub(crate) const VERSION: &str = "2023-06-01";
