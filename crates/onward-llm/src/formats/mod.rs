//! API formats of providers, and reading their responses.

pub(crate) mod response;

/// Anthropic's Messages format.
pub(crate) mod anthropic {
    mod request;
    mod stream;

    pub(crate) use request::{body, shows};
    pub(crate) use stream::AnthropicReader;
}

/// OpenAI's Chat Completions format, which most servers support.
pub(crate) mod openai {
    mod request;
    mod stream;

    pub(crate) use request::{body, shows};
    pub(crate) use stream::OpenAiReader;
}
