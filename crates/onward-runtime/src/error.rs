//! Errors of the API verbs.
//!
//! Every variant has a stable code with a page in `docs/errors/` and a consequence, so that callers need not match on variants.

use onward_core::attribute::AttributeError;
use onward_core::{Hash, Name, NameError, RunKey};
use onward_store::{Consequence, StoreError};

use crate::{CallId, Violation};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Name(#[from] NameError),
    #[error("the {what} is not usable")]
    IdInvalid { what: &'static str, source: NameError },
    /// An id that the engine itself uses for results without an outside sender, such as `expired`.
    #[error("the {what} must not be `{id}`")]
    IdReserved { what: &'static str, id: String },
    #[error("the {what} has {bytes} bytes, more than {max}")]
    TextTooLong { what: &'static str, bytes: usize, max: usize },
    #[error("a payload nests deeper than {max} levels")]
    JsonTooDeep { max: usize },
    #[error("the payload is not JSON: {why}")]
    PayloadInvalid { why: String },
    #[error("the message says nothing")]
    MessageEmpty,
    #[error("what is attached cannot be shown to any model: {why}")]
    AttachmentInvalid { why: &'static str },
    #[error("the filter would find every run")]
    FilterEmpty,
    #[error(transparent)]
    AttributeInvalid(#[from] AttributeError),
    #[error("`{text}` is not the id of an approval, promise or task")]
    CallIdInvalid { text: String },
    #[error("{} may not decide {call}", decided_by.as_deref().unwrap_or("nobody in particular"))]
    NotADecider { call: CallId, decided_by: Option<String> },
    #[error("approval {call} is decided by another person than the one who has started its run")]
    DecidedByRequester { call: CallId },
    #[error("the code of the run has gone another way and does not ask {call} any more")]
    QuestionLeft { call: CallId },
    #[error("run {key} ended before it answered update `{update_id}`")]
    UpdateUnanswered { key: RunKey, update_id: String },
    #[error("no worker has code for `{kind}`{}", version.as_ref().map(|version| format!(" in version `{version}`")).unwrap_or_default())]
    NoCompatibleWorker { kind: Name, version: Option<Name> },
    #[error("the input does not fit `{kind}`: {}", list(violations))]
    InputInvalid { kind: Name, violations: Vec<Violation> },
    #[error("the {which} schema of `{kind}` is not usable: {why}")]
    SchemaInvalid { kind: Name, which: &'static str, why: String },
    #[error("run {key} has an entry under the key `{idempotency_key}` already, and it says something else")]
    EntryKeyTaken { key: RunKey, idempotency_key: String },
    #[error("run {key} has no entry {entry}")]
    EntryNotFound { key: RunKey, entry: Hash },
    #[error("the conversation of run {key} cannot go on from {}: {why}", entry.map_or_else(|| "its beginning".to_owned(), |entry| format!("entry {entry}")))]
    NoCheckpoint { key: RunKey, entry: Option<Hash>, why: &'static str },
    #[error("there is no standalone task {key}")]
    TaskNotFound { key: RunKey },
    #[error("`{kind}` is a name for standalone tasks")]
    KindReserved { kind: Name },
    #[error("`{kind}` is internal: only runs ask for it")]
    KindInternal { kind: Name },
    #[error("nobody answered the query `{name}` of run {key}")]
    Unanswered { key: RunKey, name: Name },
    /// Returned only by a codec on the caller's side.
    #[error("a payload cannot be encoded or decoded: {why}")]
    PayloadUnreadable { why: String },
}

impl RuntimeError {
    /// Returns the stable code, which has a page `docs/errors/<code>.md`. A code is never reused or renamed.
    pub fn code(&self) -> &'static str {
        match self {
            RuntimeError::Store(error) => error.code(),
            RuntimeError::Name(_) => "name_invalid",
            RuntimeError::IdInvalid { .. } => "id_invalid",
            RuntimeError::IdReserved { .. } => "id_reserved",
            RuntimeError::TextTooLong { .. } => "text_too_long",
            RuntimeError::JsonTooDeep { .. } => "json_too_deep",
            RuntimeError::PayloadInvalid { .. } => "payload_invalid",
            RuntimeError::MessageEmpty => "message_empty",
            RuntimeError::AttachmentInvalid { .. } => "attachment_invalid",
            RuntimeError::FilterEmpty => "filter_empty",
            RuntimeError::AttributeInvalid(_) => "attribute_invalid",
            RuntimeError::CallIdInvalid { .. } => "call_id_invalid",
            RuntimeError::NotADecider { .. } | RuntimeError::DecidedByRequester { .. } => "not_a_decider",
            RuntimeError::QuestionLeft { .. } => "question_left",
            RuntimeError::UpdateUnanswered { .. } => "update_unanswered",
            RuntimeError::NoCompatibleWorker { .. } => "no_compatible_worker",
            RuntimeError::InputInvalid { .. } => "input_invalid",
            RuntimeError::SchemaInvalid { .. } => "schema_invalid",
            RuntimeError::EntryKeyTaken { .. } => "entry_key_taken",
            RuntimeError::EntryNotFound { .. } => "entry_not_found",
            RuntimeError::NoCheckpoint { .. } => "no_checkpoint",
            RuntimeError::TaskNotFound { .. } => "task_not_found",
            RuntimeError::KindReserved { .. } => "kind_reserved",
            RuntimeError::KindInternal { .. } => "kind_internal",
            RuntimeError::Unanswered { .. } => "query_unanswered",
            RuntimeError::PayloadUnreadable { .. } => "payload_unreadable",
        }
    }

    pub fn consequence(&self) -> Consequence {
        match self {
            RuntimeError::Store(error) => error.consequence(),
            _ => Consequence::TellCaller,
        }
    }

    /// Returns what to do about the error, if anything can be done.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            RuntimeError::Store(error) => return error.hint(),
            RuntimeError::Name(_) | RuntimeError::IdInvalid { .. } => "1 to 255 bytes of UTF-8 without control characters",
            RuntimeError::IdReserved { .. } => "any other id will do",
            RuntimeError::JsonTooDeep { .. } => "keep deep structures elsewhere, or as text",
            RuntimeError::TextTooLong { .. } => "keep long texts elsewhere and pass a reference",
            RuntimeError::CallIdInvalid { .. } => {
                "it looks like RUN~GENERATION~PLACE; `onward approval list` shows the open ones"
            }
            RuntimeError::PayloadInvalid { .. } => {
                "text needs quotes; what is not JSON comes with its type, `text/plain` for example"
            }
            RuntimeError::MessageEmpty => "send a text, or blocks of which one has something in it",
            RuntimeError::AttachmentInvalid { .. } => {
                "`POST /v1/attachments` keeps bytes and answers with their hash; docs/guide/models.md has an example"
            }
            RuntimeError::FilterEmpty => "name a kind, a version, a status, an attribute or a time; or say that all are meant",
            RuntimeError::AttributeInvalid(_) => "attributes are for finding runs; keep data in the input or the state",
            RuntimeError::NotADecider { .. } => "the approval names who may decide it",
            RuntimeError::DecidedByRequester { .. } => "let somebody else decide, with a key of another name",
            RuntimeError::QuestionLeft { .. } => "nothing was decided; `onward run show` says what the run waits for now",
            RuntimeError::UpdateUnanswered { .. } => "`onward run show` says how the run ended",
            RuntimeError::NoCompatibleWorker { .. } => "start a worker that has it; the run waits meanwhile and nothing is lost",
            RuntimeError::InputInvalid { .. } => "GET /v1/kinds/KIND shows what it takes",
            RuntimeError::SchemaInvalid { .. } => "docs/guide/schemas.md says which schemas are taken",
            RuntimeError::EntryKeyTaken { .. } => "a key stands for one role and one content; use another key for another entry",
            RuntimeError::EntryNotFound { .. } => {
                "`onward run entries RUN` shows the ids; what a fork has from a run that was deleted is gone with it"
            }
            RuntimeError::NoCheckpoint { .. } => "name a later entry, or start another run",
            RuntimeError::TaskNotFound { .. } => "a task of a workflow is seen in its run",
            RuntimeError::KindReserved { .. } => "POST /v1/tasks starts them; kinds of workflows do not begin with `task:`",
            RuntimeError::KindInternal { .. } => {
                "start the agent or workflow that uses it; `GET /v1/kinds` lists what callers may start"
            }
            RuntimeError::PayloadUnreadable { .. } => "keys that sealed something have to stay until nobody reads it any more",
            RuntimeError::Unanswered { .. } => "ask again: its worker left while it was asked",
        })
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
