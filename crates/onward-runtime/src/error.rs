//! Errors of the API verbs.
//!
//! Every variant has a row in the table of error codes and thus a consequence, so that callers need not match on variants.

use onward_core::attribute::AttributeError;
use onward_core::schedule::ScheduleRefusal;
use onward_core::{Hash, Index, Name, NameError, RunKey, error_enum};
use onward_store::StoreError;

use crate::{CallRef, Violation};

error_enum! {
    #[derive(Debug, thiserror::Error)]
    #[non_exhaustive]
    pub enum RuntimeError {
        #[error(transparent)]
        Store(#[from] StoreError) => (error),
        #[error(transparent)]
        Name(#[from] NameError) => NameInvalid,
        #[error("the {what} is invalid")]
        IdInvalid { what: &'static str, source: NameError } => IdInvalid,
        /// An id that the engine itself uses, such as the decision id `expired`.
        #[error("the {what} `{id}` is reserved")]
        IdReserved { what: &'static str, id: String } => IdReserved,
        #[error("the key of a memo has 1 to {} bytes, this one has {bytes}", onward_core::memo::MEMO_KEY_BYTES_MAX)]
        MemoKeyInvalid { bytes: usize } => MemoKeyInvalid,
        #[error("the {what} has {bytes} bytes, the maximum is {max}")]
        TextTooLong { what: &'static str, bytes: usize, max: usize } => TextTooLong,
        #[error("the payload nests deeper than {max} levels")]
        JsonTooDeep { max: usize } => JsonTooDeep,
        #[error("the payload is not JSON: {why}")]
        PayloadInvalid { why: String } => PayloadInvalid,
        #[error("the message is empty")]
        MessageEmpty => MessageEmpty,
        #[error("the attachment cannot be shown to a model: {why}")]
        AttachmentInvalid { why: &'static str } => AttachmentInvalid,
        #[error("the filter matches every run")]
        FilterEmpty => FilterEmpty,
        #[error(transparent)]
        AttributeInvalid(#[from] AttributeError) => AttributeInvalid,
        #[error("`{text}` is not the id of an approval, promise or task")]
        CallIdInvalid { text: String } => CallIdInvalid,
        #[error("{} may not decide {call}", decided_by.as_deref().unwrap_or("an unnamed caller"))]
        NotADecider { call: CallRef, decided_by: Option<String> } => NotADecider,
        #[error("approval {call} may not be decided by the requester of its run")]
        DecidedByRequester { call: CallRef } => NotADecider
            hint() "let another person decide, with a key of another name",
        #[error("approval {call} is abandoned: the run no longer waits for it")]
        WaitAbandoned { call: CallRef } => WaitAbandoned,
        #[error("run {key} ended without a result for update `{update_id}`")]
        UpdateUnanswered { key: RunKey, update_id: String } => UpdateUnanswered,
        #[error("no worker has code for `{kind}`{}", version.as_ref().map(|version| format!(" in version `{version}`")).unwrap_or_default())]
        NoCompatibleWorker { kind: Name, version: Option<Name> } => NoCompatibleWorker,
        #[error("the input does not fit `{kind}`: {}", list(violations))]
        InputInvalid { kind: Name, violations: Vec<Violation> } => InputInvalid,
        #[error("the answer does not fit what approval {call} requires: {}", list(violations))]
        AnswerInvalid { call: CallRef, violations: Vec<Violation> } => AnswerInvalid,
        #[error("approval {call} requires an answer with an invalid schema: {why}")]
        AnswerSchemaInvalid { call: CallRef, why: String } => SchemaInvalid
            hint() "reject the approval, and correct the schema in the code of the run",
        #[error("signal `{name}` does not fit `{kind}`: {}", list(violations))]
        SignalInvalid { kind: Name, name: Name, violations: Vec<Violation> } => SignalInvalid,
        #[error("update `{name}` does not fit `{kind}`: {}", list(violations))]
        UpdateInvalid { kind: Name, name: Name, violations: Vec<Violation> } => UpdateInvalid,
        #[error("the {which} schema of `{kind}` is invalid: {why}")]
        SchemaInvalid { kind: Name, which: &'static str, why: String } => SchemaInvalid,
        #[error("run {key} already has an entry with the key `{idempotency_key}` and another role or content")]
        EntryKeyTaken { key: RunKey, idempotency_key: String } => EntryKeyTaken,
        #[error("run {key} has no entry {entry}")]
        EntryNotFound { key: RunKey, entry: Hash } => EntryNotFound,
        #[error("the conversation of run {key} cannot continue from {}: {why}", entry.map_or_else(|| "its beginning".to_owned(), |entry| format!("entry {entry}")))]
        NoCheckpoint { key: RunKey, entry: Option<Hash>, why: &'static str } => NoCheckpoint,
        #[error("generation {generation} of run {key} has no event {index}")]
        IndexOutOfRange { key: RunKey, generation: u32, index: Index } => IndexOutOfRange,
        #[error("there is no standalone task {key}")]
        TaskNotFound { key: RunKey } => TaskNotFound,
        #[error("`{kind}` is reserved for standalone tasks, definitions of flows and defaults")]
        KindReserved { kind: Name } => KindReserved,
        #[error("the defaults of `{kind}` are invalid: {why}")]
        DefaultsInvalid { kind: Name, why: String } => DefaultsInvalid,
        #[error("invalid settings of the queue: {why}")]
        QueueInvalid { why: String } => QueueInvalid,
        #[error("invalid quota: {why}")]
        QuotaInvalid { why: String } => QuotaInvalid,
        #[error("the document of flow `{flow}` has errors: {}", list(violations))]
        FlowInvalid { flow: Name, violations: Vec<Violation> } => FlowInvalid,
        #[error("there is no flow `{flow}`")]
        FlowNotFound { flow: Name } => FlowNotFound,
        #[error("no worker and no flow has the kind `{kind}`")]
        KindNotFound { kind: Name } => KindNotFound
            hint() "connect a worker with this kind first, or send `force` to wait for one",
        #[error("schedule `{schedule}` not found")]
        ScheduleNotFound { schedule: Name } => ScheduleNotFound,
        #[error(transparent)]
        Schedule(#[from] ScheduleRefusal) => (error),
        #[error("the current version of flow `{flow}` is {}", current.as_ref().map_or_else(|| "none".to_owned(), |version| format!("`{version}`")))]
        FlowChanged { flow: Name, current: Option<Name> } => FlowChanged,
        #[error("{open_runs} open runs are pinned to versions of flow `{flow}`")]
        FlowInUse { flow: Name, open_runs: u64 } => FlowInUse,
        #[error("`{kind}` is internal: only runs may start it")]
        KindInternal { kind: Name } => KindInternal,
        #[error("query `{name}` of run {key} was not answered in time, or its worker disconnected")]
        Unanswered { key: RunKey, name: Name } => QueryUnanswered,
        #[error("{why}")]
        RequestInvalid { why: String } => MessageInvalid,
        /// Returned only by a codec on the caller's side.
        #[error("the payload cannot be encoded or decoded: {why}")]
        PayloadUnreadable { why: String } => PayloadUnreadable,
    }
}

impl RuntimeError {
    /// Returns after which time the same request may succeed, if that is known.
    pub fn retry_after_ms(&self) -> Option<u64> {
        match self {
            RuntimeError::Store(error) => error.retry_after_ms(),
            _ => None,
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
