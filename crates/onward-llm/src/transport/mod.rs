//! HTTP, server-sent events, and JSON that is kept byte for byte.

pub(crate) mod http;
pub(crate) mod json;
pub(crate) mod sse;
