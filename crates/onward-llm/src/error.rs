//! Failures of an attempt, and what they mean for the next one.
//!
//! Makes no decision about retries: an error reports whether and when another attempt makes sense, and the engine decides. An
//! error must never contain a key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ModelReply;

/// Detail for a hash that was not replaced by bytes before the request is written.
pub(crate) const NOT_IN_PLACE: &str = "its bytes were not loaded";

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{cause}{}", behind(detail))]
pub struct CallError {
    pub cause: Cause,
    /// Details without text of the provider.
    pub detail: String,
    /// The provider's message, truncated and without the key. It may repeat parts of the request, so it is for operators only
    /// and in no other text.
    #[serde(default, skip_serializing)]
    pub provider_message: Option<String>,
    /// The HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// The provider's id of this request, for its support.
    pub request_id: Option<String>,
    /// The provider's own advice whether another attempt makes sense.
    pub should_retry: Option<bool>,
    /// The part of the response that had arrived, including usage.
    pub arrived: Box<ModelReply>,
}

fn behind(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The key has reached its rate limit, for every caller.
    #[error("the provider rate-limited this key")]
    RateLimited { retry_after: Option<Duration> },
    #[error("the account at the provider has no credit left")]
    QuotaExhausted,
    #[error("the provider is overloaded")]
    Overloaded { retry_after: Option<Duration> },
    #[error("the provider failed")]
    ServerError { retry_after: Option<Duration> },
    /// A response with status success and without text, call, reasoning or refusal, or with an error inside.
    #[error("the model returned an empty response")]
    Empty,
    #[error("the provider rejected the request")]
    BadRequest,
    #[error("the provider rejected the key")]
    Auth,
    #[error("the conversation is too long for the model")]
    ContextTooLong,
    /// The response was cut off or does not follow the API format.
    #[error("the response is malformed")]
    Malformed,
    #[error("the response is too large")]
    TooLarge,
    #[error("the response timed out")]
    Timeout,
    /// The connection ended before a response began; the provider may have executed the request.
    #[error("the connection ended before a response")]
    Disconnected,
    /// There was no connection, so the request was never sent.
    #[error("the provider cannot be reached")]
    Unreachable,
    /// A message refers to an attachment by its hash, and its bytes are not found.
    #[error("an attachment is missing")]
    AttachmentMissing,
    /// A message refers to an attachment by its hash, and the stored bytes have another one.
    #[error("an attachment is damaged")]
    AttachmentDamaged,
    /// A message refers to an attachment by its hash, and its store cannot be read now.
    #[error("an attachment cannot be read")]
    AttachmentUnreadable,
}

impl CallError {
    /// Returns the error for an attachment whose bytes are not found.
    pub fn attachment_missing(hash: &str, why: &str) -> CallError {
        CallError::new(Cause::AttachmentMissing, format!("{hash}: {why}"))
    }

    /// Returns the error for an attachment whose stored bytes have another hash.
    pub fn attachment_damaged(hash: &str) -> CallError {
        CallError::new(Cause::AttachmentDamaged, format!("{hash}: the stored bytes have another hash"))
    }

    /// Returns the error for an attachment whose store cannot be read.
    pub fn attachment_unreadable(hash: &str, why: &str) -> CallError {
        CallError::new(Cause::AttachmentUnreadable, format!("{hash}: {why}"))
    }

    pub(crate) fn new(cause: Cause, detail: impl Into<String>) -> CallError {
        let detail = detail.into();
        CallError {
            cause,
            detail,
            provider_message: None,
            status: None,
            request_id: None,
            should_retry: None,
            arrived: Box::default(),
        }
    }

    /// Adds the provider's message.
    pub(crate) fn with_provider_message(self, provider_message: impl Into<String>) -> CallError {
        CallError {
            provider_message: Some(provider_message.into()).filter(|provider_message| !provider_message.is_empty()),
            ..self
        }
    }

