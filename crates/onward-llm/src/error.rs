//! Why an attempt brought no answer, and what that means for the next one.
//!
//! Decides nothing about retries: it says what is worth another attempt and from when, and whoever holds the policy durably decides.
//! Must never tell a key.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ModelReply;

/// Why a hash is still there when a request is written.
pub(crate) const NOT_IN_PLACE: &str = "nobody has put its bytes in place";

/// One attempt that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{cause}{}", behind(detail))]
pub struct CallError {
    pub cause: Cause,
    /// What is known about it, without a word of the provider.
    pub detail: String,
    /// What the provider said, cut and without the key: it may repeat what it was asked, so it is for operators alone and no part of any text.
    #[serde(default, skip_serializing)]
    pub said: Option<String>,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The provider's name for this request, for its support.
    pub request_id: Option<String>,
    /// Whether the provider itself says that another attempt is of use.
    pub provider_says_retry: Option<bool>,
    /// What had arrived of the answer, usage included.
    pub arrived: Box<ModelReply>,
}

fn behind(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The key has used up what it may per minute, for every caller.
    #[error("the provider limits the rate of this key")]
    RateLimited { retry_after: Option<Duration> },
    #[error("the account at the provider has nothing left to spend")]
    QuotaExhausted,
    #[error("the provider is overloaded")]
    Overloaded { retry_after: Option<Duration> },
    #[error("the provider failed")]
    ServerError { retry_after: Option<Duration> },
    /// Success was told, with no text, call, reasoning or refusal; or with an error inside.
    #[error("the model answered nothing")]
    Empty,
    #[error("the provider refuses the request")]
    BadRequest,
    #[error("the provider refuses the key")]
    Auth,
    #[error("the conversation is too long for the model")]
    ContextTooLong,
    /// The answer broke off, or is not what the dialect says.
    #[error("the answer is broken")]
    Malformed,
    #[error("the answer is larger than allowed")]
    TooLarge,
    #[error("the answer did not come in time")]
    Timeout,
    /// The connection ended before an answer began; the provider may have worked on it.
    #[error("the connection ended before an answer")]
    Disconnected,
    /// There was no connection, so the request was never sent.
    #[error("the provider cannot be reached")]
    Unreachable,
    /// A message names an attachment by its hash, and nobody has its bytes.
    #[error("an attachment is missing")]
    AttachmentMissing,
    /// A message names an attachment by its hash, and the bytes that are there have another one.
    #[error("an attachment is damaged")]
    AttachmentDamaged,
    /// A message names an attachment by its hash, and where its bytes would be cannot be read now.
    #[error("an attachment cannot be read")]
    AttachmentUnreadable,
}

impl CallError {
    /// Nobody has the bytes of this attachment.
    pub fn attachment_missing(hash: &str, why: &str) -> CallError {
        CallError::new(Cause::AttachmentMissing, format!("{hash}: {why}"))
    }

    /// The bytes of this attachment are not those that it is named by.
    pub fn attachment_damaged(hash: &str) -> CallError {
        CallError::new(Cause::AttachmentDamaged, format!("{hash}: the bytes that are there have another hash"))
    }

    /// Nobody knows whether there are bytes of this attachment.
    pub fn attachment_unreadable(hash: &str, why: &str) -> CallError {
        CallError::new(Cause::AttachmentUnreadable, format!("{hash}: {why}"))
    }

    pub(crate) fn new(cause: Cause, detail: impl Into<String>) -> CallError {
        let detail = detail.into();
        CallError {
            cause,
            detail,
            said: None,
            status: None,
            request_id: None,
            provider_says_retry: None,
            arrived: Box::default(),
        }
    }

    /// Keeps what the provider said.
    pub(crate) fn saying(self, said: impl Into<String>) -> CallError {
        CallError { said: Some(said.into()).filter(|said| !said.is_empty()), ..self }
    }

