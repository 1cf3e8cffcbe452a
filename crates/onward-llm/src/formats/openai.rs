//! The dialect of OpenAI's Chat Completions, which most servers speak.

mod request;
mod stream;

pub(crate) use request::{body, shows};
pub(crate) use stream::Reader;

/// Below the base URL, which ends in `/v1` by custom.
pub(crate) const PATH: &str = "/chat/completions";