    /// Returns the stable code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        match self.cause {
            Cause::RateLimited { .. } => "model_rate_limited",
            Cause::QuotaExhausted => "model_quota_exhausted",
            Cause::Overloaded { .. } => "model_overloaded",
            Cause::ServerError { .. } => "model_failed",
            Cause::Empty => "empty_model_response",
            Cause::BadRequest => "model_request_refused",
            Cause::Auth => "model_key_refused",
            Cause::ContextTooLong => "context_too_long",
            Cause::Malformed => "model_answer_broken",
            Cause::TooLarge => "model_answer_too_large",
            Cause::Timeout => "model_timed_out",
            Cause::Disconnected => "model_disconnected",
            Cause::Unreachable => "model_unreachable",
            Cause::AttachmentMissing => "attachment_missing",
            Cause::AttachmentDamaged => "attachment_damaged",
            Cause::AttachmentUnreadable => "attachment_unreadable",
        }
    }

    /// Returns true if the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        let retryable = match self.cause {
            Cause::RateLimited { .. } | Cause::Overloaded { .. } | Cause::ServerError { .. } | Cause::Empty => true,
            Cause::Malformed | Cause::Timeout | Cause::Disconnected | Cause::Unreachable => true,
            Cause::AttachmentMissing | Cause::AttachmentDamaged | Cause::AttachmentUnreadable => true,
            Cause::QuotaExhausted | Cause::BadRequest | Cause::Auth | Cause::ContextTooLong | Cause::TooLarge => false,
        };
        // A provider's advice counts for its own responses, not for connections.
        if self.status.is_some() { self.should_retry.unwrap_or(retryable) } else { retryable }
    }

    /// Returns the wait that the provider asks for.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause {
            Cause::RateLimited { retry_after } | Cause::Overloaded { retry_after } | Cause::ServerError { retry_after } => {
                retry_after
            }
            _ => None,
        }
    }

    /// Returns true if every call with this key is refused for a while and can succeed later, so that no call should be made
    /// before. An invalid key or an exhausted account does not count: those calls fail at once.
    pub fn limits_key(&self) -> bool {
        matches!(self.cause, Cause::RateLimited { .. })
    }

    /// Returns true if the attempt may be billed although no response was accepted; the known part is in `arrived.usage`.
    pub fn may_have_cost(&self) -> bool {
        match self.cause {
            Cause::Empty | Cause::Malformed | Cause::TooLarge | Cause::Timeout | Cause::Disconnected => true,
            _ => self.arrived.usage.is_some(),
        }
    }

    /// Returns true if the attempt may have cost more than `arrived.usage`: some API formats report usage at the beginning, and
    /// the rest is missing if the response was cut off.
    pub fn cost_is_unknown(&self) -> bool {
        let is_whole = self.cause == Cause::Empty || self.arrived.stop.is_some();
        self.may_have_cost() && !(is_whole && self.arrived.usage.is_some())
    }

    pub fn hint(&self) -> &'static str {
        match self.cause {
            Cause::RateLimited { .. } => "wait until the provider lifts the limit, or use more keys or a higher tier",
            Cause::QuotaExhausted => "top up the account at the provider",
            Cause::Overloaded { .. } | Cause::ServerError { .. } => "wait; see the provider's status page",
            Cause::Empty => "retry; some providers return an empty response instead of an error",
            Cause::BadRequest => {
                "check the model, its parameters and the schemas of its tools; operators see the provider's message"
            }
            Cause::Auth => "check the environment variable that `key_env` names",
            Cause::ContextTooLong => "compact the conversation, or use a model with a larger window",
            Cause::Malformed | Cause::Disconnected => "retry; the error contains the part that arrived",
            Cause::TooLarge => "lower `max_tokens`, or raise `answer_bytes_max` of the provider",
            Cause::Timeout => "raise `idle_timeout_seconds` or `call_timeout_seconds` of the provider if its model needs longer",
            Cause::Unreachable => "check `base_url` of the provider, and the network",
            Cause::AttachmentMissing => {
                "store it where the process that calls the model looks for attachments, then retry the run"
            }
            Cause::AttachmentDamaged => "upload the bytes again with `POST /v1/attachments`, which replaces damaged ones",
            Cause::AttachmentUnreadable => "make the store of attachments readable, then retry the run",
        }
    }
}

/// An error in the operator's model table, or a model that is not in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("the model table is invalid: {why}")]
    Invalid { why: String },
    #[error("unknown model `{model}`")]
    UnknownModel { model: String },
    #[error("the model `{model}` needs a key, and the environment variable {variable} is not set")]
    KeyMissing { model: String, variable: String },
}

impl TableError {
    /// Returns the stable code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        match self {
            TableError::Invalid { .. } => "config_invalid",
            TableError::UnknownModel { .. } => "unknown_model",
            TableError::KeyMissing { .. } => "model_key_missing",
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            TableError::Invalid { .. } => "see docs/guide/models.md for an example",
            TableError::UnknownModel { .. } => "use a model of the operator's table",
            TableError::KeyMissing { .. } => "set it for the process that calls models, and start that process again",
        }
    }
}