    /// Stable name; has a page `docs/errors/<code>.md`. Never reused, never renamed.
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

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        let retryable = match self.cause {
            Cause::RateLimited { .. } | Cause::Overloaded { .. } | Cause::ServerError { .. } | Cause::Empty => true,
            Cause::Malformed | Cause::Timeout | Cause::Disconnected | Cause::Unreachable => true,
            Cause::AttachmentMissing | Cause::AttachmentDamaged | Cause::AttachmentUnreadable => true,
            Cause::QuotaExhausted | Cause::BadRequest | Cause::Auth | Cause::ContextTooLong | Cause::TooLarge => false,
        };
        // Providers know more about their own refusals; about connections they cannot say anything.
        if self.status.is_some() { self.provider_says_retry.unwrap_or(retryable) } else { retryable }
    }

    /// How long the provider asks to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cause {
            Cause::RateLimited { retry_after } | Cause::Overloaded { retry_after } | Cause::ServerError { retry_after } => {
                retry_after
            }
            _ => None,
        }
    }

    /// Whether every call with this key is refused for a while, and answered then: nobody should ask before. A key that is refused for
    /// good, or that has nothing left to spend, is none of those: whoever asks is told so at once.
    pub fn limits_key(&self) -> bool {
        matches!(self.cause, Cause::RateLimited { .. })
    }

    /// Whether the attempt may be on the bill although no answer came; what is known is in `arrived.usage`.
    pub fn may_have_cost(&self) -> bool {
        match self.cause {
            Cause::Empty | Cause::Malformed | Cause::TooLarge | Cause::Timeout | Cause::Disconnected => true,
            _ => self.arrived.usage.is_some(),
        }
    }

    /// Whether the attempt may have cost more than `arrived.usage` says: some dialects tell at the beginning what is used by then, and an
    /// answer that breaks off never says the rest.
    pub fn cost_is_unknown(&self) -> bool {
        let is_whole = self.cause == Cause::Empty || self.arrived.stop.is_some();
        self.may_have_cost() && !(is_whole && self.arrived.usage.is_some())
    }

    pub fn hint(&self) -> &'static str {
        match self.cause {
            Cause::RateLimited { .. } => "the key is closed until the provider opens it again; more keys or a higher tier help",
            Cause::QuotaExhausted => "top up the account at the provider",
            Cause::Overloaded { .. } | Cause::ServerError { .. } => "wait; the provider's status page may say more",
            Cause::Empty => "ask again; some providers answer nothing instead of an error",
            Cause::BadRequest => {
                "it does not take the model, a parameter or the schema of a tool; operators are shown the provider's words"
            }
            Cause::Auth => "check the environment variable that `key_env` names",
            Cause::ContextTooLong => "compact the conversation, or use a model with a larger window",
            Cause::Malformed | Cause::Disconnected => "ask again; what had arrived is kept with the error",
            Cause::TooLarge => "lower `max_tokens`, or raise `answer_bytes_max` of the provider",
            Cause::Timeout => {
                "raise `idle_timeout_seconds` or `call_timeout_seconds` of the provider if its model thinks for long"
            }
            Cause::Unreachable => "check `base_url` of the provider, and the network",
            Cause::AttachmentMissing => {
                "put it where the process that calls the model looks for attachments, and try the run again"
            }
            Cause::AttachmentDamaged => "keep the bytes anew: `POST /v1/attachments` replaces what is damaged",
            Cause::AttachmentUnreadable => "see to it that the place of attachments can be read, and try the run again",
        }
    }
}

/// A mistake in the operator's table, or a model that is not in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    #[error("the table of models is not usable: {why}")]
    Invalid { why: String },
    #[error("no model is called `{model}` here")]
    UnknownModel { model: String },
    #[error("the model `{model}` needs a key, and the environment variable {variable} is not set")]
    KeyMissing { model: String, variable: String },
}

impl TableError {
    /// Stable name; has a page `docs/errors/<code>.md`. Never reused, never renamed.
    pub fn code(&self) -> &'static str {
        match self {
            TableError::Invalid { .. } => "config_invalid",
            TableError::UnknownModel { .. } => "unknown_model",
            TableError::KeyMissing { .. } => "model_key_missing",
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            TableError::Invalid { .. } => "docs/guide/models.md has a table to start from",
            TableError::UnknownModel { .. } => "the operator's table names the models that may be called",
            TableError::KeyMissing { .. } => "set it for the process that calls models, and start that process again",
        }
    }
}
