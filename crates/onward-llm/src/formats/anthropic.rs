//! Anthropic's Messages format.

mod request;
mod stream;

pub(crate) use request::{body, shows};
pub(crate) use stream::AnthropicReader;

/// Path below the base URL.
pub(crate) const PATH: &str = "/v1/messages";

/// The version of the API format.
pub(crate) const VERSION: &str = "2023-06-01";
