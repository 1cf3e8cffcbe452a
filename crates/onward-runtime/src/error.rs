//! Errors of the API verbs.
//!
//! Every variant has a row in the table of error codes and thus a consequence, so that callers need not match on variants.

use onward_core::attribute::AttributeError;
use onward_core::{ErrorCode, Hash, Name, NameError, RunKey};
use onward_store::{Consequence, StoreError};

use crate::{CallRef, Violation};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the {what} is invalid")]
    IdInvalid { what: &'static str, source: NameError },
    /// An id that the engine itself uses, such as the decision id `expired`.
    #[error("the {what} `{id}` is reserved")]
    IdReserved { what: &'static str, id: String },
    #[error("the {what} has {bytes} bytes, the maximum is {max}")]
    TextTooLong { what: &'static str, bytes: usize, max: usize },
    #[error("the payload nests deeper than {max} levels")]
    JsonTooDeep { max: usize },
    #[error("the payload is not JSON: {why}")]
    PayloadInvalid { why: String },
    #[error("the message is empty")]
    MessageEmpty,
    #[error("the attachment cannot be shown to a model: {why}")]
    AttachmentInvalid { why: &'static str },
    #[error("the filter matches every run")]
    FilterEmpty,
    #[error(transparent)]
    AttributeInvalid(#[from] AttributeError),
    #[error("`{text}` is not the id of an approval, promise or task")]
    CallIdInvalid { text: String },
    #[error("{} may not decide {call}", decided_by.as_deref().unwrap_or("an unnamed caller"))]
    NotADecider { call: CallRef, decided_by: Option<String> },
    #[error("approval {call} may not be decided by the requester of its run")]
    DecidedByRequester { call: CallRef },
    #[error("approval {call} is abandoned: the run no longer waits for it")]
    WaitAbandoned { call: CallRef },
    #[error("run {key} ended without a result for update `{update_id}`")]
    UpdateUnanswered { key: RunKey, update_id: String },
    #[error("no worker has code for `{kind}`{}", version.as_ref().map(|version| format!(" in version `{version}`")).unwrap_or_default())]
    NoCompatibleWorker { kind: Name, version: Option<Name> },
    #[error("the input does not fit `{kind}`: {}", list(violations))]
    InputInvalid { kind: Name, violations: Vec<Violation> },
    #[error("the {which} schema of `{kind}` is invalid: {why}")]
    SchemaInvalid { kind: Name, which: &'static str, why: String },
    #[error("run {key} already has an entry with the key `{idempotency_key}` and another role or content")]
    EntryKeyTaken { key: RunKey, idempotency_key: String },
    #[error("run {key} has no entry {entry}")]
    EntryNotFound { key: RunKey, entry: Hash },
    #[error("the conversation of run {key} cannot continue from {}: {why}", entry.map_or_else(|| "its beginning".to_owned(), |entry| format!("entry {entry}")))]
    NoCheckpoint { key: RunKey, entry: Option<Hash>, why: &'static str },
    #[error("there is no standalone task {key}")]
    TaskNotFound { key: RunKey },
    #[error("`{kind}` is reserved for standalone tasks")]
    KindReserved { kind: Name },
    #[error("`{kind}` is internal: only runs may start it")]
    KindInternal { kind: Name },
    #[error("query `{name}` of run {key} was not answered: its worker left")]
    Unanswered { key: RunKey, name: Name },
    #[error("{why}")]
    RequestInvalid { why: String },
    /// Returned only by a codec on the caller's side.
    #[error("the payload cannot be encoded or decoded: {why}")]
    PayloadUnreadable { why: String },
}

impl RuntimeError {
    /// Returns the row of the error table, or the error of the store, which has its own.
    fn row(&self) -> Result<ErrorCode, &StoreError> {
        Ok(match self {
            RuntimeError::Store(error) => return Err(error),
            RuntimeError::Name(_) => ErrorCode::NameInvalid,
            RuntimeError::IdInvalid { .. } => ErrorCode::IdInvalid,
            RuntimeError::IdReserved { .. } => ErrorCode::IdReserved,
            RuntimeError::TextTooLong { .. } => ErrorCode::TextTooLong,
            RuntimeError::JsonTooDeep { .. } => ErrorCode::JsonTooDeep,
            RuntimeError::PayloadInvalid { .. } => ErrorCode::PayloadInvalid,
            RuntimeError::MessageEmpty => ErrorCode::MessageEmpty,
            RuntimeError::AttachmentInvalid { .. } => ErrorCode::AttachmentInvalid,
            RuntimeError::FilterEmpty => ErrorCode::FilterEmpty,
            RuntimeError::AttributeInvalid(_) => ErrorCode::AttributeInvalid,
            RuntimeError::CallIdInvalid { .. } => ErrorCode::CallIdInvalid,
            RuntimeError::NotADecider { .. } | RuntimeError::DecidedByRequester { .. } => ErrorCode::NotADecider,
            RuntimeError::WaitAbandoned { .. } => ErrorCode::WaitAbandoned,
            RuntimeError::UpdateUnanswered { .. } => ErrorCode::UpdateUnanswered,
            RuntimeError::NoCompatibleWorker { .. } => ErrorCode::NoCompatibleWorker,
            RuntimeError::InputInvalid { .. } => ErrorCode::InputInvalid,
            RuntimeError::SchemaInvalid { .. } => ErrorCode::SchemaInvalid,
            RuntimeError::EntryKeyTaken { .. } => ErrorCode::EntryKeyTaken,
            RuntimeError::EntryNotFound { .. } => ErrorCode::EntryNotFound,
            RuntimeError::NoCheckpoint { .. } => ErrorCode::NoCheckpoint,
            RuntimeError::TaskNotFound { .. } => ErrorCode::TaskNotFound,
            RuntimeError::KindReserved { .. } => ErrorCode::KindReserved,
            RuntimeError::KindInternal { .. } => ErrorCode::KindInternal,
            RuntimeError::Unanswered { .. } => ErrorCode::QueryUnanswered,
            RuntimeError::PayloadUnreadable { .. } => ErrorCode::PayloadUnreadable,
            RuntimeError::RequestInvalid { .. } => ErrorCode::MessageInvalid,
        })
    }

    /// Returns the stable code, which `docs/errors` describes.
    pub fn code(&self) -> &'static str {
        self.row().map_or_else(StoreError::code, ErrorCode::as_str)
    }

    pub fn consequence(&self) -> Consequence {
        self.row().map_or_else(StoreError::consequence, ErrorCode::consequence)
    }

    /// Returns what to do about the error, if anything can be done.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            RuntimeError::DecidedByRequester { .. } => Some("let another person decide, with a key of another name"),
            _ => self.row().map_or_else(StoreError::hint, ErrorCode::hint),
        }
    }
}

/// Number of violations that an error message lists.
const TOLD_MAX: usize = 3;

fn list(violations: &[Violation]) -> String {
    let told = violations.iter().take(TOLD_MAX).map(|Violation { path, message, .. }| match path.as_str() {
        "" => message.clone(),
        path => format!("{path}: {message}"),
    });
    let more = violations.len().saturating_sub(TOLD_MAX);
    let rest = (more > 0).then(|| format!("and {more} more"));
    told.chain(rest).collect::<Vec<_>>().join("; ")
}
