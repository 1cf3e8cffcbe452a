//! OpenAI's Chat Completions format, which most servers support.

mod request;
mod stream;

pub(crate) use request::{body, shows};
pub(crate) use stream::OpenAiReader;

/// Path below the base URL, which usually ends in `/v1`.
pub(crate) const PATH: &str = "/chat/completions";
