//! Errors of the API verbs.
//!
//! Every variant has a stable code with a page in `docs/errors/` and a consequence, so that callers need not match on variants.

use onward_core::attribute::AttributeError;
use onward_core::{Hash, Name, NameError, RunKey};
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
    QuestionLeft { call: CallRef },
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
            RuntimeError::RequestInvalid { .. } => "message_invalid",
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
            RuntimeError::IdReserved { .. } => "use another id",
            RuntimeError::JsonTooDeep { .. } => "keep deep structures elsewhere, or as text",
            RuntimeError::TextTooLong { .. } => "keep long texts elsewhere and pass a reference",
            RuntimeError::CallIdInvalid { .. } => {
                "use the form RUN~GENERATION~PLACE; `onward approval list` shows open approvals"
            }
            RuntimeError::PayloadInvalid { .. } => {
                "put text in quotes, or send data that is not JSON with its type, such as `text/plain`"
            }
            RuntimeError::MessageEmpty => "send a text or at least one block with content",
            RuntimeError::AttachmentInvalid { .. } => {
                "upload the bytes with `POST /v1/attachments` and use the hash that it returns; see docs/guide/models.md"
            }
            RuntimeError::FilterEmpty => "name a kind, version, status, attribute or time, or select all runs with `all`",
            RuntimeError::AttributeInvalid(_) => "keep data in the input or the state; attributes are for finding runs",
            RuntimeError::NotADecider { .. } => "ask one of the deciders that the approval names",
            RuntimeError::DecidedByRequester { .. } => "let another person decide, with a key of another name",
            RuntimeError::QuestionLeft { .. } => "nothing was decided; see `onward run show` for what the run waits for",
            RuntimeError::UpdateUnanswered { .. } => "see `onward run show` for how the run ended",
            RuntimeError::NoCompatibleWorker { .. } => "start a worker that has it; the run waits and nothing is lost",
            RuntimeError::InputInvalid { .. } => "see `GET /v1/kinds/KIND` for its schema",
            RuntimeError::SchemaInvalid { .. } => "see docs/guide/schemas.md for the supported schemas",
            RuntimeError::EntryKeyTaken { .. } => "use another key: a key belongs to one role and content",
            RuntimeError::EntryNotFound { .. } => {
                "list the ids with `onward run entries RUN`; entries that a fork shares with a deleted run are gone"
            }
            RuntimeError::NoCheckpoint { .. } => "name a later entry, or start another run",
            RuntimeError::TaskNotFound { .. } => "look for a task of a workflow in its run",
            RuntimeError::KindReserved { .. } => "start them with `POST /v1/tasks`; begin no kind of workflow with `task:`",
            RuntimeError::KindInternal { .. } => {
                "start the agent or workflow that uses it; `GET /v1/kinds` lists what callers may start"
            }
            RuntimeError::PayloadUnreadable { .. } => "keep encryption keys for as long as payloads that they encrypted are read",
            RuntimeError::RequestInvalid { .. } => "see the table of verbs in the .proto file, which reflection serves",
            RuntimeError::Unanswered { .. } => "retry the query",
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
