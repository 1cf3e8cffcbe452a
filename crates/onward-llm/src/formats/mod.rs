//! API formats of providers, and reading their responses.

pub(crate) mod anthropic;
pub(crate) mod draft;
pub(crate) mod openai;
pub(crate) mod response;
