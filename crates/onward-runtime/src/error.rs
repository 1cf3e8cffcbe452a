//! Errors of the API verbs.
//!
//! Every variant has a row in the table of error codes and thus a consequence, so that callers need not match on variants.

use onward_core::attribute::AttributeError;
use onward_core::{ErrorCode, Hash, Name, NameError, RunKey};
use onward_store::{Consequence, StoreError};

use crate::{CallRef, Violation};

/// Defines an error enum. Each variant names its row of the error table, except for the first one: the error in it has its own.
#[doc(hidden)]
#[macro_export]
macro_rules! error_enum {
    ($(#[$($meta:tt)+])* pub enum $name:ident {
        $(#[$($own:tt)+])* $inner:ident(#[from] $source:ty) => own,
        $($(#[$($attribute:tt)+])* $variant:ident $(($(#[$from:ident])? $of:ty))? $({ $($field:ident: $type:ty),* })? => $code:expr,)*
    }) => {
        $(#[$($meta)+])*
        pub enum $name {
            $(#[$($own)+])* $inner(#[from] $source),
            $($(#[$($attribute)+])* $variant $(($(#[$from])? $of))? $({ $($field: $type),* })?,)*
        }

        impl $name {
            /// Returns the row of the error table, or the error that has its own.
            fn row(&self) -> Result<ErrorCode, &$source> {
                Ok(match self {
                    $name::$inner(error) => return Err(error),
                    $($name::$variant { .. } => $code,)*
                })
            }

            /// Returns the stable code, which `docs/errors` describes.
            pub fn code(&self) -> &'static str {
                self.row().map_or_else(<$source>::code, ErrorCode::as_str)
            }
        }
    };
}

error_enum! {
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum RuntimeError {
        #[error(transparent)]
        Store(#[from] StoreError) => own,
        #[error(transparent)]
        Name(#[from] NameError) => ErrorCode::NameInvalid,
        #[error("the {what} is invalid")]
        IdInvalid { what: &'static str, source: NameError } => ErrorCode::IdInvalid,
        /// An id that the engine itself uses, such as the decision id `expired`.
        #[error("the {what} `{id}` is reserved")]
        IdReserved { what: &'static str, id: String } => ErrorCode::IdReserved,
        #[error("the {what} has {bytes} bytes, the maximum is {max}")]
        TextTooLong { what: &'static str, bytes: usize, max: usize } => ErrorCode::TextTooLong,
        #[error("the payload nests deeper than {max} levels")]
        JsonTooDeep { max: usize } => ErrorCode::JsonTooDeep,
        #[error("the payload is not JSON: {why}")]
        PayloadInvalid { why: String } => ErrorCode::PayloadInvalid,
        #[error("the message is empty")]
        MessageEmpty => ErrorCode::MessageEmpty,
        #[error("the attachment cannot be shown to a model: {why}")]
        AttachmentInvalid { why: &'static str } => ErrorCode::AttachmentInvalid,
        #[error("the filter matches every run")]
        FilterEmpty => ErrorCode::FilterEmpty,
        #[error(transparent)]
        AttributeInvalid(#[from] AttributeError) => ErrorCode::AttributeInvalid,
        #[error("`{text}` is not the id of an approval, promise or task")]
        CallIdInvalid { text: String } => ErrorCode::CallIdInvalid,
        #[error("{} may not decide {call}", decided_by.as_deref().unwrap_or("an unnamed caller"))]
        NotADecider { call: CallRef, decided_by: Option<String> } => ErrorCode::NotADecider,
        #[error("approval {call} may not be decided by the requester of its run")]
        DecidedByRequester { call: CallRef } => ErrorCode::NotADecider,
        #[error("approval {call} is abandoned: the run no longer waits for it")]
        WaitAbandoned { call: CallRef } => ErrorCode::WaitAbandoned,
        #[error("run {key} ended without a result for update `{update_id}`")]
        UpdateUnanswered { key: RunKey, update_id: String } => ErrorCode::UpdateUnanswered,
        #[error("no worker has code for `{kind}`{}", version.as_ref().map(|version| format!(" in version `{version}`")).unwrap_or_default())]
        NoCompatibleWorker { kind: Name, version: Option<Name> } => ErrorCode::NoCompatibleWorker,
        #[error("the input does not fit `{kind}`: {}", list(violations))]
        InputInvalid { kind: Name, violations: Vec<Violation> } => ErrorCode::InputInvalid,
        #[error("the {which} schema of `{kind}` is invalid: {why}")]
        SchemaInvalid { kind: Name, which: &'static str, why: String } => ErrorCode::SchemaInvalid,
        #[error("run {key} already has an entry with the key `{idempotency_key}` and another role or content")]
        EntryKeyTaken { key: RunKey, idempotency_key: String } => ErrorCode::EntryKeyTaken,
        #[error("run {key} has no entry {entry}")]
        EntryNotFound { key: RunKey, entry: Hash } => ErrorCode::EntryNotFound,
        #[error("the conversation of run {key} cannot continue from {}: {why}", entry.map_or_else(|| "its beginning".to_owned(), |entry| format!("entry {entry}")))]
        NoCheckpoint { key: RunKey, entry: Option<Hash>, why: &'static str } => ErrorCode::NoCheckpoint,
        #[error("there is no standalone task {key}")]
        TaskNotFound { key: RunKey } => ErrorCode::TaskNotFound,
        #[error("`{kind}` is reserved for standalone tasks")]
        KindReserved { kind: Name } => ErrorCode::KindReserved,
        #[error("`{kind}` is internal: only runs may start it")]
        KindInternal { kind: Name } => ErrorCode::KindInternal,
        #[error("query `{name}` of run {key} was not answered: its worker left")]
        Unanswered { key: RunKey, name: Name } => ErrorCode::QueryUnanswered,
        #[error("{why}")]
        RequestInvalid { why: String } => ErrorCode::MessageInvalid,
        /// Returned only by a codec on the caller's side.
        #[error("the payload cannot be encoded or decoded: {why}")]
        PayloadUnreadable { why: String } => ErrorCode::PayloadUnreadable,
    }
}

impl RuntimeError {
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
const VIOLATIONS_MAX: usize = 3;

fn list(violations: &[Violation]) -> String {
    let texts = violations.iter().take(VIOLATIONS_MAX).map(|Violation { path, message, .. }| match path.as_str() {
        "" => message.clone(),
        path => format!("{path}: {message}"),
    });
    let more = violations.len().saturating_sub(VIOLATIONS_MAX);
    let rest = (more > 0).then(|| format!("and {more} more"));
    texts.chain(rest).collect::<Vec<_>>().join("; ")
}
